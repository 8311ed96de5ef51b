// Shape rules of our own, for ops without a structured meta function. One row an op.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include <string_view>

#include "torch/memory.h"
#include "torch/meta_table.h"
#include "torch/shape_inference.h"

namespace sinter::torch_device {
namespace {

using graph::TensorMeta;
using Results = std::vector<TensorMeta>;

const at::Tensor& tensor_at(const RuleInput& input, size_t i) { return input.arguments[i].toTensor(); }

bool plain(const at::Tensor& tensor) { return tensor.defined() && !tensor.is_conj() && !tensor.is_neg(); }

bool writable(const at::Tensor& tensor) {
  return plain(tensor) && at::has_internal_overlap(tensor) == at::MemOverlap::No;
}

TensorMeta contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes) {
  TensorMeta meta;
  meta.dtype = static_cast<graph::DType>(dtype);
  meta.element_size = static_cast<uint8_t>(c10::elementSize(dtype));
  meta.sizes.assign(sizes.begin(), sizes.end());
  meta.strides.resize(sizes.size());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    meta.strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return meta;
}

TensorMeta nothing() {
  TensorMeta meta;
  meta.defined = false;
  return meta;
}

// ---------------------------------------------------------------- ops that write their arguments

// zero_, fill_ with a number that the type can hold.
bool overwrite(const RuleInput& input, Results&) {
  const at::Tensor& self = tensor_at(input, 0);
  if (!writable(self)) return false;
  return input.arguments.size() < 2 || !input.arguments[1].isComplexDouble() || self.is_complex();
}

bool copy(const RuleInput& input, Results&) {
  const at::Tensor& self = tensor_at(input, 0);
  const at::Tensor& source = tensor_at(input, 1);
  if (input.digest.shares_memory || !plain(self) || !plain(source)) return false;
  if (at::has_internal_overlap(self) != at::MemOverlap::No) return false;
  if (source.is_complex() && !self.is_complex()) return false;  // warns
  if (source.dim() > self.dim()) return false;
  for (int64_t i = 1; i <= source.dim(); ++i)
    if (source.size(-i) != self.size(-i) && source.size(-i) != 1) return false;
  return true;
}

// Lists of tensors of one floating type in which tensor i of every list has the size of tensor i of the first, or none
// at all (step counts): foreach and fused optimizer ops.
bool matching_lists(const RuleInput& input, bool contiguous_only) {
  if (input.digest.shares_memory) return false;
  c10::ArrayRef<c10::IValue> first;
  for (size_t a = 0; a < input.arguments.size(); ++a) {
    const c10::IValue& argument = input.arguments[a];
    if (argument.isTensor()) {
      const at::Tensor& tensor = argument.toTensor();
      if (tensor.defined() && tensor.dim() != 0) return false;
      continue;
    }
    if (!argument.isTensorList()) continue;
    const auto list = argument.toListRef();
    if (list.empty() && first.empty() && a == 0) return false;
    if (list.empty()) continue;  // max_exp_avg_sqs without amsgrad
    if (a == 0) first = list;
    if (list.size() != first.size()) return false;
    for (size_t i = 0; i < list.size(); ++i) {
      const at::Tensor& tensor = list[i].toTensor();
      const at::Tensor& model = first[i].toTensor();
      if (!plain(tensor) || !tensor.is_floating_point() || !is_device_tensor(tensor)) return false;
      const bool scalar = tensor.dim() == 0 && a != 0;
      if (!scalar && (tensor.sizes() != model.sizes() || tensor.scalar_type() != model.scalar_type()))
        return false;
      if (contiguous_only && !tensor.is_contiguous()) return false;
      if (input.info.arguments[a].writes && !writable(tensor)) return false;
    }
  }
  return !first.empty();
}

// Scalars of a list of numbers: as many as tensors.
bool matching_numbers(const RuleInput& input) {
  const size_t count = input.arguments[0].toListRef().size();
  for (const c10::IValue& argument : input.arguments.slice(1)) {
    if (argument.isComplexDouble()) return false;
    if (!argument.isList() || argument.isTensorList()) continue;
    if (argument.toListRef().size() != count) return false;
    for (const c10::IValue& number : argument.toListRef())
      if (number.isComplexDouble()) return false;
  }
  return true;
}

bool lists_in_place(const RuleInput& input, Results&) {
  return input.arguments[0].isTensorList() && matching_lists(input, false) && matching_numbers(input);
}

bool lists_pointwise(const RuleInput& input, Results& results) {
  if (!input.arguments[0].isTensorList() || !matching_lists(input, true) || !matching_numbers(input)) return false;
  for (const c10::IValue& tensor : input.arguments[0].toListRef()) results.push_back(meta_of(tensor.toTensor()));
  return true;
}

// ---------------------------------------------------------------- functional ops

// The result has the argument's type and, being dense, its strides.
bool like_first(const RuleInput& input, Results& results) {
  const at::Tensor& self = tensor_at(input, 0);
  if (!plain(self) || !self.is_non_overlapping_and_dense() || self.is_complex()) return false;
  results.push_back(meta_of(self));
  return true;
}

bool layer_norm(const RuleInput& input, Results& results) {
  const at::Tensor& x = tensor_at(input, 0);
  if (!plain(x) || !x.is_floating_point()) return false;
  const auto normalized = input.arguments[1].toIntVector();
  for (size_t a : {2, 3})
    if (input.arguments[a].isTensor() && input.arguments[a].toTensor().defined() &&
        (input.arguments[a].toTensor().scalar_type() != x.scalar_type() ||
         input.arguments[a].toTensor().sizes() != c10::IntArrayRef(normalized)))
      return false;  // mixed types keep statistics in another one
  const auto leading = x.dim() - static_cast<int64_t>(normalized.size());
  if (leading < 0 || normalized.empty() || x.numel() == 0 || x.sizes().slice(leading) != c10::IntArrayRef(normalized)) return false;
  std::vector<int64_t> statistics(x.sizes().begin(), x.sizes().begin() + leading);
  statistics.resize(x.dim(), 1);
  results.push_back(contiguous(x.scalar_type(), x.sizes()));
  results.push_back(contiguous(x.scalar_type(), statistics));
  results.push_back(contiguous(x.scalar_type(), statistics));
  return true;
}

bool layer_norm_backward(const RuleInput& input, Results& results) {
  const at::Tensor& gradient = tensor_at(input, 0);
  const at::Tensor& x = tensor_at(input, 1);
  if (!plain(gradient) || !plain(x) || gradient.scalar_type() != x.scalar_type() || x.numel() == 0) return false;
  const auto mask = input.arguments[7].toBoolList();
  results.push_back(mask[0] ? contiguous(x.scalar_type(), x.sizes()) : nothing());
  for (size_t i : {1, 2}) {
    const c10::IValue& weight = input.arguments[4 + i];
    const bool given = weight.isTensor() && weight.toTensor().defined();
    if (mask[i] && !given) return false;
    if (given && weight.toTensor().scalar_type() != x.scalar_type()) return false;
    results.push_back(mask[i] ? contiguous(weight.toTensor().scalar_type(), weight.toTensor().sizes()) : nothing());
  }
  return true;
}

bool embedding(const RuleInput& input, Results& results) {
  const at::Tensor& weight = tensor_at(input, 0);
  const at::Tensor& indices = tensor_at(input, 1);
  if (!plain(weight) || weight.dim() != 2 || !indices.defined() ||
      (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt))
    return false;
  std::vector<int64_t> sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(weight.size(1));
  results.push_back(contiguous(weight.scalar_type(), sizes));
  return true;
}

bool embedding_dense_backward(const RuleInput& input, Results& results) {
  const at::Tensor& gradient = tensor_at(input, 0);
  const at::Tensor& indices = tensor_at(input, 1);
  if (!plain(gradient) || gradient.dim() == 0 || !input.arguments[2].isInt() || gradient.numel() == 0) return false;
  if (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt) return false;
  results.push_back(contiguous(gradient.scalar_type(), {input.arguments[2].toInt(), gradient.size(-1)}));
  return true;
}

// slice_backward, select_backward: zeros of the sizes given, with the gradient in its place.
bool zeros_of_sizes(const RuleInput& input, Results& results) {
  const at::Tensor& gradient = tensor_at(input, 0);
  if (!plain(gradient) || !input.arguments[1].isIntList()) return false;
  const auto sizes = input.arguments[1].toIntVector();
  results.push_back(contiguous(gradient.scalar_type(), sizes));
  return true;
}

// The output is laid out like the query, without its holes.
bool flash_attention(const RuleInput& input, Results& results) {
  const at::Tensor& query = tensor_at(input, 0);
  const at::Tensor& value = tensor_at(input, 2);
  if (!plain(query) || query.dim() != 4 || !plain(value) || value.dim() != 4 || value.size(3) != query.size(3) || query.numel() == 0 || value.numel() == 0)
    return false;
  const int64_t batch = query.size(0), heads = query.size(1), tokens = query.size(2);
  if (heads == 1 || tokens == 1 || batch == 1) return false;  // strides of single dimensions follow other rules
  TensorMeta output = meta_of(query);
  if (!query.is_non_overlapping_and_dense()) output.strides = at::infer_dense_strides(query.sizes(), query.strides());
  const c10::ScalarType sums = c10::isReducedFloatingType(query.scalar_type()) ? at::kFloat : query.scalar_type();
  TensorMeta logsumexp = contiguous(sums, {batch, tokens, heads});
  std::swap(logsumexp.sizes[1], logsumexp.sizes[2]);
  std::swap(logsumexp.strides[1], logsumexp.strides[2]);
  results.push_back(output);
  results.push_back(logsumexp);
  return true;
}

// A reduction of everything to one number of the same type: no trial on the whole tensor. Floats only, since sums of
// integers are wider.
bool reduce_all(const RuleInput& input, Results& results) {
  const at::Tensor& self = tensor_at(input, 0);
  if (!plain(self) || !self.is_floating_point() || self.numel() == 0) return false;
  if (input.arguments.size() > 1 && !input.arguments[1].isNone()) return false;  // another dtype
  results.push_back(contiguous(self.scalar_type(), {}));
  return true;
}

// roll, flip: packed input, same layout out. Dimensions out of range are the trial's business, and so are those of one
// element, whose strides may be anything and are kept.
bool rearrange(const RuleInput& input, Results& results) {
  const at::Tensor& self = tensor_at(input, 0);
  if (!plain(self) || !self.is_contiguous() || self.numel() == 0) return false;
  for (int64_t size : self.sizes())
    if (size == 1) return false;
  const std::vector<int64_t> dims = input.arguments.back().toIntVector();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -self.dim() || dims[i] >= self.dim()) return false;
    for (size_t k = 0; k < i; ++k)
      if ((dims[i] - dims[k]) % self.dim() == 0) return false;
  }
  if (input.arguments.size() == 3 && input.arguments[1].toIntVector().size() != std::max<size_t>(dims.size(), 1)) return false;
  results.push_back(contiguous(self.scalar_type(), self.sizes()));
  return true;
}

