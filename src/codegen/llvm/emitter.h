// Kernels to LLVM IR: explicit vectors, a full loop and one masked tail that touches no byte outside.
#pragma once

#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "loops/kernel.h"

namespace sinter::codegen {

// Defines `symbol` with the signature of loops::Function. `lanes`: 32-bit floats in a vector of the machine.
void emit_kernel(llvm::Module& module, const loops::Kernel& kernel, const std::string& symbol, unsigned lanes);

}  // namespace sinter::codegen
