// Kernels to machine code.
//
// The generator lives in a library of its own (libsinter_native.so, src/codegen/llvm), because LLVM is large and only a
// compile needs it; it is opened by the first one. What it makes stays loaded for the life of the process.
#pragma once

#include <string>

#include "loops/kernel.h"
#include "support/result.h"

namespace sinter::codegen {

class CodeGenerator {
 public:
  virtual ~CodeGenerator() = default;

  // Machine code as a relocatable object that defines `symbol`. May be called from several threads.
  virtual Result<std::string> compile(const loops::Kernel& kernel, const std::string& symbol) = 0;
  // Makes the object's function callable.
  virtual Result<loops::Function> load(const std::string& object, const std::string& symbol) = 0;
  // What an object depends on besides the kernel: the processor with its features, and the generator itself.
  virtual std::string target() const = 0;
};

// The process's generator; an error that names the reason when its library cannot be opened.
Result<CodeGenerator*> code_generator();

}  // namespace sinter::codegen
