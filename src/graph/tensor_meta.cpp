#include "graph/tensor_meta.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace sinter::graph {
namespace {

constexpr std::array<std::pair<DType, const char*>, 13> kNames{{
    {DType::kUInt8, "u8"},
    {DType::kInt8, "i8"},
    {DType::kInt16, "i16"},
    {DType::kInt32, "i32"},
    {DType::kInt64, "i64"},
    {DType::kFloat16, "f16"},
    {DType::kFloat32, "f32"},
    {DType::kFloat64, "f64"},
    {DType::kComplex32, "c32"},
    {DType::kComplex64, "c64"},
    {DType::kComplex128, "c128"},
    {DType::kBool, "i1"},
    {DType::kBFloat16, "bf16"},
}};

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

void append_list(std::string& out, const std::vector<int64_t>& list, char open, char close) {
  out += open;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) out += ',';
    out += std::to_string(list[i]);
  }
  out += close;
}

}  // namespace

std::string dtype_name(DType dtype) {
  for (const auto& [value, name] : kNames)
    if (value == dtype) return name;
  return "dt" + std::to_string(static_cast<int>(dtype));
}

bool parse_dtype(const std::string& name, DType* dtype) {
  for (const auto& [value, known] : kNames)
    if (name == known) return *dtype = value, true;
  if (name.rfind("dt", 0) == 0 && name.size() > 2 &&
      std::all_of(name.begin() + 2, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return *dtype = static_cast<DType>(std::stoi(name.substr(2))), true;
  return false;
}

int64_t TensorMeta::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

size_t TensorMeta::extent_bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return static_cast<size_t>(last + 1) * element_size;
}

bool TensorMeta::dense() const {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1) dims.emplace_back(strides[i], sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t next = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != next) return false;
    next *= size;
  }
  return true;
}

std::string to_text(const TensorMeta& meta) {
  if (!meta.defined) return "none";
  std::string out = dtype_name(meta.dtype);
  append_list(out, meta.sizes, '[', ']');
  if (meta.strides != contiguous_strides(meta.sizes)) append_list(out, meta.strides, '(', ')');
  if (meta.conj) out += "*";
  if (meta.neg) out += "-";
  return out;
}

}  // namespace sinter::graph
