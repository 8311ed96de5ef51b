#include "support/log.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "support/flags.h"

namespace sinter::log {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<const Sink> sink;
  std::atomic<bool> has_sink{false};
};
State& state() {
  static State& instance = *new State;  // leaked: threads may log while the process exits
  return instance;
}

// The LOG flag, parsed once per change of flags: version << 8 | named << 7 | level.
std::atomic<uint64_t> parsed{~uint64_t{0}};

struct Threshold {
  Level level;
  bool named;  // the flag names a level, so stderr serves where no sink is
};

Threshold threshold() {
  const uint64_t version = flags::version();
  uint64_t bits = parsed.load(std::memory_order_relaxed);
  if (bits >> 8 != version) {
    const std::string text = flags::log();
    uint64_t level = static_cast<uint64_t>(Level::kWarning);
    for (uint64_t i = 0; i <= static_cast<uint64_t>(Level::kOff); ++i) {
      if (text == name_of(static_cast<Level>(i))) level = i | 0x80;
    }
    bits = version << 8 | level;
    parsed.store(bits, std::memory_order_relaxed);
  }
  return {static_cast<Level>(bits & 0x7F), (bits & 0x80) != 0};
}

}  // namespace

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
    case Level::kOff:
      return "off";
  }
  return "off";
}

void set_sink(Sink sink) {
  auto shared = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  std::lock_guard lock(state().mutex);
  state().has_sink.store(shared != nullptr, std::memory_order_relaxed);
  state().sink = std::move(shared);
}

bool enabled(Level level) {
  const Threshold t = threshold();
  return level >= t.level && t.level != Level::kOff && level != Level::kOff &&
         (t.named || state().has_sink.load(std::memory_order_relaxed));
}

void write(Level level, std::string_view message) {
  if (!enabled(level)) return;
  std::shared_ptr<const Sink> sink;
  {
    std::lock_guard lock(state().mutex);
    sink = state().sink;
  }
  if (sink) {
    (*sink)(level, message);
  } else if (threshold().named) {
    // One write per line keeps the lines of several threads apart.
    const std::string line = "torch-sinter " + std::string(name_of(level)) + ": " + std::string(message) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

}  // namespace sinter::log
