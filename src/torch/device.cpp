// What PyTorch asks of a device: guard, streams, events, allocators, hooks.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/sysinfo.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>

#include "runtime/caching_allocator.h"
#include "torch/device_memory.h"
#include "torch/device_state.h"
#include "torch/memory.h"
#include "torch/random.h"
#include "torch/recorder.h"
#include "torch/registration.h"

namespace sinter::torch_device {
namespace {

// ---------------------------------------------------------------- guard, streams, events

// All streams are names for the one in-order stream.
thread_local c10::StreamId current_stream_id = 0;

struct Event {
  std::chrono::steady_clock::time_point time;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    check_index(device);
    return kDevice;
  }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override { check_index(device); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream_with(current_stream_id); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_with(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return new_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return new_stream(); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream before = stream_with(current_stream_id);
    current_stream_id = next.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream) const override { return &torch_device::stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  // An event marks a position of the stream. What was recorded before it is run when it is recorded, so that the
  // time between two events is that of the work between them.
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    check(torch_device::stream().synchronize("event"));
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->time = std::chrono::steady_clock::now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first && second, "Both events must be recorded before calculating elapsed time.");
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(second)->time -
                                                     static_cast<Event*>(first)->time)
        .count();
  }
  bool queryStream(const c10::Stream&) const override { return torch_device::stream().idle(); }
  void synchronizeStream(const c10::Stream&) const override {
    check(torch_device::stream().synchronize("stream.synchronize()"));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    check(torch_device::stream().synchronize("synchronize()"));
  }
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  static void check_index(c10::Device device) {
    TORCH_CHECK(device.type() == kDeviceType && device.index() <= 0, "sinter: invalid device ", device,
                "; this process has one device, sinter:0");
  }
  static c10::Stream stream_with(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
  }
  static c10::Stream new_stream() {
    static std::atomic<c10::StreamId> next{1};
    return stream_with(next.fetch_add(1));
  }
};

// ---------------------------------------------------------------- device memory

c10::CachingDeviceAllocator::Stat stat_of(int64_t current, int64_t peak) {
  c10::CachingDeviceAllocator::Stat stat;
  stat.current = current;
  stat.peak = peak;
  stat.allocated = peak;
  stat.freed = peak - current;
  return stat;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  // Memory asked for outside a recorded op: a storage made directly.
  c10::DataPtr allocate(size_t nbytes) override {
    c10::Storage storage = make_storage(nbytes);
    Buffer& buffer = buffer_of(storage.unsafeGetStorageImpl());
    cpu_storage(buffer);
    storage.unsafeGetStorageImpl()->clear_materializer();
    return std::move(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    caching_allocator().empty_cache();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const CachingAllocator::Stats now = caching_allocator().stats();
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    stats.allocated_bytes[all] = stat_of(now.allocated, now.peak_allocated);
    stats.reserved_bytes[all] = stat_of(now.reserved, now.peak_reserved);
    stats.active_bytes[all] = stats.allocated_bytes[all];
    stats.requested_bytes[all] = stats.allocated_bytes[all];
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { caching_allocator().reset_peaks(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    struct sysinfo info = {};
    sysinfo(&info);
    const size_t machine = static_cast<size_t>(info.totalram) * info.mem_unit;
    const CachingAllocator::Stats now = caching_allocator().stats();
    const size_t total = now.limit ? std::min<size_t>(now.limit, machine) : machine;
    const size_t free = now.limit ? total - std::min<size_t>(total, now.reserved)
                                  : static_cast<size_t>(info.freeram + info.bufferram) * info.mem_unit;
    return {free, total};
  }
};

// ---------------------------------------------------------------- pinned host memory

// Host memory is device memory's equal, so pinning only has to remember what was asked for: a pinned tensor must
// answer is_pinned() with True, or pin_memory() copies it each time.
class HostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return {nullptr, nullptr, nullptr, c10::Device(c10::kCPU)};
    void* block = device_memory::allocate(nbytes);
    const std::lock_guard lock(mutex_);
    blocks_[block] = nbytes;
    return {block, block, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool owns(const void* pointer) {
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(const_cast<void*>(pointer));
    if (after == blocks_.begin()) return false;
    const auto& [start, nbytes] = *std::prev(after);
    return static_cast<const char*>(pointer) < static_cast<const char*>(start) + nbytes;
  }

 private:
  static void release(void* block);

  std::mutex mutex_;
  std::map<void*, size_t> blocks_;
};

HostAllocator& host_allocator() {
  static auto* allocator = new HostAllocator;
  return *allocator;
}

void HostAllocator::release(void* block) {
  HostAllocator& self = host_allocator();
  {
    const std::lock_guard lock(self.mutex_);
    self.blocks_.erase(block);
  }
  device_memory::free(block);
}

// ---------------------------------------------------------------- hooks

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* data) const override { return host_allocator().owns(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator(); }
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

Hooks& device_hooks() {
  static auto* hooks = new Hooks;
  return *hooks;
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

void register_device() {
  static auto* allocator = new Allocator;
  c10::SetAllocator(kDeviceType, allocator, /*priority=*/0);
  at::setHostAllocator(kDeviceType, &host_allocator(), 0);
  // PyTorch takes hooks once. In a Python process the stand-in of src/autoload holds the place and forwards to ours.
  if (!at::isPrivateUse1HooksRegistered()) {
    at::RegisterPrivateUse1HooksInterface(&device_hooks());
  } else {
    TORCH_CHECK(c10::get_privateuse1_backend() == "sinter",
                "sinter: another out-of-tree device is loaded in this process already; PyTorch has room for one");
  }
}

}  // namespace sinter::torch_device

// What src/autoload/entrances.cpp forwards to.
extern "C" __attribute__((visibility("default"))) void* sinter_device_hooks() {
  return static_cast<at::PrivateUse1HooksInterface*>(&sinter::torch_device::device_hooks());
}
