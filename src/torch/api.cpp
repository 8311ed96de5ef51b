// The C++ interface of include/sinter/sinter.h, over the operators that Python uses too (TORCH_LIBRARY(sinter)):
// one way into the device, whatever the language.
#include <sinter/sinter.h>

#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/nn/module.h>

namespace sinter {
namespace {

// Looked up at each call: none of these is on the way of an op.
template <class Signature, class... Args>
auto call(const char* name, Args&&... args) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(std::forward<Args>(args)...);
}

c10::CachingDeviceAllocator::DeviceStats device_stats() {
  init();
  return c10::getDeviceAllocator(c10::kPrivateUse1)->getDeviceStats(0);
}

void move(at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  // set_data puts the memory under the same tensor object and drops a gradient accumulator of the old device.
  tensor.set_data(tensor.detach().to(device));
}

}  // namespace

const char* version() { return SINTER_VERSION; }

void init() { at::globalContext().lazyInitDevice(c10::kPrivateUse1); }

bool is_available() noexcept {
  try {
    init();
    return true;
  } catch (...) {
    return false;
  }
}

c10::Device device() { return {c10::kPrivateUse1, 0}; }

void to(torch::nn::Module& module, c10::Device device) {
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    // The gradient first: where it lies on another device than its parameter, autograd refuses it.
    at::Tensor grad = parameter.grad();
    if (grad.defined()) grad = grad.detach().to(device);
    parameter.mutable_grad().reset();
    move(parameter, device);
    if (grad.defined()) parameter.mutable_grad() = std::move(grad);
  }
  for (at::Tensor& buffer : module.buffers()) move(buffer, device);
}

void end_graph() { call<void(std::string_view)>("sinter::_end_graph", "sinter::end_graph"); }
void sync() { call<void(std::string_view)>("sinter::_sync", "sinter::sync"); }

void manual_seed(uint64_t seed) {
  init();
  at::Generator generator = at::globalContext().defaultGenerator(device());
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

MemoryStats memory_stats() {
  const auto stats = device_stats();
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto& allocated = stats.allocated_bytes[kAll];
  const auto& reserved = stats.reserved_bytes[kAll];
  return {allocated.current, allocated.peak, reserved.current, reserved.peak};
}

void reset_peak_memory_stats() {
  init();
  c10::getDeviceAllocator(c10::kPrivateUse1)->resetPeakStats(0);
}

void empty_cache() {
  init();
  c10::getDeviceAllocator(c10::kPrivateUse1)->emptyCache();
}

std::string metrics() { return call<std::string()>("sinter::_metrics"); }
void reset_metrics() { call<void()>("sinter::_metrics_reset"); }
int64_t compiles() { return call<int64_t()>("sinter::_compiles"); }

}  // namespace sinter