// ---------------------------------------------------------------- convolutions

// Contiguous in the plain order and in no other: channels-last results follow rules of their own.
bool plain_images(const at::Tensor& tensor) {
  return plain(tensor) && tensor.is_contiguous() && tensor.numel() != 0 &&
         tensor.suggest_memory_format() == at::MemoryFormat::Contiguous &&
         !tensor.is_contiguous(tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d);
}

// The sizes of a convolution that is not transposed, where everything about it is regular.
bool convolution_sizes(const at::Tensor& image, const at::Tensor& weight, c10::ArrayRef<c10::IValue> settings,
                       std::vector<int64_t>& sizes) {
  if (!image.defined() || !weight.defined() || image.dim() < 4 || image.dim() > 5 || weight.dim() != image.dim()) return false;
  if (!plain_images(image) || !plain(weight) || !weight.is_contiguous() || weight.numel() == 0) return false;
  if (weight.suggest_memory_format() != at::MemoryFormat::Contiguous) return false;
  if (image.scalar_type() != at::kFloat || weight.scalar_type() != at::kFloat) return false;
  const std::vector<int64_t> stride = settings[0].toIntVector(), padding = settings[1].toIntVector(),
                             dilation = settings[2].toIntVector();
  const int64_t groups = settings[5].toInt(), spatial = image.dim() - 2;
  if (settings[3].toBool() || groups < 1 || weight.size(1) * groups != image.size(1) || weight.size(0) % groups != 0)
    return false;
  const auto at = [&](const std::vector<int64_t>& list, int64_t d) {
    return list.size() == 1 ? list[0] : list[static_cast<size_t>(d)];
  };
  for (const auto* list : {&stride, &padding, &dilation})
    if (list->size() != 1 && list->size() != static_cast<size_t>(spatial)) return false;
  sizes = {image.size(0), weight.size(0)};
  for (int64_t d = 0; d < spatial; ++d) {
    if (at(stride, d) < 1 || at(padding, d) < 0 || at(dilation, d) < 1) return false;
    const int64_t reach = at(dilation, d) * (weight.size(d + 2) - 1) + 1;
    const int64_t room = image.size(d + 2) + 2 * at(padding, d) - reach;
    if (room < 0) return false;
    sizes.push_back(room / at(stride, d) + 1);
  }
  return true;
}

