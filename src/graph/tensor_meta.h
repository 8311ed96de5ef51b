// What is known of a tensor without its contents: element type, sizes, strides (in elements).
//
// Owned by calls and graphs; immutable once built. No memory, no device, no torch.
// DType numbers equal c10::ScalarType's, which src/torch asserts, so that conversion is a cast.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sinter::graph {

enum class DType : int8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplex32 = 8,
  kComplex64 = 9,
  kComplex128 = 10,
  kBool = 11,
  kBFloat16 = 15,
};

// Bytes of one element.
constexpr unsigned size_of(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
    case DType::kComplex32:
      return 4;
    case DType::kComplex128:
      return 16;
    default:
      return 8;
  }
}

// The short name used in graph text ("f32", "i64", …); "dtN" for a type outside the enumeration.
std::string dtype_name(DType dtype);
// The inverse of dtype_name; false when the name is unknown.
bool parse_dtype(const std::string& name, DType* dtype);

struct TensorMeta {
  bool defined = true;  // an op may return no tensor in a place (a masked gradient)
  bool conj = false;    // PyTorch's lazy conjugation and negation bits
  bool neg = false;
  DType dtype = DType::kFloat32;
  uint8_t element_size = 4;  // bytes
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  int64_t numel() const;
  // Bytes from the first to past the last element the strides can reach; 0 for an empty tensor.
  size_t extent_bytes() const;
  // Elements are packed without holes or overlap, in any order of dimensions.
  bool dense() const;

  bool operator==(const TensorMeta&) const = default;
};

// "f32[128,256]"; strides are appended as "(1,128)" when they are not the contiguous ones.
std::string to_text(const TensorMeta& meta);

}  // namespace sinter::graph
