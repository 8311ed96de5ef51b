#include "runtime/metrics.h"

#include <algorithm>
#include <vector>

#include "support/json.h"

namespace sinter {
namespace {

constexpr std::string_view kCounterNames[] = {
#define SINTER_COUNTER(constant, name, help) #name,
#define SINTER_TIMER(constant, name, help)
#include "runtime/metrics.def"
#undef SINTER_COUNTER
#undef SINTER_TIMER
};

constexpr std::string_view kTimerNames[] = {
#define SINTER_COUNTER(constant, name, help)
#define SINTER_TIMER(constant, name, help) #name,
#include "runtime/metrics.def"
#undef SINTER_COUNTER
#undef SINTER_TIMER
};

}  // namespace

std::string_view name_of(Counter counter) { return kCounterNames[static_cast<size_t>(counter)]; }
std::string_view name_of(Timer timer) { return kTimerNames[static_cast<size_t>(timer)]; }

void Metrics::count_in(Tally& tally, std::string_view first, std::string_view second) {
  std::pair<std::string, std::string> key(first, second);
  auto found = tally.find(key);
  if (found == tally.end()) {
    if (tally.size() >= kMostTallies) key = {"(others)", ""};
    found = tally.try_emplace(std::move(key), 0).first;
  }
  ++found->second;
}

void Metrics::add_sync(std::string_view cause, std::string_view line) {
  add(Counter::kSyncs);
  std::lock_guard lock(mutex_);
  count_in(syncs_, cause, line);
}

void Metrics::add_fallback(std::string_view op, std::string_view reason) {
  add(Counter::kFallbacks);
  std::lock_guard lock(mutex_);
  count_in(fallbacks_, op, reason);
}

std::string Metrics::to_json() const {
  JsonWriter json;
  json.begin_object().key("counters").begin_object();
  for (size_t i = 0; i < counters_.size(); ++i) {
    json.field(kCounterNames[i], counters_[i].load(std::memory_order_relaxed));
  }
  json.end_object().key("timers").begin_object();
  for (size_t i = 0; i < timers_.size(); ++i) {
    const double seconds = static_cast<double>(timers_[i].nanoseconds.load(std::memory_order_relaxed)) * 1e-9;
    json.key(kTimerNames[i])
        .begin_object()
        .field("count", timers_[i].count.load(std::memory_order_relaxed))
        .field("seconds", seconds)
        .end_object();
  }
  json.end_object();

  auto write_tally = [&](const Tally& tally, const char* name, const char* first, const char* second) {
    std::vector<const Tally::value_type*> entries;
    for (const auto& entry : tally) entries.push_back(&entry);
    std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->second > b->second; });
    json.key(name).begin_array();
    for (const auto* entry : entries) {
      json.begin_object()
          .field(first, entry->first.first)
          .field(second, entry->first.second)
          .field("count", entry->second)
          .end_object();
    }
    json.end_array();
  };
  std::lock_guard lock(mutex_);
  write_tally(syncs_, "syncs", "cause", "line");
  write_tally(fallbacks_, "fallbacks", "op", "reason");
  return json.end_object().take();
}

void Metrics::reset() {
  for (auto& counter : counters_) counter.store(0, std::memory_order_relaxed);
  for (auto& [count, nanoseconds] : timers_) {
    count.store(0, std::memory_order_relaxed);
    nanoseconds.store(0, std::memory_order_relaxed);
  }
  std::lock_guard lock(mutex_);
  syncs_.clear();
  fallbacks_.clear();
}

Metrics& metrics() {
  static Metrics& instance = *new Metrics;
  return instance;
}

}  // namespace sinter
