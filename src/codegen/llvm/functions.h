// Elementary functions of vectors of 32-bit floats, emitted in line.
//
// Within 1.2 units of the last place over the whole range, denormal results included; infinities and NaN as in C's
// functions. Polynomials: tools/fit_functions.py.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace sinter::codegen {

llvm::Value* emit_exp(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emit_tanh(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emit_erf(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emit_fma(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y, llvm::Value* z);

}  // namespace sinter::codegen
