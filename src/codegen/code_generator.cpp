#include "codegen/code_generator.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>

namespace sinter::codegen {
namespace {

Result<CodeGenerator*> open() {
  // Beside the library that this code is part of.
  Dl_info self;
  std::string path = "libsinter_native.so";
  if (dladdr(reinterpret_cast<void*>(&code_generator), &self) && self.dli_fname) {
    const std::string own = self.dli_fname;
    if (const size_t slash = own.rfind('/'); slash != std::string::npos) path = own.substr(0, slash + 1) + path;
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return unsupported(std::string("the code generator cannot be loaded: ") + dlerror());
  using Make = CodeGenerator* (*)();
  const auto make = reinterpret_cast<Make>(dlsym(library, "sinter_make_code_generator"));
  if (!make) return unsupported(path + " is of another version of this package");
  if (CodeGenerator* generator = make()) return generator;
  return unsupported("LLVM knows nothing of this machine's processor");
}

}  // namespace

Result<CodeGenerator*> code_generator() {
  static std::mutex mutex;
  static auto* opened = new std::unique_ptr<Result<CodeGenerator*>>;
  const std::lock_guard lock(mutex);
  if (!*opened) *opened = std::make_unique<Result<CodeGenerator*>>(open());
  return **opened;
}

}  // namespace sinter::codegen
