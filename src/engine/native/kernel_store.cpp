#include "engine/native/kernel_store.h"

#include <cstdio>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "codegen/code_generator.h"
#include "codegen/disk_cache.h"
#include "runtime/metrics.h"
#include "support/flags.h"
#include "support/hash.h"
#include "support/log.h"

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
  const std::string symbol = symbol_of(text);
  // The folder's flags are read once, by the first kernel.
  static auto* disk = new codegen::DiskCache(codegen::kernel_cache_folder(), static_cast<uint64_t>(flags::cache_bytes()));
  const std::string key = generator->target() + "\n" + symbol + "\n" + text;
  std::optional<std::string> object = disk->find(key);
  if (object) {
    metrics().add(Counter::kKernelsFromDisk);
  } else {
    const auto timing = metrics().time(Timer::kCompile);
    metrics().add(Counter::kKernelsCompiled);
    SINTER_ASSIGN_OR_RETURN(object, generator->compile(kernel, symbol));
    disk->store(key, *object);
  }
  if (static bool told = false; !disk->problem().empty() && !std::exchange(told, true) && flags::cache_bytes() != 0)
    log::warning("kernels are not kept on disk: " + disk->problem());
  SINTER_ASSIGN_OR_RETURN(const loops::Function function, generator->load(*object, symbol));
  return &known->emplace(text, LoadedKernel{function, symbol}).first->second;
}

}  // namespace sinter::engine
