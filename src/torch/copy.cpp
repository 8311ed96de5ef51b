#include "torch/copy.h"

#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include <cstring>

#include "runtime/metrics.h"
#include "torch/device_state.h"
#include "torch/kernel_scope.h"
#include "torch/memory.h"
#include "torch/recorder.h"
#include "torch/registration.h"

namespace sinter::torch_device {
namespace {

// Same type and layout: the bytes themselves, so that a boolean that is neither 0 nor 1 arrives as it is.
bool copy_bytes(const at::Tensor& destination, const at::Tensor& source) {
  if (destination.scalar_type() != source.scalar_type() || destination.is_conj() != source.is_conj() ||
      destination.is_neg() != source.is_neg() || destination.sizes() != source.sizes() ||
      destination.strides() != source.strides() || !source.is_non_overlapping_and_dense())
    return false;
  constexpr size_t kWorthThreads = 1 << 18;
  if (source.nbytes() > kWorthThreads && source.scalar_type() != at::kBool) return false;
  if (source.numel()) std::memcpy(destination.mutable_data_ptr(), source.const_data_ptr(), source.nbytes());
  return true;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  if (!is_device_tensor(destination)) {
    metrics().add(Counter::kBytesToHost, destination.nbytes());
    const at::Tensor view = synced_cpu_view(self, "copy to the host");
    KernelScope scope;
    ThreadPolicy threads;
    if (!copy_bytes(destination, view)) destination.copy_(view, non_blocking);
    return destination;
  }
  if (is_device_tensor(self)) {
    record_copy(destination, self, non_blocking);
    return destination;
  }
  TORCH_CHECK(self.device().is_cpu() || self.device().is_meta(), "sinter: cannot copy from ", self.device());
  metrics().add(Counter::kBytesToDevice, self.nbytes());
  runtime::Buffer& buffer = buffer_of(destination);
  if (!stream().uses(buffer)) {
    // Nothing pending can see the difference, so the values go in at once.
    {
      KernelScope scope;
      ThreadPolicy threads;
      const at::Tensor view = cpu_view(buffer, meta_of(destination), destination.storage_offset());
      if (!copy_bytes(view, self)) view.copy_(self);
    }
    buffer.contents = true;
    buffer.failure = nullptr;
    return destination;
  }
  record_copy(destination, self.dim() == 0 ? self : upload(self), non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  if (destination.sizes() != self.sizes()) destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const at::Tensor view = synced_cpu_view(self, "item()");
  KernelScope scope;
  return at::_local_scalar_dense(view);
}

}  // namespace

at::Tensor upload(const at::Tensor& cpu) {
  metrics().add(Counter::kBytesToDevice, cpu.nbytes());
  at::Tensor copy;
  {
    KernelScope scope;
    ThreadPolicy threads;
    copy = cpu.clone();
  }
  c10::Storage storage = make_storage(copy.storage().nbytes());
  runtime::Buffer& buffer = buffer_of(storage.unsafeGetStorageImpl());
  const graph::TensorMeta meta = meta_of(copy);
  const int64_t offset = copy.storage_offset();
  adopt(buffer, copy);
  buffer.contents = true;
  at::Tensor device = make_tensor(storage, copy.scalar_type(), meta.sizes, meta.strides, offset);
  if (meta.conj) device._set_conj(true);
  if (meta.neg) device._set_neg(true);
  return device;
}

void register_copies(torch::Library& library) {
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// Copies read conj and neg bits themselves; resolving them first would call a copy again, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace sinter::torch_device
