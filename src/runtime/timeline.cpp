#include "runtime/timeline.h"

#include <chrono>
#include <utility>

namespace sinter::runtime {
namespace {

thread_local std::span<const uint64_t> run_events;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Timeline::start() {
  const std::lock_guard lock(mutex_);
  spans_.clear();
  recording_.store(true, std::memory_order_relaxed);
}

std::vector<Span> Timeline::stop() {
  const std::lock_guard lock(mutex_);
  recording_.store(false, std::memory_order_relaxed);
  return std::exchange(spans_, {});
}

void Timeline::add(Span span) {
  const std::lock_guard lock(mutex_);
  if (recording()) spans_.push_back(std::move(span));
}

uint64_t& Timeline::event() {
  thread_local uint64_t current = 0;
  return current;
}

Timeline::Run::Run(std::span<const uint64_t> events) : outer_(std::exchange(run_events, events)) {}
Timeline::Run::~Run() { run_events = outer_; }

uint64_t Timeline::event_of(size_t trace_index) {
  return trace_index < run_events.size() ? run_events[trace_index] : 0;
}

Timeline& timeline() {
  static auto* made = new Timeline;
  return *made;
}

Spanning::Spanning(Span::Kind kind, std::string name, std::string detail, uint64_t event)
    : span_{kind, std::move(name), std::move(detail), now(), 0, event} {}

Spanning::~Spanning() {
  span_.end = now();
  timeline().add(std::move(span_));
}

}  // namespace sinter::runtime
