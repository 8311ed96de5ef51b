#include "codegen/llvm/functions.h"

#include <llvm/IR/Intrinsics.h>

#include <initializer_list>
#include <limits>

namespace sinter::codegen {
namespace {

using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::IRBuilder;
using llvm::Value;

Value* number(Value* like, double value) { return ConstantFP::get(like->getType(), value); }

llvm::Type* integers_like(IRBuilder<>& b, Value* x) {
  return llvm::VectorType::get(b.getInt32Ty(), llvm::cast<llvm::VectorType>(x->getType())->getElementCount());
}

Value* polynomial(IRBuilder<>& b, Value* x, std::initializer_list<double> coefficients) {
  Value* sum = nullptr;
  for (auto c = coefficients.end(); c != coefficients.begin();) {
    --c;
    sum = sum ? emit_fma(b, sum, x, number(x, *c)) : number(x, *c);
  }
  return sum;
}

// 2^n for whole n within the exponents of normal numbers.
Value* power_of_two(IRBuilder<>& b, Value* n, llvm::Type* floats) {
  Value* bits = b.CreateShl(b.CreateAdd(n, ConstantInt::get(n->getType(), 127)), ConstantInt::get(n->getType(), 23));
  return b.CreateBitCast(bits, floats);
}

}  // namespace

Value* emit_fma(IRBuilder<>& b, Value* x, Value* y, Value* z) {
  return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
}

// x = n ln 2 + r, exp(x) = 2^n (1 + r + r^2 P(r)).
Value* emit_exp(IRBuilder<>& b, Value* x) {
  // Beyond these the result is infinite or 0 anyway, and n would leave the range of the scaling below. NaN stays.
  x = b.CreateSelect(b.CreateFCmpOGT(x, number(x, 89)), number(x, 89), x);
  x = b.CreateSelect(b.CreateFCmpOLT(x, number(x, -104)), number(x, -104), x);
  // Adding 1.5 * 2^23 rounds to a whole number, which then is the sum's low bits: no conversion, none undefined for NaN.
  Value* magic = number(x, 12582912.0);
  Value* shifted = emit_fma(b, x, number(x, 1.4426950408889634), magic);
  llvm::Type* integers = integers_like(b, x);
  Value* n = b.CreateSub(b.CreateBitCast(shifted, integers), b.CreateBitCast(magic, integers));
  Value* whole = b.CreateFSub(shifted, magic);
  Value* r = emit_fma(b, whole, number(x, -0.693359375), x);
  r = emit_fma(b, whole, number(x, 2.12194440e-4), r);
  Value* p = polynomial(b, r, {0.49999994f, 0.166665092f, 0.0416685268f, 0.00837013498f, 0.00138116605f});
  p = b.CreateFAdd(emit_fma(b, p, b.CreateFMul(r, r), r), number(x, 1));
  // In two steps, so that results too small or too large for one scaling round once.
  Value* half = b.CreateAShr(n, ConstantInt::get(integers, 1));
  p = b.CreateFMul(p, power_of_two(b, half, x->getType()));
  return b.CreateFMul(p, power_of_two(b, b.CreateSub(n, half), x->getType()));
}

Value* emit_tanh(IRBuilder<>& b, Value* x) {
  Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* square = b.CreateFMul(x, x);
  Value* p = polynomial(b, square, {-0.333332807f, 0.133314416f, -0.0537397154f, 0.0206390899f, -0.00570499059f});
  Value* near = emit_fma(b, b.CreateFMul(p, square), x, x);
  Value* power = emit_exp(b, b.CreateFAdd(size, size));
  Value* far = b.CreateFSub(number(x, 1), b.CreateFDiv(number(x, 2), b.CreateFAdd(power, number(x, 1))));
  Value* result = b.CreateSelect(b.CreateFCmpOLT(size, number(x, 0.625)), near, far);
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, x);
}

Value* emit_erf(IRBuilder<>& b, Value* x) {
  Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* square = b.CreateFMul(x, x);
  Value* p = polynomial(b, square, {0.128379166f, -0.376126319f, 0.112836875f, -0.0268589444f, 0.00519991061f,
                                    -0.000813005085f, 8.31690922e-05f});
  Value* near = emit_fma(b, p, x, x);
  // erf is 1 to the last bit from 3.92 on; NaN passes both comparisons unchanged.
  Value* t = b.CreateSelect(b.CreateFCmpOGT(size, number(x, 4)), number(x, 4), size);
  Value* q = polynomial(b, t, {-0.128544897f, -0.635656536f, -0.105202913f, 0.0226120092f, -0.00289230072f,
                               3.60647609e-05f, 4.82022297e-05f, -5.1508805e-06f});
  Value* far = b.CreateFSub(number(x, 1), emit_exp(b, emit_fma(b, q, t, b.CreateFNeg(t))));
  Value* result = b.CreateSelect(b.CreateFCmpOLT(size, number(x, 0.92)), near, far);
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, x);
}

}  // namespace sinter::codegen
