#include "engine/native/kernel_store.h"

#include <cstdio>
#include <mutex>
#include <unordered_map>

#include "codegen/code_generator.h"
#include "runtime/metrics.h"
#include "support/hash.h"

namespace sinter::engine {
namespace {

std::string symbol_of(const std::string& text) {
  char name[40];
  std::snprintf(name, sizeof name, "sinter_kernel_%016llx",
                static_cast<unsigned long long>(Hasher(0).add(std::string_view(text)).finish()));
  return name;
}

}  // namespace

Result<const LoadedKernel*> find_or_compile(const loops::Kernel& kernel) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<std::string, LoadedKernel>;
  const std::string text = to_text(kernel);
  const std::lock_guard lock(mutex);
  if (const auto found = known->find(text); found != known->end()) return &found->second;
  SINTER_ASSIGN_OR_RETURN(codegen::CodeGenerator * generator, codegen::code_generator());
  const auto timing = metrics().time(Timer::kCompile);
  metrics().add(Counter::kKernelsCompiled);
  const std::string symbol = symbol_of(text);
  SINTER_ASSIGN_OR_RETURN(const std::string object, generator->compile(kernel, symbol));
  SINTER_ASSIGN_OR_RETURN(const loops::Function function, generator->load(object, symbol));
  return &known->emplace(text, LoadedKernel{function, symbol}).first->second;
}

}  // namespace sinter::engine
