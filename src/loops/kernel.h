// A kernel: what is computed for each point of a loop nest, without sizes.
//
// Contract. The nest has `rank` loops. Each access names memory of one dtype, met at every point through strides of its
// own; strides and sizes arrive when the kernel runs, only the class of the innermost stride is part of the kernel.
// Instructions are in SSA order: an instruction refers to earlier ones by index. All loads of a point come before its
// first store, so that a kernel may store where it loads. Numbers are of the types of `Type`; memory dtypes are
// converted by loads and stores. Rounding to a narrower dtype between instructions is an instruction (kRound).
// Two kernels with equal text are the same kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/tensor_meta.h"

namespace sinter::loops {

enum class Type : uint8_t { kBool, kInt, kFloat, kDouble };  // i1, i64, f32, f64

enum class Code : uint8_t {
  kLoad,      // access
  kScalar,    // scalar `index`, in `type`
  kConstant,  // number
  kConvert,   // a, to `type`
  kRound,     // a, to the values of `dtype` (bf16, f16, narrow integers)
  kAdd, kSub, kMul, kDiv, kNeg, kAbs, kMin, kMax,
  kFma,       // a * b + c, rounded once
  kSqrt, kExp, kTanh, kErf,
  kLess, kLessEqual, kEqual, kNotEqual,  // kBool
  kAnd, kOr, kXor, kNot,                 // of kBool
  kSelect,    // a ? b : c
  kStore,     // a, into access `index`
};

struct Instruction {
  Code code;
  Type type = Type::kFloat;
  graph::DType dtype = graph::DType::kFloat32;  // kRound
  uint32_t index = 0;                           // kLoad, kStore: access; kScalar: scalar
  uint32_t a = 0, b = 0, c = 0;
  double number = 0;                            // kConstant
  bool operator==(const Instruction&) const = default;
};

enum class Stride : uint8_t { kZero, kOne, kAny };  // of the innermost loop, in elements

struct MemoryAccess {
  graph::DType dtype;
  Stride inner = Stride::kOne;
  bool store = false;
};

struct Kernel {
  uint32_t rank = 1;
  std::vector<MemoryAccess> accesses;
  std::vector<Type> scalars;  // each arrives as 8 bytes: int64 for kBool and kInt, double otherwise
  std::vector<Instruction> body;
};

std::string to_text(const Kernel& kernel);

// The words that a kernel reads, in order: a pointer for each access (to the element at the origin of the nest), then
// for each access `rank` strides in elements (outermost first), then `rank` sizes, then the scalars.
inline size_t argument_words(const Kernel& kernel) {
  return kernel.accesses.size() * (1 + kernel.rank) + kernel.rank + kernel.scalars.size();
}

// Computes [begin, end) of the outer loops' points in row-major order; of the elements themselves when rank is 1.
using Function = void (*)(const int64_t* arguments, int64_t begin, int64_t end);

}  // namespace sinter::loops
