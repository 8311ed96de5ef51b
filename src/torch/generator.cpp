// The device's random generator: a seed and an offset into one Philox sequence.
#include <ATen/Utils.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <mutex>

#include "torch/device_state.h"
#include "torch/random.h"

namespace sinter::torch_device {
namespace {

constexpr size_t kStateBytes = 16;  // seed, then offset, as CUDA lays them out

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator() : GeneratorImpl(kDevice, c10::DispatchKeySet(kKey)) {}

  void set_current_seed(uint64_t seed) override {
    const std::lock_guard lock(mutex_);
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override {
    const std::lock_guard lock(mutex_);
    offset_ = offset;
  }
  uint64_t get_offset() const override {
    const std::lock_guard lock(mutex_);
    return offset_;
  }
  uint64_t current_seed() const override {
    const std::lock_guard lock(mutex_);
    return seed_;
  }
  uint64_t seed() override {
    const uint64_t random = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
    set_current_seed(random);
    return random;
  }
  RandomRange reserve(uint64_t draws) {
    const std::lock_guard lock(mutex_);
    const RandomRange range{seed_, offset_};
    offset_ += draws;
    return range;
  }
  static c10::DeviceType device_type() { return kDeviceType; }

  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.device().is_cpu() && state.dtype() == c10::scalarTypeToTypeMeta(c10::ScalarType::Byte),
                "RNG state must be a torch.ByteTensor on the CPU");
    TORCH_CHECK(state.numel() == kStateBytes, "RNG state of a sinter generator has ", kStateBytes,
                " bytes; got ", state.numel());
    const std::lock_guard lock(mutex_);
    const auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, c10::ScalarType::Byte);
    const std::lock_guard lock(mutex_);
    auto* bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* copy = new DeviceGenerator;
    const std::lock_guard lock(mutex_);
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  mutable std::mutex mutex_;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

}  // namespace

at::Generator new_generator() { return at::make_generator<DeviceGenerator>(); }

const at::Generator& default_generator() {
  static auto* generator = new at::Generator(new_generator());
  return *generator;
}

RandomRange reserve(const c10::GeneratorImpl* generator, uint64_t draws) {
  if (!generator) generator = default_generator().unsafeGetGeneratorImpl();
  TORCH_CHECK(generator->device().type() == kDeviceType, "Expected a 'sinter' device type for generator but found '",
              generator->device().type(), "'");
  return const_cast<DeviceGenerator*>(static_cast<const DeviceGenerator*>(generator))->reserve(draws);
}

}  // namespace sinter::torch_device
