// Views and everything else that only changes a tensor's metadata: nothing is recorded.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "torch/device_state.h"
#include "torch/memory.h"
#include "torch/recorder.h"
#include "torch/registration.h"

namespace sinter::torch_device {
namespace {

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }
at::Tensor view_as_complex(const at::Tensor& self) { return at::native::view_as_complex(self); }

std::vector<int64_t> strides_for(at::IntArrayRef sizes, at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::ChannelsLast:
      TORCH_CHECK(sizes.size() == 4, "required rank 4 tensor to use channels_last format");
      return c10::get_channels_last_strides_2d(sizes);
    case at::MemoryFormat::ChannelsLast3d:
      TORCH_CHECK(sizes.size() == 5, "required rank 5 tensor to use channels_last_3d format");
      return c10::get_channels_last_strides_3d(sizes);
    default: {
      std::vector<int64_t> strides(sizes.size());
      int64_t next = 1;
      for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = next;
        next *= std::max<int64_t>(sizes[i], 1);
      }
      return strides;
    }
  }
}

void check_sizes(at::IntArrayRef sizes) {
  for (int64_t size : sizes)
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  check_sizes(size);
  if (self.sizes() != size || memory_format.has_value()) {
    const auto format = memory_format.value_or(at::MemoryFormat::Contiguous);
    TORCH_CHECK(format != at::MemoryFormat::Preserve, "Unsupported memory format", format);
    if (self.sizes() != size || !self.is_contiguous(format))
      resize_tensor(self, size, strides_for(size, format));
  }
  return self;
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset,
                                      at::IntArrayRef size, at::IntArrayRef stride) {
  TORCH_CHECK(source.device().type() == kDeviceType, "Attempted to set the storage of a tensor on device \"",
              self.device(), "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(size.size() == stride.size() || stride.empty(), "unequal size length (", size.size(),
              ") and stride length (", stride.size(), ")");
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  buffer_of(source.unsafeGetStorageImpl());
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr) {  // none given: eager keeps those of a tensor that has this size already
    if (self.sizes() == size) return self;
    resize_tensor(self, size, strides_for(size, at::MemoryFormat::Contiguous));
  } else {
    resize_tensor(self, size, stride);
  }
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto element = static_cast<int64_t>(self.dtype().itemsize());
  TORCH_CHECK(source.nbytes() % element == 0, "the storage's size is not a multiple of the element size");
  const int64_t count = static_cast<int64_t>(source.nbytes()) / element;
  return set_source_storage_offset(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_source_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                                   source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_source_storage_offset(self, make_storage(0), 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& tensor) {
  return self.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == tensor.storage_offset() && self.sizes() == tensor.sizes() &&
         self.strides() == tensor.strides();
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  TORCH_CHECK(!device || device->index() <= 0, "sinter: invalid device ", *device,
              "; this process has one device, sinter:0");
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "sinter tensors are strided; got layout ",
              *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  check_sizes(size);
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  for (int64_t s : stride) TORCH_CHECK(s >= 0, "Negative strides are not supported: ", stride);
  const at::ScalarType type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  int64_t last = 0;
  bool none = false;
  for (size_t i = 0; i < size.size(); ++i) {
    none = none || size[i] == 0;
    last += (size[i] - 1) * stride[i];
  }
  const size_t bytes = none ? 0 : static_cast<size_t>(last + 1) * c10::elementSize(type);
  at::Tensor tensor = make_tensor(make_storage(bytes), type, size, stride);
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) [[unlikely]] {
    if (c10::isFloatingType(type) || c10::isComplexType(type))
      tensor.fill_(std::numeric_limits<double>::quiet_NaN());
    else if (type != at::kBool)
      tensor.fill_(std::numeric_limits<int64_t>::max());
    else
      tensor.fill_(true);
  }
  return tensor;
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  check_sizes(size);
  const std::vector<int64_t> strides =
      strides_for(size, memory_format.value_or(at::MemoryFormat::Contiguous));
  return empty_strided(size, strides, dtype, layout, device, pin_memory);
}

// A tensor that is zero without having memory; PyTorch's ZeroTensor kernels make it real where it is read.
at::Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                 std::optional<at::Device>, std::optional<bool>) {
  check_sizes(size);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      make_storage(0), c10::DispatchKeySet({kKey, c10::DispatchKey::ZeroTensor}),
      c10::scalarTypeToTypeMeta(dtype.value_or(c10::get_default_dtype_as_scalartype())));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return tensor;
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  // A parameter may move between the CPU and the device and stay the same object.
  const auto plain = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided &&
           (tensor.device().is_cpu() || tensor.device().type() == kDeviceType);
  };
  return plain(self) && plain(from);
}

void record_stream(at::Tensor&, at::Stream) {}  // one stream: nothing can overtake

}  // namespace

void register_views(torch::Library& library) {
  // nn.TransformerEncoder asks before it turns a padded batch into a nested tensor, which the device does not have.
  library.impl("_nested_tensor_from_mask_left_aligned", [](const at::Tensor&, const at::Tensor&) { return false; });
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  library.impl("as_strided", TORCH_FN(as_strided));
  library.impl("view", TORCH_FN(view));
  library.impl("_reshape_alias", TORCH_FN(reshape_alias));
  library.impl("unfold", TORCH_FN(unfold));
  library.impl("view_as_real", TORCH_FN(view_as_real));
  library.impl("view_as_complex", TORCH_FN(view_as_complex));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("set_", TORCH_FN(set_nothing));
  library.impl("set_.source_Tensor", TORCH_FN(set_source_tensor));
  library.impl("set_.source_Storage", TORCH_FN(set_source_storage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_source_storage_offset));
  library.impl("is_set_to", TORCH_FN(is_set_to));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  library.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace sinter::torch_device
