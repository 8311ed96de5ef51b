#include "support/flags.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "support/json.h"

namespace sinter::flags {
namespace {

constexpr size_t kFlagCount = static_cast<size_t>(Flag::kCount);
constexpr std::string_view kPrefix = "SINTER_";

struct Row {
  const char* variable;  // with the prefix, zero-terminated for getenv
  Type type;
  int64_t number;         // default of a bool, int or bytes flag
  int64_t smallest;       // of an int flag
  std::string_view text;  // default of a string flag
  std::string_view choices;
  bool in_key;
  std::string_view help;

  std::string_view name() const { return std::string_view(variable).substr(kPrefix.size()); }
};

constexpr Row kRows[kFlagCount] = {
#define SINTER_FLAG_BOOL(ident, NAME, def, in_key, help) {"SINTER_" #NAME, Type::kBool, def, 0, {}, {}, in_key, help},
#define SINTER_FLAG_INT(ident, NAME, def, smallest, in_key, help) \
  {"SINTER_" #NAME, Type::kInt, def, smallest, {}, {}, in_key, help},
#define SINTER_FLAG_BYTES(ident, NAME, def, in_key, help) {"SINTER_" #NAME, Type::kBytes, def, 0, {}, {}, in_key, help},
#define SINTER_FLAG_STRING(ident, NAME, def, choices, in_key, help) \
  {"SINTER_" #NAME, Type::kString, 0, 0, def, choices, in_key, help},
#include "support/flags.each.h"
};

// What strings and problems need a lock for. Leaked: threads may still ask while the process exits.
struct State {
  std::mutex mutex;
  std::array<std::string, kFlagCount> texts;
  std::vector<std::string> problems;
};
State& state() {
  static State& instance = *[] {
    auto* s = new State;
    for (size_t i = 0; i < kFlagCount; ++i) s->texts[i] = kRows[i].text;
    return s;
  }();
  return instance;
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  }
  return out;
}

std::string_view trim(std::string_view s) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = s.find_first_not_of(kBlank);
  return first == s.npos ? std::string_view() : s.substr(first, s.find_last_not_of(kBlank) - first + 1);
}

std::optional<int64_t> parse_bool(std::string_view s) {
  const std::string word = lower(s);
  for (const char* yes : {"1", "true", "on", "yes"}) {
    if (word == yes) return 1;
  }
  for (const char* no : {"0", "false", "off", "no"}) {
    if (word == no) return 0;
  }
  return std::nullopt;
}

std::optional<int64_t> parse_int(std::string_view s, int64_t smallest) {
  int64_t n = 0;
  const auto [end, failed] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (failed != std::errc() || end != s.data() + s.size() || n < smallest) return std::nullopt;
  return n;
}

std::optional<int64_t> parse_bytes(std::string_view s) {
  int64_t n = 0;
  const auto [end, failed] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (failed != std::errc() || n < 0) return std::nullopt;
  const std::string unit = lower(trim(s.substr(end - s.data())));
  int shift = 0;
  if (!unit.empty() && unit != "b") {
    const size_t which = std::string_view("kmgt").find(unit[0]);
    const std::string_view rest = std::string_view(unit).substr(1);
    if (which == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return std::nullopt;
    shift = static_cast<int>(which + 1) * 10;
  }
  if (n > (std::numeric_limits<int64_t>::max() >> shift)) return std::nullopt;
  return n << shift;
}

bool is_choice(std::string_view choices, std::string_view s) {
  if (choices.empty()) return true;
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == s) return true;
    if (bar == choices.npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

std::string accepted(const Row& row) {
  switch (row.type) {
    case Type::kBool:
      return "0, 1, true, false, on, off, yes or no";
    case Type::kInt:
      return "a whole number of at least " + std::to_string(row.smallest);
    case Type::kBytes:
      return "a number of bytes such as 1000000, 512M or 2G";
    case Type::kString:
      break;
  }
  std::string out = "one of";
  std::string_view choices = row.choices;
  while (true) {
    const size_t bar = choices.find('|');
    const std::string_view choice = choices.substr(0, bar);
    out += choice.empty() ? " (nothing)" : " " + std::string(choice);
    if (bar == choices.npos) return out;
    out += ',';
    choices.remove_prefix(bar + 1);
  }
}

Status set_row(size_t i, std::string_view value) {
  const Row& row = kRows[i];
  std::optional<int64_t> number;
  bool fine = false;
  switch (row.type) {
    case Type::kBool:
      fine = (number = parse_bool(trim(value))).has_value();
      break;
    case Type::kInt:
      fine = (number = parse_int(trim(value), row.smallest)).has_value();
      break;
    case Type::kBytes:
      fine = (number = parse_bytes(trim(value))).has_value();
      break;
    case Type::kString:
      fine = is_choice(row.choices, value);
      break;
  }
  if (!fine) {
    return user_error(std::string(row.variable) + "=\"" + std::string(value) + "\" is not valid: it takes " +
                      accepted(row));
  }
  if (number) {
    internal::numbers[i].store(*number, std::memory_order_relaxed);
  } else {
    std::lock_guard lock(state().mutex);
    state().texts[i] = value;
  }
  internal::version.fetch_add(1, std::memory_order_release);
  return {};
}

std::string number_text(Type type, int64_t n) {
  if (type == Type::kBool) return n != 0 ? "1" : "0";
  return std::to_string(n);
}

std::string value_text(size_t i) {
  const auto flag = static_cast<Flag>(i);
  return kRows[i].type == Type::kString ? internal::text(flag) : number_text(kRows[i].type, internal::number(flag));
}

std::string default_text(size_t i) {
  return kRows[i].type == Type::kString ? std::string(kRows[i].text) : number_text(kRows[i].type, kRows[i].number);
}

void write_typed(JsonWriter& json, Type type, const std::string& text) {
  switch (type) {
    case Type::kBool:
      json.value(text == "1");
      break;
    case Type::kInt:
    case Type::kBytes:
      json.raw(text);
      break;
    case Type::kString:
      json.value(text);
      break;
  }
}

}  // namespace

namespace internal {

constinit std::atomic<uint64_t> version{0};

constinit std::atomic<int64_t> numbers[kFlagCount] = {
#define SINTER_FLAG_BOOL(ident, NAME, def, in_key, help) def,
#define SINTER_FLAG_INT(ident, NAME, def, smallest, in_key, help) def,
#define SINTER_FLAG_BYTES(ident, NAME, def, in_key, help) def,
#define SINTER_FLAG_STRING(ident, NAME, def, choices, in_key, help) 0,
#include "support/flags.each.h"
};

std::string text(Flag flag) {
  std::lock_guard lock(state().mutex);
  return state().texts[static_cast<size_t>(flag)];
}

}  // namespace internal

std::string_view name_of(Type type) {
  switch (type) {
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kBytes:
      return "bytes";
    case Type::kString:
      return "string";
  }
  return "string";
}

std::vector<Info> list() {
  std::vector<Info> out;
  out.reserve(kFlagCount);
  for (size_t i = 0; i < kFlagCount; ++i) {
    const Row& row = kRows[i];
    out.push_back({row.name(), row.type, default_text(i), value_text(i), row.help, row.in_key});
  }
  return out;
}

std::string to_json() {
  JsonWriter json;
  json.begin_array();
  for (const Info& info : list()) {
    json.begin_object().field("name", info.name).field("type", name_of(info.type));
    write_typed(json.key("default"), info.type, info.default_value);
    write_typed(json.key("value"), info.type, info.value);
    json.field("help", info.help).field("in_key", info.in_key).end_object();
  }
  return json.end_array().take();
}

std::string key_text() {
  std::string out;
  for (size_t i = 0; i < kFlagCount; ++i) {
    if (kRows[i].in_key) ((out += kRows[i].name()) += '=') += value_text(i) + ';';
  }
  return out;
}

Status set(std::string_view name, std::string_view value) {
  std::string_view bare = name;
  if (bare.substr(0, kPrefix.size()) == kPrefix) bare.remove_prefix(kPrefix.size());
  for (size_t i = 0; i < kFlagCount; ++i) {
    if (kRows[i].name() == bare) return set_row(i, value);
  }
  std::string known;
  for (const Row& row : kRows) (known += known.empty() ? "" : ", ") += row.name();
  return user_error("there is no flag \"" + std::string(name) + "\"; the flags are " + known);
}

void report_problems(const std::function<void(std::string_view)>& report) {
  std::vector<std::string> problems;
  {
    std::lock_guard lock(state().mutex);
    problems.swap(state().problems);
  }
  for (const std::string& problem : problems) report(problem);
}

void read_environment() {
  for (size_t i = 0; i < kFlagCount; ++i) {
    const char* value = std::getenv(kRows[i].variable);
    // An empty variable counts as unset: that is how a shell line takes a setting back for one command.
    if (value == nullptr || *value == '\0') continue;
    if (Status status = set_row(i, value); !status) {
      const std::string kept = value_text(i);
      std::lock_guard lock(state().mutex);
      state().problems.push_back(status.message() + "; keeping " + (kept.empty() ? "it empty" : kept));
    }
  }
}

std::string cache_folder() {
  if (std::string folder = cache_dir(); !folder.empty()) return folder;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base) return std::string(base) + "/torch_sinter";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/torch_sinter";
  return {};
}

namespace {
// Runs while the library loads.
[[maybe_unused]] const bool environment_was_read = (read_environment(), true);
}  // namespace

}  // namespace sinter::flags
