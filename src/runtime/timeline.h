// Which kernels ran when, for a profiler that asks.
//
// Off until started; while off, a kernel costs one relaxed load. Spans carry the id of the framework's event in which
// their op was recorded, so that a profiler can put a kernel under the call that asked for it, however much later it
// runs. Thread-safe; one profiler at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace sinter::runtime {

struct Span {
  enum class Kind : uint8_t { kKernel, kGraph };
  Kind kind = Kind::kKernel;
  std::string name;    // "aten::mm"
  std::string detail;  // "aten::mm(f32[2,3], f32[3,4])"
  int64_t begin = 0;   // nanoseconds since the epoch
  int64_t end = 0;
  uint64_t event = 0;  // 0: unknown
};

class Timeline {
 public:
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  void start();
  // Ends recording and hands out the spans in the order in which they ended.
  std::vector<Span> stop();
  void add(Span span);

  // The framework's event in which this thread records ops now; 0 outside of any. Kept up to date by the profiler.
  static uint64_t& event();

  // The events of the ops of the graph that this thread runs, for its lifetime.
  class Run {
   public:
    explicit Run(std::span<const uint64_t> events);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    std::span<const uint64_t> outer_;
  };
  static uint64_t event_of(size_t trace_index);

 private:
  std::atomic<bool> recording_{false};
  std::mutex mutex_;
  std::vector<Span> spans_;
};

Timeline& timeline();

// A span from here to the end of its scope. To be made only while recording.
class Spanning {
 public:
  Spanning(Span::Kind kind, std::string name, std::string detail, uint64_t event);
  ~Spanning();
  Spanning(const Spanning&) = delete;
  Spanning& operator=(const Spanning&) = delete;

 private:
  Span span_;
};

}  // namespace sinter::runtime
