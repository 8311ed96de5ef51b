// The C++ interface of include/sinter/sinter.h.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <sinter/sinter.h>
#include <torch/nn/module.h>

#include <mutex>
#include <utility>

#include "runtime/caching_allocator.h"
#include "runtime/metrics.h"
#include "torch/device_state.h"

namespace sinter {
namespace {

void move(at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  // set_data puts other memory under the same tensor object and drops a gradient accumulator of the old device.
  tensor.set_data(tensor.detach().to(device));
}

}  // namespace

const char* version() { return SINTER_VERSION; }

void init() { at::globalContext().lazyInitDevice(torch_device::kDeviceType); }

bool is_available() noexcept {
  try {
    init();
    return true;
  } catch (...) {
    return false;
  }
}

c10::Device device() { return torch_device::kDevice; }

void to(torch::nn::Module& module, c10::Device device) {
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    // The gradient is taken off while the parameter moves: autograd refuses one that lies elsewhere.
    at::Tensor grad = parameter.grad();
    if (grad.defined()) {
      grad = grad.detach().to(device);
      parameter.mutable_grad().reset();
    }
    move(parameter, device);
    if (grad.defined()) parameter.mutable_grad() = std::move(grad);
  }
  for (at::Tensor& buffer : module.buffers()) move(buffer, device);
}

void end_graph() { torch_device::check(torch_device::stream().end_graph("sinter::end_graph")); }
void sync() { torch_device::check(torch_device::stream().synchronize("sinter::sync")); }

void manual_seed(uint64_t seed) {
  init();
  at::Generator generator = at::globalContext().defaultGenerator(device());
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

MemoryStats memory_stats() {
  const CachingAllocator::Stats stats = caching_allocator().stats();
  return {static_cast<int64_t>(stats.allocated), static_cast<int64_t>(stats.peak_allocated),
          static_cast<int64_t>(stats.reserved), static_cast<int64_t>(stats.peak_reserved)};
}

void reset_peak_memory_stats() { caching_allocator().reset_peaks(); }
void empty_cache() { caching_allocator().empty_cache(); }

std::string metrics_json() { return metrics().to_json(); }
void reset_metrics() { metrics().reset(); }
int64_t compiles() { return static_cast<int64_t>(metrics().get(Counter::kGraphsPlanned)); }

}  // namespace sinter