bool convolution(const RuleInput& input, Results& results) {
  std::vector<int64_t> sizes;
  if (!convolution_sizes(tensor_at(input, 0), tensor_at(input, 1), input.arguments.slice(3), sizes)) return false;
  const c10::IValue& bias = input.arguments[2];
  if (bias.isTensor() && bias.toTensor().defined() &&
      (bias.toTensor().dim() != 1 || bias.toTensor().size(0) != sizes[1] || bias.toTensor().scalar_type() != at::kFloat))
    return false;
  results.push_back(contiguous(at::kFloat, sizes));
  return true;
}

bool convolution_backward(const RuleInput& input, Results& results) {
  const at::Tensor& gradient = tensor_at(input, 0);
  const at::Tensor& image = tensor_at(input, 1);
  const at::Tensor& weight = tensor_at(input, 2);
  std::vector<int64_t> sizes;
  if (!convolution_sizes(image, weight, input.arguments.slice(4), sizes)) return false;
  if (!plain_images(gradient) || gradient.sizes() != sizes || gradient.scalar_type() != at::kFloat) return false;
  const std::vector<bool> mask = input.arguments[10].toBoolList().vec();
  results.push_back(mask[0] ? contiguous(at::kFloat, image.sizes()) : nothing());
  results.push_back(mask[1] ? contiguous(at::kFloat, weight.sizes()) : nothing());
  results.push_back(mask[2] ? contiguous(at::kFloat, {weight.size(0)}) : nothing());
  return true;
}

