// The elementwise ops that the compiler knows: a row makes one.
//
// Formulas follow PyTorch's CPU kernels in the order of operations and in where they fuse a multiplication with an
// addition, so that results agree to the bit wherever the functions called do. In-place and out= overloads of a row are
// derived: "aten::add_.Tensor" computes what "aten::add.Tensor" does.
#include "ops/expression.h"

namespace sinter::ops {

const std::vector<Macro>& macro_table() {
  static const std::vector<Macro> rows = {
      {"sigmoid", "x", "1 / (1 + exp(-x))"},
      {"lerp", "a, b, w", "abs(w) < 0.5 ? fma(w, b - a, a) : b - (b - a) * (1 - w)"},
      {"relu", "x", "x < 0 ? 0 : x"},
  };
  return rows;
}

const std::vector<Lowering>& lowering_table() {
  constexpr auto kArithmetic = TypeRule::kArithmetic;
  constexpr auto kFloating = TypeRule::kFloating;
  constexpr auto kCompare = TypeRule::kCompare;
  constexpr auto kLogical = TypeRule::kLogical;
  constexpr auto kBitwise = TypeRule::kBitwise;
  constexpr auto kSelect = TypeRule::kSelect;
  constexpr auto kCast = TypeRule::kCast;
  static const std::vector<Lowering> rows = {
      // ---- arithmetic
      {"aten::add.Tensor", "fma(alpha, other, self)", kArithmetic},
      {"aten::add.Scalar", "fma(alpha, other, self)", kArithmetic},
      {"aten::sub.Tensor", "fma(-alpha, other, self)", kArithmetic},
      {"aten::sub.Scalar", "fma(-alpha, other, self)", kArithmetic},
      {"aten::rsub.Tensor", "fma(-alpha, self, other)", kArithmetic},
      {"aten::rsub.Scalar", "fma(-alpha, self, other)", kArithmetic},
      {"aten::mul.Tensor", "self * other", kArithmetic},
      {"aten::mul.Scalar", "self * other", kArithmetic},
      {"aten::div.Tensor", "self / other", kFloating},
      {"aten::div.Scalar", "self / other", kFloating},
      {"aten::neg", "-self", kArithmetic},
      {"aten::abs", "abs(self)", kArithmetic},
      {"aten::reciprocal", "1 / self", kFloating},
      {"aten::rsqrt", "1 / sqrt(self)", kFloating},
      {"aten::addcmul", "fma(value * tensor1, tensor2, self)", kFloating},
      {"aten::addcdiv", "self + (value * tensor1) / tensor2", kFloating},
      {"aten::lerp.Scalar", "lerp(self, end, weight)", kFloating},
      {"aten::lerp.Tensor", "lerp(self, end, weight)", kFloating},
      {"aten::maximum", "max(self, other)", kArithmetic},
      {"aten::minimum", "min(self, other)", kArithmetic},
      // ---- functions
      {"aten::sqrt", "sqrt(self)", kFloating},
      {"aten::exp", "exp(self)", kFloating},
      {"aten::tanh", "tanh(self)", kFloating},
      {"aten::erf", "erf(self)", kFloating},
      {"aten::sigmoid", "sigmoid(self)", kFloating},
      // ---- activations and their gradients
      {"aten::relu", "relu(self)", kArithmetic},
      {"aten::threshold_backward", "self <= threshold ? 0 : grad_output", kArithmetic},
      {"aten::silu", "self / (1 + exp(-self))", kFloating},
      {"aten::silu_backward", "grad_output * sigmoid(self) * (1 + self * (1 - sigmoid(self)))", kFloating},
      {"aten::gelu", "self * 0.5 * (1 + erf(self * 0.70710678118654752))", kFloating, "approximate=none"},
      {"aten::gelu_backward",
       "grad_output * (0.5 * (1 + erf(self * 0.70710678118654752)) + self * (exp(self * self * -0.5) * 0.39894228040143268))",
       kFloating, "approximate=none"},
      {"aten::gelu",
       "0.5 * self * (1 + tanh(0.79788456080286536 * fma(0.044715, self * self * self, self)))", kFloating,
       "approximate=tanh"},
      {"aten::tanh_backward", "grad_output * (1 - output * output)", kFloating},
      {"aten::sigmoid_backward", "grad_output * (1 - output) * output", kFloating},
      {"aten::native_dropout_backward", "grad_output * mask * scale", kFloating},
      // ---- comparisons and choices
      {"aten::eq.Tensor", "self == other", kCompare},
      {"aten::eq.Scalar", "self == other", kCompare},
      {"aten::ne.Tensor", "self != other", kCompare},
      {"aten::ne.Scalar", "self != other", kCompare},
      {"aten::lt.Tensor", "self < other", kCompare},
      {"aten::lt.Scalar", "self < other", kCompare},
      {"aten::le.Tensor", "self <= other", kCompare},
      {"aten::le.Scalar", "self <= other", kCompare},
      {"aten::gt.Tensor", "self > other", kCompare},
      {"aten::gt.Scalar", "self > other", kCompare},
      {"aten::ge.Tensor", "self >= other", kCompare},
      {"aten::ge.Scalar", "self >= other", kCompare},
      {"aten::logical_not", "!self", kLogical},
      {"aten::logical_and", "self & other", kLogical},
      {"aten::logical_or", "self | other", kLogical},
      {"aten::logical_xor", "self ^ other", kLogical},
      {"aten::bitwise_not", "!self", kBitwise},
      {"aten::bitwise_and.Tensor", "self & other", kBitwise},
      {"aten::bitwise_or.Tensor", "self | other", kBitwise},
      {"aten::bitwise_xor.Tensor", "self ^ other", kBitwise},
      {"aten::where.self", "condition ? self : other", kSelect},
      {"aten::masked_fill.Scalar", "mask ? value : self", kSelect},
      // ---- copies
      {"aten::copy_", "src", kCast},
      {"aten::_to_copy", "self", kCast},
      {"aten::clone", "self", kCast},
      // ---- lists of tensors, element by element
      {"aten::_foreach_add.List", "fma(alpha, other, self)", kArithmetic},
      {"aten::_foreach_add.Scalar", "self + scalar", kArithmetic},
      {"aten::_foreach_add.ScalarList", "self + scalars", kArithmetic},
      {"aten::_foreach_sub.List", "fma(-alpha, other, self)", kArithmetic},
      {"aten::_foreach_sub.Scalar", "self - scalar", kArithmetic},
      {"aten::_foreach_sub.ScalarList", "self - scalars", kArithmetic},
      {"aten::_foreach_mul.List", "self * other", kArithmetic},
      {"aten::_foreach_mul.Scalar", "self * scalar", kArithmetic},
      {"aten::_foreach_mul.ScalarList", "self * scalars", kArithmetic},
      {"aten::_foreach_mul.Tensor", "self * other", kArithmetic},
      {"aten::_foreach_div.List", "self / other", kFloating},
      {"aten::_foreach_div.Scalar", "self / scalar", kFloating},
      {"aten::_foreach_div.ScalarList", "self / scalars", kFloating},
      {"aten::_foreach_div.Tensor", "self / other", kFloating},
      {"aten::_foreach_neg", "-self", kArithmetic},
      {"aten::_foreach_abs", "abs(self)", kArithmetic},
      {"aten::_foreach_sqrt", "sqrt(self)", kFloating},
      {"aten::_foreach_reciprocal", "1 / self", kFloating},
      {"aten::_foreach_lerp.Scalar", "lerp(self, tensors1, weight)", kFloating},
      {"aten::_foreach_lerp.List", "lerp(self, tensors1, weights)", kFloating},
      {"aten::_foreach_addcmul.Scalar", "fma(value * tensor1, tensor2, self)", kFloating},
      {"aten::_foreach_addcmul.ScalarList", "fma(scalars * tensor1, tensor2, self)", kFloating},
      {"aten::_foreach_addcdiv.Scalar", "self + (value * tensor1) / tensor2", kFloating},
      {"aten::_foreach_addcdiv.ScalarList", "self + (scalars * tensor1) / tensor2", kFloating},
      {"aten::_foreach_maximum.List", "max(self, other)", kArithmetic},
      {"aten::_foreach_copy_", "src", kCast},
  };
  return rows;
}

}  // namespace sinter::ops
