// The settings of the process. flags.def is their table; this is the only code that reads the environment.
//
// The environment is read once, while the library loads; until then (other static initialisers) accessors give the
// defaults. Afterwards a flag changes only through set(). A bad value leaves the default (or what was) in place and is
// told once, through report_problems(). Accessors of bool, int and bytes flags are one relaxed atomic load, those of
// strings lock and copy. All functions may be called from any thread.
//
// This is one of the few places with process-wide state: the environment is process-wide too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace sinter::flags {

#ifdef NDEBUG
inline constexpr bool kDebugBuild = false;
#else
inline constexpr bool kDebugBuild = true;
#endif

enum class Type : unsigned char { kBool, kInt, kBytes, kString };

enum class Flag : unsigned char {
#define SINTER_FLAG_BOOL(ident, NAME, def, in_key, help) k##NAME,
#define SINTER_FLAG_INT(ident, NAME, def, smallest, in_key, help) k##NAME,
#define SINTER_FLAG_BYTES(ident, NAME, def, in_key, help) k##NAME,
#define SINTER_FLAG_STRING(ident, NAME, def, choices, in_key, help) k##NAME,
#include "support/flags.each.h"
  kCount
};

namespace internal {
extern std::atomic<int64_t> numbers[static_cast<size_t>(Flag::kCount)];  // values of bool, int and bytes flags
extern std::atomic<uint64_t> version;
inline int64_t number(Flag flag) { return numbers[static_cast<size_t>(flag)].load(std::memory_order_relaxed); }
std::string text(Flag flag);
}  // namespace internal

// flags::blocking(), flags::max_graph_ops(), flags::engine() ...
#define SINTER_FLAG_BOOL(ident, NAME, def, in_key, help) \
  inline bool ident() { return internal::number(Flag::k##NAME) != 0; }
#define SINTER_FLAG_INT(ident, NAME, def, smallest, in_key, help) \
  inline int64_t ident() { return internal::number(Flag::k##NAME); }
#define SINTER_FLAG_BYTES(ident, NAME, def, in_key, help) \
  inline int64_t ident() { return internal::number(Flag::k##NAME); }
#define SINTER_FLAG_STRING(ident, NAME, def, choices, in_key, help) \
  inline std::string ident() { return internal::text(Flag::k##NAME); }
#include "support/flags.each.h"

// The folder for what outlives a process: CACHE_DIR, else torch_sinter in XDG_CACHE_HOME or ~/.cache; empty when there
// is no home either.
std::string cache_folder();

// One row of the table with its present value; both values as text that set() accepts.
struct Info {
  std::string_view name;  // without the prefix SINTER_
  Type type;
  std::string default_value;
  std::string value;
  std::string_view help;
  bool in_key;
};
std::string_view name_of(Type type);
std::vector<Info> list();

// JSON list of {"name", "type", "default", "value", "help", "in_key"}; the values are typed.
std::string to_json();

// "NAME=value;" of all flags that belong to the key of the plan and kernel caches.
std::string key_text();

// Counts successful set() calls, so that what was derived from flags can be kept until one changes.
inline uint64_t version() { return internal::version.load(std::memory_order_acquire); }

// Sets a flag by its name, with or without the prefix SINTER_. Fails with kUserError, naming the flag and what it
// accepts, and then changes nothing.
Status set(std::string_view name, std::string_view value);

// Calls `report` for every problem found in the environment that was not reported before.
void report_problems(const std::function<void(std::string_view)>& report);

// Reads the environment again, as when the library loaded (for tests, and after a host changed its environment).
// Flags whose variable is unset keep their value.
void read_environment();

}  // namespace sinter::flags