struct Row {
  std::string_view op;  // name without overload, or with
  ShapeRule rule;
};

constexpr Row kRules[] = {
    {"aten::zero_", overwrite},
    {"aten::fill_.Scalar", overwrite},
    {"aten::copy_", copy},
    {"aten::relu", like_first},
    {"aten::abs", like_first},
    {"aten::native_layer_norm", layer_norm},
    {"aten::native_layer_norm_backward", layer_norm_backward},
    {"aten::embedding", embedding},
    {"aten::embedding_dense_backward", embedding_dense_backward},
    {"aten::slice_backward", zeros_of_sizes},
    {"aten::select_backward", zeros_of_sizes},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention},
    // (the overloads with dimensions have structured meta functions, which come first)
    {"aten::sum", reduce_all},
    {"aten::mean", reduce_all},
    {"aten::max", reduce_all},
    {"aten::min", reduce_all},
    {"aten::prod", reduce_all},
    {"aten::flip", rearrange},
    {"aten::roll", rearrange},
    {"aten::convolution", convolution},
    {"aten::convolution_backward", convolution_backward},
    {"aten::_fused_adam_", lists_in_place},
    {"aten::_fused_adamw_", lists_in_place},
    {"aten::_fused_sgd_", lists_in_place},
    {"aten::_foreach_add", lists_pointwise},
    {"aten::_foreach_sub", lists_pointwise},
    {"aten::_foreach_mul", lists_pointwise},
    {"aten::_foreach_div", lists_pointwise},
    {"aten::_foreach_sqrt", lists_pointwise},
    {"aten::_foreach_neg", lists_pointwise},
    {"aten::_foreach_reciprocal", lists_pointwise},
    {"aten::_foreach_addcmul", lists_pointwise},
    {"aten::_foreach_addcdiv", lists_pointwise},
    {"aten::_foreach_lerp", lists_pointwise},
    {"aten::_foreach_maximum", lists_pointwise},
    {"aten::_foreach_pow.List", lists_pointwise},
};

}  // namespace

ShapeRule shape_rule(const OpInfo& info) {
  const std::string& name = info.handle.operator_name().name;
  if (info.foreach_in_place && info.returns.empty()) return lists_in_place;
  if (info.writes_any && name.back() != '_') return nullptr;  // out= forms are tried
  for (const Row& row : kRules)
    if (row.op == name || row.op == info.name) return row.rule;
  return nullptr;
}

const c10::KernelFunction* meta_function(const std::string& op) {
  static const auto* table = [] {
    auto* made = new MetaTable;
    add_meta_functions(*made);
    return made;
  }();
  return table->find(op);
}

}  // namespace sinter::torch_device
