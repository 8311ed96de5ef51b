// What happens to buffers when a step runs, fails, or depends on one that failed. Shared by all engines.
//
// After an op has failed, eager execution would not have gone on. Here later ops are recorded already: those that write
// memory which holds values are skipped, so that it keeps them, and what depends on anything skipped gets the same
// error. What another thread recorded would have gone on, and does. Ops that only fill new memory from healthy inputs
// still run: an optimizer's state that was made after the failing op must be usable in the next step.
#pragma once

#include <span>
#include <unordered_set>
#include <utility>

#include "runtime/executable.h"

namespace sinter::engine {

class StepRules {
 public:
  explicit StepRules(const runtime::RunArguments& arguments) : arguments_(arguments) {}

  runtime::Buffer* buffer(uint32_t number) const { return arguments_.buffers[number].get(); }

  // The error that forbids a step to run, or null. `reads` and `writes` are what it touches; a buffer that is both
  // read and written stands in both. `trace_index`: of the step's last op. Engines may run steps later than the program
  // says: what came before the failing op has been computed for eager, too, and is not skipped.
  std::exception_ptr forbids(std::span<runtime::Buffer* const> reads, std::span<runtime::Buffer* const> writes,
                             uint32_t trace_index) const {
    for (const runtime::Buffer* buffer : reads) {
      if (buffer->failure) return buffer->failure->error;
      if (!stale_.empty() && stale_.count(buffer)) return result_.error;
    }
    for (const runtime::Buffer* buffer : writes) {
      if (!stale_.empty() && stale_.count(buffer)) return result_.error;
      if (result_.error && trace_index > result_.failed_node && same_thread(trace_index) &&
          buffer->contents.load(std::memory_order_relaxed))
        return result_.error;
    }
    return nullptr;
  }

  static void written(std::span<runtime::Buffer* const> writes) {
    for (runtime::Buffer* buffer : writes) buffer->contents.store(true, std::memory_order_relaxed);
  }

  void failed(const std::exception_ptr& error, uint32_t trace_index, std::span<runtime::Buffer* const> writes) {
    if (!result_.error) result_ = {error, trace_index};
    const auto failure = std::make_shared<const runtime::Failure>(runtime::Failure{error});
    for (runtime::Buffer* buffer : writes) {
      if (buffer->contents.load(std::memory_order_relaxed))
        stale_.insert(buffer);
      else
        buffer->failure = failure;
    }
  }

  void let_go(uint32_t number) {
    Ref<runtime::Buffer>& buffer = arguments_.buffers[number];
    if (buffer && buffer->foreign)
      arguments_.retired.push_back(std::move(buffer));
    else
      buffer = nullptr;
  }

  const runtime::RunResult& result() const { return result_; }

 private:
  bool same_thread(uint32_t trace_index) const {
    const auto& threads = arguments_.threads;
    return threads.empty() || threads[trace_index] == threads[result_.failed_node];
  }

  const runtime::RunArguments& arguments_;
  runtime::RunResult result_;
  std::unordered_set<const runtime::Buffer*> stale_;  // hold values from before a skipped write
};

// A node of the graph that a ready kernel runs: the framework's, or one of ours where the engine allows it.
class LibraryStep {
 public:
  LibraryStep(const graph::Node& node, bool own_kernels)
      : call_(node.call),
        results_(node.results),
        first_scalar_(node.first_scalar),
        trace_index_(node.trace_index),
        own_kernels_(own_kernels) {
    for (const graph::Use& use : node.uses) {
      operands_.push_back(use.value.buffer);
      offsets_.push_back(use.offset);
    }
  }

  // Buffers of one step at a time; kept to be reused.
  struct Scratch {
    std::vector<runtime::Buffer*> operands, results, reads, writes;
  };

  void run(const runtime::RunArguments& arguments, StepRules& rules, Scratch& scratch) const;
  size_t bytes() const { return sizeof(*this) + operands_.size() * 12 + results_.size() * 4; }

 private:
  Ref<const graph::Call> call_;
  std::vector<uint32_t> operands_;
  std::vector<int64_t> offsets_;
  std::vector<uint32_t> results_;
  uint32_t first_scalar_;
  uint32_t trace_index_;
  bool own_kernels_;
};

}  // namespace sinter::engine
