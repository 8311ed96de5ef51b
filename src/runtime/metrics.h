// What happened so far, in numbers: counters, timers, and tallies of syncs and fallbacks by their cause.
//
// metrics.def is the table of counters and timers. Counting is one relaxed atomic addition (a few nanoseconds), from
// any thread; tallies lock and serve rare events. A snapshot is not one instant: each number is exact, their relation
// is not while other threads count. Tallies keep at most kMostTallies distinct entries; what comes later is counted
// under "(others)", so that a script with ever new causes cannot grow them without limit.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace sinter {

enum class Counter : unsigned char {
#define SINTER_COUNTER(constant, name, help) k##constant,
#define SINTER_TIMER(constant, name, help)
#include "runtime/metrics.def"
#undef SINTER_COUNTER
#undef SINTER_TIMER
  kCount
};

enum class Timer : unsigned char {
#define SINTER_COUNTER(constant, name, help)
#define SINTER_TIMER(constant, name, help) k##constant,
#include "runtime/metrics.def"
#undef SINTER_COUNTER
#undef SINTER_TIMER
  kCount
};

std::string_view name_of(Counter counter);
std::string_view name_of(Timer timer);

class Metrics {
 public:
  static constexpr size_t kMostTallies = 1024;

  void add(Counter counter, uint64_t n = 1) { at(counter).fetch_add(n, std::memory_order_relaxed); }
  uint64_t get(Counter counter) const {
    return const_cast<Metrics*>(this)->at(counter).load(std::memory_order_relaxed);
  }

  // `stands_for` events of about this length, of which one was timed.
  void add(Timer timer, std::chrono::nanoseconds elapsed, uint64_t stands_for = 1) {
    auto& [count, nanoseconds] = timers_[static_cast<size_t>(timer)];
    count.fetch_add(stands_for, std::memory_order_relaxed);
    nanoseconds.fetch_add(stands_for * static_cast<uint64_t>(elapsed.count()), std::memory_order_relaxed);
  }

  // Times its own life.
  class Timing {
   public:
    Timing(Metrics& metrics, Timer timer) : metrics_(metrics), timer_(timer), start_(Clock::now()) {}
    ~Timing() { metrics_.add(timer_, Clock::now() - start_); }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    Metrics& metrics_;
    Timer timer_;
    Clock::time_point start_;
  };
  [[nodiscard]] Timing time(Timer timer) { return {*this, timer}; }

  // These count Counter::kSyncs and Counter::kFallbacks too. `line` is the user's line, empty when lines are not
  // traced.
  void add_sync(std::string_view cause, std::string_view line = {});
  void add_fallback(std::string_view op, std::string_view reason);

  // {"counters": {name: int}, "timers": {name: {"count": int, "seconds": float}},
  //  "syncs": [{"cause": str, "line": str, "count": int}], "fallbacks": [{"op", "reason", "count"}]}
  // Tallies come with the largest count first.
  std::string to_json() const;

  void reset();

 private:
  using Tally = std::map<std::pair<std::string, std::string>, uint64_t, std::less<>>;
  static void count_in(Tally& tally, std::string_view first, std::string_view second);

  std::atomic<uint64_t>& at(Counter counter) { return counters_[static_cast<size_t>(counter)]; }

  struct Times {
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> nanoseconds{0};
  };
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Counter::kCount)> counters_{};
  std::array<Times, static_cast<size_t>(Timer::kCount)> timers_{};
  mutable std::mutex mutex_;  // guards the tallies
  Tally syncs_;
  Tally fallbacks_;
};

// The metrics of the process: what torch_sinter.metrics reports is a sum over everything that runs in it, so this is
// process-wide by nature. Never destroyed: threads may count while the process exits.
Metrics& metrics();

}  // namespace sinter
