// The device before its library is loaded: hooks and guard that bring libtorch_sinter.so in and hand every call on.
//
// `import torch` loads this small library and nothing else of ours. Most uses of the device from Python tell the Python
// side first (torch.sinter._lazy_init); torch.Generator("sinter"), torch.Stream, torch.Event and pin_memory() do not,
// they come straight to the hooks or the guard. Those two must therefore exist from the start, and since PyTorch
// accepts hooks only once, the stand-in for the hooks stays in place for good.
//
// Loading is the Python side's work, since it installs more than the library; it leaves a function here. No kernel, no
// allocator and no thread is made here, and a process that never asks for the device sees none: deviceCount() is 0.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

namespace {

using Guard = c10::impl::DeviceGuardImplInterface;
using Hooks = at::PrivateUse1HooksInterface;

// What is asked for decides whether the library may be loaded for it; the numbers are known to Python.
enum class Asked : int { kDevice = 0, kPinnedMemory = 1 };

// Loads the library, or returns the reason why not.
using Load = const char* (*)(int asked);

std::atomic<Load> load_library{nullptr};
std::atomic<const Hooks*> library_hooks{nullptr};

bool loaded() { return library_hooks.load(std::memory_order_acquire) != nullptr; }

void require(Asked asked) {
  if (loaded()) return;
  const Load load = load_library.load();
  const char* const problem = load ? load(static_cast<int>(asked)) : "the Python package torch_sinter is not loaded";
  TORCH_CHECK(problem == nullptr, problem);
  TORCH_CHECK(loaded(), "sinter: the device's library was loaded, but it did not hand over its hooks");
}

const Hooks& hooks(Asked asked = Asked::kDevice) {
  require(asked);
  return *library_hooks.load(std::memory_order_acquire);
}

// The library has put its guard in our place; objects made before, such as an event, still hold us.
const Guard& guard() {
  require(Asked::kDevice);
  return *c10::impl::getDeviceGuardImpl(c10::kPrivateUse1);
}

class EntranceHooks final : public Hooks {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return loaded() && hooks().isAvailable(); }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return loaded() && hooks().hasPrimaryContext(index);
  }
  // Comes before every request, pinning too, so it decides nothing; the request itself loads.
  void init() const override {
    if (loaded()) hooks().init();
  }
  c10::DeviceIndex deviceCount() const override { return loaded() ? hooks().deviceCount() : c10::DeviceIndex{0}; }
  void setCurrentDevice(c10::DeviceIndex index) const override { hooks().setCurrentDevice(index); }
  c10::DeviceIndex getCurrentDevice() const override { return hooks().getCurrentDevice(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return hooks().exchangeDevice(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return hooks().maybeExchangeDevice(index);
  }
  // Nothing was pinned by a library that is not there.
  bool isPinnedPtr(const void* data) const override { return loaded() && hooks().isPinnedPtr(data); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return hooks(Asked::kPinnedMemory).getPinnedMemoryAllocator();
  }
  at::Device getDeviceFromPtr(void* data) const override { return hooks().getDeviceFromPtr(data); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return hooks().getDefaultGenerator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return hooks().getNewGenerator(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    hooks().resizePrivateUse1Bytes(storage, nbytes);
  }
};

class EntranceGuard final : public Guard {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override { return guard().exchangeDevice(device); }
  c10::Device getDevice() const override { return guard().getDevice(); }
  void setDevice(c10::Device device) const override { guard().setDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (loaded()) guard().uncheckedSetDevice(device);
  }
  c10::Stream getStream(c10::Device device) const override { return guard().getStream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return guard().getDefaultStream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return guard().getStreamFromGlobalPool(device, high);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return guard().getNewStream(device, priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return guard().exchangeStream(stream); }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return guard().getStreamNativeHandle(stream);
  }
  void destroyEvent(void* event, const c10::DeviceIndex index) const noexcept override {
    if (loaded()) guard().destroyEvent(event, index);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag flag) const override {
    guard().record(event, stream, index, flag);
  }
  void block(void* event, const c10::Stream& stream) const override { guard().block(event, stream); }
  bool queryEvent(void* event) const override { return guard().queryEvent(event); }
  // The autograd engine starts a thread for each device that its first backward finds.
  c10::DeviceIndex deviceCount() const noexcept override {
    return loaded() ? guard().deviceCount() : c10::DeviceIndex{0};
  }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    return guard().getDeviceCapability(device);
  }
  bool queryStream(const c10::Stream& stream) const override { return guard().queryStream(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { guard().synchronizeStream(stream); }
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return loaded() && guard().isStreamCapturing(stream);
  }
  void synchronizeEvent(void* event) const override { guard().synchronizeEvent(event); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { guard().synchronizeDevice(index); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    guard().recordDataPtrOnStream(data, stream);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex index) const override {
    return guard().elapsedTime(first, second, index);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, EntranceGuard)

}  // namespace

extern "C" {

// Called once, after the name of the device is registered. Returns null, or what is wrong.
__attribute__((visibility("default"))) const char* sinter_entrances_install(Load load) {
  if (at::isPrivateUse1HooksRegistered()) return "another out-of-tree device has registered its hooks already";
  load_library.store(load);
  at::RegisterPrivateUse1HooksInterface(new EntranceHooks);
  return nullptr;
}

// Called when the library is loaded, with what its sinter_device_hooks() returned.
__attribute__((visibility("default"))) void sinter_entrances_open(void* hooks) {
  library_hooks.store(static_cast<const Hooks*>(hooks), std::memory_order_release);
}

}  // extern "C"
