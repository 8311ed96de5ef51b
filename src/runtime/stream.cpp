#include "runtime/stream.h"

#include <algorithm>
#include <optional>
#include <string>
#include <new>
#include <utility>

#include "runtime/metrics.h"
#include "runtime/timeline.h"
#include "support/flags.h"

namespace sinter::runtime {
namespace {

// Ops at the start of a graph that are looked for again when a bound cuts it.
constexpr size_t kRepetitionWindow = 12;

// A number for the calling thread. It may come again after 65,536 threads: then two share a failure.
uint16_t this_thread() {
  static std::atomic<uint16_t> next{0};
  thread_local const uint16_t number = next++;
  return number;
}

// Cleared by after_fork: threads of the parent do not exist in the child.
thread_local bool running_graph = false;

class RunningGraph {
 public:
  RunningGraph() { running_graph = true; }
  ~RunningGraph() { running_graph = false; }
};

}  // namespace

Stream::Stream(Host& host, std::unique_ptr<Engine> engine)
    : host_(host), engine_(std::move(engine)), cache_(*engine_) {}

// ---------------------------------------------------------------- recording

uint32_t Stream::number_of(Buffer& buffer, graph::Origin origin_if_new) {
  if (buffer.graph == open_.sequence) return buffer.number;
  buffer.graph = open_.sequence;
  buffer.number = static_cast<uint32_t>(open_.buffers.size());
  open_.buffers.emplace_back(&buffer);
  open_.trace.origins.push_back(origin_if_new);
  return buffer.number;
}

void Stream::append(const Record& record) {
  graph::Trace& trace = open_.trace;
  open_.recorders.push_back(this_thread());
  trace.nodes.push_back({record.call, static_cast<uint32_t>(trace.operands.size()),
                         static_cast<uint32_t>(trace.results.size()),
                         static_cast<uint32_t>(trace.scalars.size())});
  const auto& metas = record.call->operands;
  for (size_t k = 0; k < record.operands.size(); ++k) {
    Buffer& buffer = *record.operands[k];
    const bool holds = buffer.written_by.load(std::memory_order_relaxed) != 0 ||
                       buffer.contents.load(std::memory_order_relaxed);
    trace.operands.push_back(
        {number_of(buffer, holds ? graph::Origin::kContents : graph::Origin::kEmpty),
         record.offsets[k]});
  }
  for (size_t k = 0; k < record.operands.size(); ++k)
    if (metas[k].access != graph::Access::kRead)
      record.operands[k]->written_by.store(open_.sequence, std::memory_order_relaxed);
  for (Buffer* buffer : record.results) {
    trace.results.push_back(number_of(*buffer, graph::Origin::kResult));
    buffer->written_by.store(open_.sequence, std::memory_order_relaxed);
    open_.pending_bytes += buffer->nbytes;
  }
  trace.scalars.insert(trace.scalars.end(), record.scalars.begin(), record.scalars.end());
}

Stream::After Stream::record(const Record& record) {
  std::lock_guard lock(recording_);
  if (open_.trace.nodes.empty()) open_.trace.settings = record.settings;
  append(record);
  metrics().add(Counter::kOpsRecorded);
  if (open_.trace.nodes.size() >= static_cast<size_t>(flags::max_graph_ops()) ||
      open_.pending_bytes >= static_cast<size_t>(flags::max_graph_bytes()))
    return After::kCutGraph;
  return flags::blocking() ? After::kEndGraph : After::kNothing;
}

void Stream::note_line(std::string line) {
  std::lock_guard lock(recording_);
  if (open_.trace.nodes.empty()) return;
  open_.lines.resize(open_.trace.nodes.size());
  open_.lines.back() = std::move(line);
}

void Stream::note_event(uint64_t event) {
  std::lock_guard lock(recording_);
  if (open_.trace.nodes.empty()) return;
  open_.events.resize(open_.trace.nodes.size());
  open_.events.back() = event;
}

bool Stream::settings_differ(uint64_t settings) const {
  std::lock_guard lock(recording_);
  return !open_.trace.nodes.empty() && open_.trace.settings != settings;
}

bool Stream::uses(const Buffer& buffer) const {
  std::lock_guard lock(recording_);
  return buffer.graph > completed_.load(std::memory_order_acquire);
}

bool Stream::idle() const {
  std::lock_guard lock(recording_);
  return open_.trace.nodes.empty() &&
         completed_.load(std::memory_order_acquire) + 1 == open_.sequence;
}

// ---------------------------------------------------------------- ending a graph

bool Stream::take(OpenGraph& out) {
  std::lock_guard lock(recording_);
  if (open_.trace.nodes.empty()) return false;
  out = std::exchange(open_, {});
  open_.sequence = out.sequence + 1;
  return true;
}

// The number of nodes before the last place where the graph's first ops begin again; 0 when they never do.
size_t Stream::repetition_cut() const {
  const auto& nodes = open_.trace.nodes;
  const size_t window = std::min(kRepetitionWindow, nodes.size() / 2);
  if (window == 0) return 0;
  for (size_t at = nodes.size() - window; at >= window; --at) {
    size_t k = 0;
    while (k < window && nodes[at + k].call.get() == nodes[k].call.get()) ++k;
    if (k == window) return at;
  }
  return 0;
}

// Splits the open graph: `out` receives the first `count` nodes, the rest is recorded anew as the open graph.
bool Stream::take_prefix(size_t count, OpenGraph& out) {
  out = std::exchange(open_, {});
  open_.sequence = out.sequence + 1;
  graph::Trace& trace = out.trace;
  const std::vector<graph::TraceNode> tail(trace.nodes.begin() + static_cast<ptrdiff_t>(count),
                                           trace.nodes.end());
  if (tail.empty()) return true;
  // What the tail writes first must not look written while the tail is appended again.
  const uint32_t first_operand = tail.front().first_operand;
  const uint32_t first_result = tail.front().first_result;
  const uint32_t first_scalar = tail.front().first_scalar;
  std::vector<bool> in_prefix(out.buffers.size(), false), written(out.buffers.size(), false);
  for (size_t i = 0; i < count; ++i) {
    const graph::TraceNode& node = trace.nodes[i];
    for (size_t k = 0; k < node.call->operands.size(); ++k) {
      const uint32_t buffer = trace.operands[node.first_operand + k].buffer;
      in_prefix[buffer] = true;
      if (node.call->operands[k].access != graph::Access::kRead) written[buffer] = true;
    }
  }
  for (uint32_t r = 0; r < first_result; ++r) in_prefix[trace.results[r]] = written[trace.results[r]] = true;
  size_t kept = 0;
  for (size_t b = 0; b < out.buffers.size(); ++b) {
    Buffer& buffer = *out.buffers[b];
    if (in_prefix[b]) kept = b + 1;
    buffer.graph = in_prefix[b] ? out.sequence : 0;
    if (buffer.written_by.load(std::memory_order_relaxed) == out.sequence && !written[b])
      buffer.written_by.store(trace.origins[b] == graph::Origin::kContents ? out.sequence - 1 : 0,
                              std::memory_order_relaxed);
  }
  const size_t lines = out.lines.size(), events = out.events.size();
  std::vector<Buffer*> operands, results;
  std::vector<int64_t> offsets;
  open_.trace.settings = trace.settings;
  for (size_t i = 0; i < tail.size(); ++i) {
    const graph::TraceNode& node = tail[i];
    const size_t operand_count = node.call->operands.size();
    const size_t result_end =
        i + 1 < tail.size() ? tail[i + 1].first_result : trace.results.size();
    operands.clear();
    offsets.clear();
    results.clear();
    for (size_t k = 0; k < operand_count; ++k) {
      operands.push_back(out.buffers[trace.operands[node.first_operand + k].buffer].get());
      offsets.push_back(trace.operands[node.first_operand + k].offset);
    }
    for (size_t r = node.first_result; r < result_end; ++r)
      results.push_back(out.buffers[trace.results[r]].get());
    append({node.call, operands, offsets,
            std::span(trace.scalars).subspan(node.first_scalar, node.call->scalars.size()), results,
            trace.settings});
    open_.recorders.back() = out.recorders[count + i];
    if (count + i < lines) {
      open_.lines.resize(open_.trace.nodes.size());
      open_.lines.back() = std::move(out.lines[count + i]);
    }
    if (count + i < events) {
      open_.events.resize(open_.trace.nodes.size());
      open_.events.back() = out.events[count + i];
    }
  }
  // Numbers are given by first appearance, so the prefix uses exactly the first `kept` buffers.
  trace.nodes.resize(count);
  trace.operands.resize(first_operand);
  trace.results.resize(first_result);
  trace.scalars.resize(first_scalar);
  trace.origins.resize(kept);
  out.buffers.resize(kept);
  out.recorders.resize(count);
  if (out.lines.size() > count) out.lines.resize(count);
  if (out.events.size() > count) out.events.resize(count);
  return true;
}

template <typename Take>
std::exception_ptr Stream::enqueue(Take&& take_graph) {
  std::unique_lock queue(queue_lock_);
  queue_changed_.wait(queue, [&] { return queue_.size() < kMaxQueued || !worker_alive_; });
  start_worker();
  OpenGraph graph;
  if (take_graph(graph)) {
    graph.threads = host_.threads();
    queue_.push_back(std::move(graph));
    metrics().add(Counter::kGraphsEnded);
    queue_changed_.notify_all();
  }
  has_late_error_ = false;
  return std::exchange(late_error_, nullptr);
}

std::exception_ptr Stream::take_late_error() {
  if (!has_late_error_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard queue(queue_lock_);
  has_late_error_ = false;
  return std::exchange(late_error_, nullptr);
}

template <typename Take>
std::exception_ptr Stream::run_at_once(Take&& take_graph) {
  std::vector<Ref<Buffer>> retired;  // freed after the locks
  const std::lock_guard execution(execution_);
  OpenGraph graph;
  if (!take_graph(graph)) return nullptr;
  metrics().add(Counter::kGraphsEnded);
  const std::exception_ptr error = run(graph, retired);
  finished(graph);
  return error;
}

std::exception_ptr Stream::end_graph(std::string_view cause) {
  (void)cause;
  const auto take_all = [&](OpenGraph& graph) { return take(graph); };
  if (flags::async()) return enqueue(take_all);
  if (running_graph)  // a kernel that ends a graph would wait for itself
    return host_.explain(nullptr, "a graph was ended from inside a running graph");
  return run_at_once(take_all);
}

std::exception_ptr Stream::cut_graph() {
  const auto take_repetition = [&](OpenGraph& graph) {
    const std::lock_guard lock(recording_);
    if (open_.trace.nodes.empty()) return false;
    const size_t cut = repetition_cut();
    metrics().add(Counter::kGraphsCut);
    return take_prefix(cut ? cut : open_.trace.nodes.size(), graph);
  };
  return flags::async() ? enqueue(take_repetition) : run_at_once(take_repetition);
}

// Whoever waits for the graph goes on from here.
void Stream::finished(const OpenGraph& graph) { completed_.store(graph.sequence, std::memory_order_release); }

std::exception_ptr Stream::run(OpenGraph& graph, std::vector<Ref<Buffer>>& retired) {
  const RunningGraph mark;
  const Timeline::Run events(graph.events);
  std::optional<Spanning> span;
  if (timeline().recording())
    span.emplace(Span::Kind::kGraph, "sinter::graph", std::to_string(graph.trace.nodes.size()) + " ops", 0);
  // A buffer outlives the graph when a storage holds it, or a later graph: the rest of a graph that was cut, or one that
  // waits for the worker, may be all that uses a value whose tensor is gone.
  std::vector<bool> live(graph.buffers.size());
  {
    const std::lock_guard lock(recording_);
    for (size_t b = 0; b < live.size(); ++b)
      live[b] = graph.buffers[b]->storage_alive.load(std::memory_order_relaxed) ||
                graph.buffers[b]->graph > graph.sequence;
  }
  const uint64_t token = host_.begin_run(graph.trace.settings);
  std::exception_ptr error;
  Result<std::shared_ptr<const Executable>> executable = cache_.find_or_plan(graph.trace, live);
  if (!executable.ok()) {
    error = host_.explain(nullptr, executable.message());
    auto failure = std::make_shared<const Failure>(Failure{error});
    for (Ref<Buffer>& buffer : graph.buffers)
      if (!buffer->contents.load(std::memory_order_relaxed)) buffer->failure = failure;
  } else {
    const auto timing = metrics().time(Timer::kRun);
    const RunResult result =
        (*executable)->run({graph.buffers, graph.trace.scalars, retired, host_, graph.recorders});
    error = result.error;
    if (error) {
      if (result.failed_node < graph.lines.size() && !graph.lines[result.failed_node].empty())
        error = host_.explain(error, "recorded at " + graph.lines[result.failed_node]);
      metrics().add(Counter::kGraphFailures);
    }
  }
  host_.end_run(token);
  // What the run did not release (after an error) goes outside the locks too.
  for (Ref<Buffer>& buffer : graph.buffers)
    if (buffer) retired.push_back(std::move(buffer));
  return error;
}

// ---------------------------------------------------------------- waiting

void Stream::count_sync(std::string_view cause) {
  metrics().add_sync(cause, flags::trace_lines() ? host_.current_line() : std::string());
}

std::exception_ptr Stream::wait_for_sequence(uint64_t sequence) {
  if (completed_.load(std::memory_order_acquire) >= sequence) return take_late_error();
  bool open;
  {
    std::lock_guard lock(recording_);
    open = open_.sequence <= sequence;
  }
  if (open)
    if (std::exception_ptr error = end_graph("wait")) return error;
  if (flags::async() || worker_alive_) {
    std::unique_lock queue(queue_lock_);
    queue_changed_.wait(queue, [&] {
      return completed_.load(std::memory_order_acquire) >= sequence || !worker_alive_;
    });
    has_late_error_ = false;
    return std::exchange(late_error_, nullptr);
  }
  if (running_graph) return nullptr;
  // Another thread runs it: its lock is free again when that run is over.
  const std::lock_guard execution(execution_);
  return nullptr;
}

std::exception_ptr Stream::wait(Buffer& buffer, std::string_view cause) {
  const uint64_t sequence = buffer.written_by.load(std::memory_order_relaxed);
  if (completed_.load(std::memory_order_acquire) < sequence) {
    count_sync(cause);
    if (std::exception_ptr error = wait_for_sequence(sequence)) return error;
  }
  const std::shared_ptr<const Failure> failure = buffer.failure;
  return failure ? failure->error : nullptr;
}

std::exception_ptr Stream::wait_for_uses(Buffer& buffer, std::string_view cause) {
  uint64_t sequence;
  {
    std::lock_guard lock(recording_);
    sequence = buffer.graph;
  }
  if (completed_.load(std::memory_order_acquire) < sequence) {
    count_sync(cause);
    if (std::exception_ptr error = wait_for_sequence(sequence)) return error;
  }
  const std::shared_ptr<const Failure> failure = buffer.failure;
  return failure ? failure->error : nullptr;
}

std::exception_ptr Stream::synchronize(std::string_view cause) {
  if (idle()) return take_late_error();
  count_sync(cause);
  if (std::exception_ptr error = end_graph(cause)) return error;
  uint64_t last;
  {
    std::lock_guard lock(recording_);
    last = open_.sequence - 1;
  }
  return wait_for_sequence(last);
}

// ---------------------------------------------------------------- worker

void Stream::start_worker() {
  if (worker_alive_) return;
  worker_alive_ = true;
  std::thread([this] { work(); }).detach();
}

void Stream::work() {
  std::unique_lock queue(queue_lock_);
  while (true) {
    queue_changed_.wait(queue, [&] { return !queue_.empty(); });
    OpenGraph graph = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    queue.unlock();
    std::exception_ptr error;
    std::vector<Ref<Buffer>> retired;
    {
      std::lock_guard execution(execution_);
      if (graph.threads) host_.use_threads(graph.threads);
      error = run(graph, retired);
    }
    queue.lock();
    if (error && !late_error_) {
      late_error_ = error;
      has_late_error_ = true;
    }
    finished(graph);  // not before the error is there to be found by who waits for this graph
    running_ = false;
    queue_changed_.notify_all();
    queue.unlock();
    retired.clear();
    queue.lock();
  }
}

// ---------------------------------------------------------------- fork, inspection

void Stream::before_fork() {
  if (worker_alive_) {
    std::unique_lock queue(queue_lock_);
    queue_changed_.wait(queue, [&] { return queue_.empty() && !running_; });
    queue.release();  // stays locked; after_fork unlocks
  } else {
    queue_lock_.lock();
  }
  execution_.lock();
  recording_.lock();
}

void Stream::after_fork(bool in_child) {
  if (in_child) {
    worker_alive_ = false;
    // The parent's worker waited in it; the copy would count a waiter that does not exist here.
    new (&queue_changed_) std::condition_variable;
  }
  recording_.unlock();
  execution_.unlock();
  queue_lock_.unlock();
}

std::string Stream::open_graph_text() {
  std::lock_guard lock(recording_);
  std::vector<bool> live(open_.buffers.size());
  for (size_t b = 0; b < live.size(); ++b) live[b] = open_.buffers[b]->storage_alive;
  return to_text(build_graph(open_.trace, live));
}

std::string Stream::last_graph_text() {
  std::lock_guard lock(execution_);
  return cache_.last_text();
}

void Stream::clear_cache() {
  std::lock_guard lock(execution_);
  cache_.clear();
}

size_t Stream::cached_graphs() {
  std::lock_guard lock(execution_);
  return cache_.size();
}

}  // namespace sinter::runtime
