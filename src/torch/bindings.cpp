// torch.ops.sinter: what the Python package and the C++ interface call. Structures travel as JSON text.
#include <ATen/core/Tensor.h>
#include <torch/library.h>
#include <torch/version.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "runtime/caching_allocator.h"
#include "runtime/metrics.h"
#include "support/flags.h"
#include "torch/device_state.h"
#include "torch/memory.h"
#include "torch/random.h"

namespace sinter::torch_device {
namespace {

void sync(const std::string& cause) { check(stream().synchronize(cause)); }

void end_graph(const std::string& cause) {
  if (cause == "optimizer step") metrics().add(Counter::kOptimizerSteps);
  check(stream().end_graph(cause));
}

void set_flag(const std::string& name, const std::string& value) {
  const Status status = flags::set(name, value);
  TORCH_CHECK_VALUE(status.ok(), status.ok() ? "" : status.message());
}

std::string memory_stats() {
  const CachingAllocator::Stats stats = caching_allocator().stats();
  const auto field = [](const char* name, uint64_t value) {
    return std::string("\"") + name + "\": " + std::to_string(value);
  };
  return "{" + field("allocated", stats.allocated) + ", " + field("reserved", stats.reserved) + ", " +
         field("peak_allocated", stats.peak_allocated) + ", " + field("peak_reserved", stats.peak_reserved) +
         ", " + field("limit", stats.limit) + ", " + field("alloc_count", stats.alloc_count) + ", " +
         field("cache_hits", stats.cache_hits) + "}";
}

// A CPU tensor over the same memory. From now on somebody outside knows the address.
at::Tensor host_view(const at::Tensor& tensor) {
  TORCH_CHECK(is_device_tensor(tensor), "sinter: expected a tensor on the device, got one on ", tensor.device());
  const at::Tensor view = synced_cpu_view(tensor, "exported memory");
  Buffer& buffer = buffer_of(tensor);
  buffer.exported = true;
  // A storage of its own keeps the buffer alive: Python may hold the buffer's CPU storage only in this thread.
  Ref<Buffer> held(&buffer);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(buffer.nbytes),
      c10::DataPtr(buffer.data(), held.detach(), [](void* p) { static_cast<Buffer*>(p)->release(); },
                   c10::Device(c10::kCPU)),
      nullptr, /*resizable=*/false);
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), view.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
  if (view.is_conj()) result._set_conj(true);
  if (view.is_neg()) result._set_neg(true);
  return result;
}

// Whether the graph that should have given this tensor its values failed.
bool has_failed(const at::Tensor& tensor) { return buffer_of(tensor).failure != nullptr; }

#if defined(__x86_64__)
// GCC 12 has no name for it: CPUID leaf 7, EDX bit 22.
bool amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & (1u << 22));
}
#endif

std::string info() {
  std::string features;
  const auto feature = [&](const char* name, bool present) {
    if (present) features += (features.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  };
#if defined(__x86_64__)
  feature("avx2", __builtin_cpu_supports("avx2"));
  feature("fma", __builtin_cpu_supports("fma"));
  feature("avx512f", __builtin_cpu_supports("avx512f"));
  feature("avx512bw", __builtin_cpu_supports("avx512bw"));
  feature("avx512vl", __builtin_cpu_supports("avx512vl"));
  feature("avx512_bf16", __builtin_cpu_supports("avx512bf16"));
  feature("avx512_vnni", __builtin_cpu_supports("avx512vnni"));
  feature("amx_bf16", amx_bf16());
#endif
  return std::string("{\"version\": \"") + SINTER_VERSION + "\", \"torch\": \"" + TORCH_VERSION +
         "\", \"engines\": [\"" + std::string(stream().engine().name()) + "\"], \"cpu_features\": [" + features + "]}";
}

}  // namespace

TORCH_LIBRARY(sinter, m) {
  m.def("_sync(str cause) -> ()", TORCH_FN(sync));
  m.def("_end_graph(str cause) -> ()", TORCH_FN(end_graph));
  m.def("_metrics() -> str", [] { return metrics().to_json(); });
  m.def("_metrics_reset() -> ()", [] { metrics().reset(); });
  m.def("_compiles() -> int", [] { return static_cast<int64_t>(metrics().get(Counter::kGraphsPlanned)); });
  m.def("_flags() -> str", [] { return flags::to_json(); });
  m.def("_set_flag(str name, str value) -> ()", TORCH_FN(set_flag));
  m.def("_memory_stats() -> str", TORCH_FN(memory_stats));
  m.def("_memory_reset_peak() -> ()", [] { caching_allocator().reset_peaks(); });
  m.def("_empty_cache() -> ()", [] { caching_allocator().empty_cache(); });
  m.def("_default_generator() -> Generator?", [] { return default_generator(); });
  m.def("_host_view(Tensor self) -> Tensor");
  m.def("_has_failed(Tensor self) -> bool");
  m.def("_open_graph_text() -> str", [] { return stream().open_graph_text(); });
  m.def("_last_graph_text() -> str", [] { return stream().last_graph_text(); });
  m.def("_info() -> str", TORCH_FN(info));
}

TORCH_LIBRARY_IMPL(sinter, PrivateUse1, m) {
  m.impl("_host_view", TORCH_FN(host_view));
  m.impl("_has_failed", TORCH_FN(has_failed));
}
TORCH_LIBRARY_IMPL(sinter, CPU, m) { m.impl("_host_view", TORCH_FN(host_view)); }

}  // namespace sinter::torch_device
