// The device's one in-order stream: it holds the graph being recorded and runs graphs when they end.
//
// Deferred: a graph runs on the thread that ends it, one at a time. With ASYNC a worker runs graphs in the same
// order; at most kMaxQueued wait. Two locks, taken in this order: the execution lock (held while a graph runs, so
// never while waiting for a user's code) and the recording lock (held for an append, a fraction of a microsecond).
// Nobody waits for a run while holding the recording lock.
// Errors come back as exception_ptr, once, to the call that ended or waited for the graph.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "graph/trace.h"
#include "runtime/buffer.h"
#include "runtime/executable.h"
#include "runtime/graph_cache.h"
#include "runtime/host.h"

namespace sinter::runtime {

// One op to append. Written operands are known from the call.
struct Record {
  Ref<const graph::Call> call;
  std::span<Buffer* const> operands;
  std::span<const int64_t> offsets;
  std::span<const graph::Scalar> scalars;
  std::span<Buffer* const> results;
  uint64_t settings;
};

class Stream {
 public:
  Stream(Host& host, std::unique_ptr<Engine> engine);
  ~Stream() = delete;  // leaked on purpose: threads may still wait in it while the process ends

  // Appends an op to the open graph. The result says what the caller has to do once it holds no lock.
  enum class After : uint8_t { kNothing, kEndGraph, kCutGraph };
  After record(const Record& record);

  // Ends the open graph, if it holds any op, and runs or queues it.
  std::exception_ptr end_graph(std::string_view cause);
  // Ends the part of the open graph before its last repetition, so that a loop repeats the same graphs.
  std::exception_ptr cut_graph();
  // Makes the contents of a buffer final and returns the error that prevented them, if any.
  std::exception_ptr wait(Buffer& buffer, std::string_view cause);
  // As wait, also when the open graph only reads the buffer: for a host that is about to write it.
  std::exception_ptr wait_for_uses(Buffer& buffer, std::string_view cause);
  // Ends the open graph and waits for everything.
  std::exception_ptr synchronize(std::string_view cause);

  // True when the settings of an op to be recorded differ from the open graph's, which then has to end first.
  bool settings_differ(uint64_t settings) const;
  bool idle() const;  // nothing recorded, nothing running
  bool uses(const Buffer& buffer) const;  // the open graph or one that has not finished uses it

  std::string open_graph_text();
  std::string last_graph_text();
  void clear_cache();
  size_t cached_graphs();

  // Around fork(): the child may record and run, the worker does not survive.
  void before_fork();
  void after_fork(bool in_child);

  // Notes where the last op was recorded, when asked: called by record's caller with the line, or with the
  // profiler's event.
  void note_line(std::string line);
  void note_event(uint64_t event);

  Engine& engine() { return *engine_; }

 private:
  struct OpenGraph {
    graph::Trace trace;
    std::vector<Ref<Buffer>> buffers;
    std::vector<std::string> lines;  // by node, when lines are traced
    std::vector<uint64_t> events;    // by node, when a profiler listens
    std::vector<uint16_t> recorders; // by node: which thread recorded it
    uint64_t sequence = 1;
    size_t pending_bytes = 0;
    int threads = 0;                 // of the kernels, when the worker runs it
  };

  uint32_t number_of(Buffer& buffer, graph::Origin origin_if_new);
  void append(const Record& record);
  bool take(OpenGraph& out);
  bool take_prefix(size_t nodes, OpenGraph& out);
  size_t repetition_cut() const;
  std::exception_ptr run(OpenGraph& graph, std::vector<Ref<Buffer>>& retired);
  std::exception_ptr wait_for_sequence(uint64_t sequence);
  void count_sync(std::string_view cause);
  // Puts what take_graph() takes into the worker's queue; returns the error of an earlier graph that nobody has heard of.
  template <typename Take>
  std::exception_ptr enqueue(Take&& take_graph);
  // Runs what take_graph() takes on the calling thread.
  template <typename Take>
  std::exception_ptr run_at_once(Take&& take_graph);
  std::exception_ptr take_late_error();
  void finished(const OpenGraph& graph);
  void start_worker();
  void work();

  Host& host_;
  std::unique_ptr<Engine> engine_;

  mutable std::mutex recording_;
  OpenGraph open_;

  std::mutex execution_;
  GraphCache cache_;
  std::atomic<uint64_t> completed_{0};  // sequence number of the last graph that has run

  // ---- asynchronous worker
  static constexpr size_t kMaxQueued = 2;
  std::mutex queue_lock_;
  std::condition_variable queue_changed_;
  std::deque<OpenGraph> queue_;
  bool running_ = false;
  bool worker_alive_ = false;
  std::exception_ptr late_error_;  // of a graph that the worker ran; handed out once
  std::atomic<bool> has_late_error_{false};
};

}  // namespace sinter::runtime
