#include "engine/reference/reference_engine.h"

#include <unordered_set>
#include <utility>

#include "runtime/metrics.h"

namespace sinter::engine {
namespace {

using graph::Access;
using graph::Call;
using runtime::Buffer;

// One op, flattened from the graph so that a run touches little memory.
struct Step {
  Ref<const Call> call;
  uint32_t first_operand;  // into operands_ and offsets_
  uint32_t first_result;   // into results_
  uint32_t result_count;
  uint32_t first_scalar;
  uint32_t trace_index;
  std::vector<uint32_t> releases;
};

class ReferenceExecutable final : public runtime::Executable {
 public:
  ReferenceExecutable(const graph::Graph& graph, plan::Plan plan) : unused_(std::move(plan.unused)) {
    steps_.reserve(plan.steps.size());
    for (plan::Step& planned : plan.steps) {
      const graph::Node& node = graph.nodes[planned.node];
      steps_.push_back({node.call, static_cast<uint32_t>(operands_.size()),
                        static_cast<uint32_t>(results_.size()),
                        static_cast<uint32_t>(node.results.size()), node.first_scalar, node.trace_index,
                        std::move(planned.releases)});
      for (const graph::Use& use : node.uses) {
        operands_.push_back(use.value.buffer);
        offsets_.push_back(use.offset);
      }
      results_.insert(results_.end(), node.results.begin(), node.results.end());
    }
  }

  runtime::RunResult run(const runtime::RunArguments& arguments) const override {
    Run state;
    for (uint32_t buffer : unused_) let_go(arguments, buffer);
    for (const Step& step : steps_) {
      gather(arguments, step, state);
      std::exception_ptr error = poison_of(step, state);
      if (!error && state.result.error && writes_contents(step, state)) error = state.result.error;
      if (!error) {
        metrics().add(Counter::kLibraryCalls);
        error = arguments.host.run(
            {*step.call, state.operands,
             std::span(offsets_).subspan(step.first_operand, state.operands.size()),
             arguments.scalars.subspan(step.first_scalar, step.call->scalars.size()), state.results,
             step.trace_index});
      }
      if (error)
        fail(step, state, error);
      else
        mark_written(step, state);
      for (uint32_t buffer : step.releases) let_go(arguments, buffer);
    }
    return state.result;
  }

  size_t bytes() const override {
    size_t total = sizeof(*this) + steps_.size() * sizeof(Step) + results_.size() * 4 +
                   operands_.size() * 12;
    for (const Step& step : steps_) total += step.releases.size() * 4;
    return total;
  }

 private:
  // After an op has failed, eager execution would not have gone on. Here later ops are recorded already: those that
  // write memory which holds values are skipped, so that it keeps them, and what depends on anything skipped gets the
  // same error. Ops that only fill new memory from healthy inputs still run: an optimizer's state that was made after the failing
  // op must be usable in the next step.
  struct Run {
    std::vector<Buffer*> operands, results;
    runtime::RunResult result;
    std::unordered_set<const Buffer*> stale;  // hold values from before a skipped write
  };

  void gather(const runtime::RunArguments& arguments, const Step& step, Run& state) const {
    state.operands.resize(step.call->operands.size());
    for (size_t k = 0; k < state.operands.size(); ++k)
      state.operands[k] = arguments.buffers[operands_[step.first_operand + k]].get();
    state.results.resize(step.result_count);
    for (size_t k = 0; k < step.result_count; ++k)
      state.results[k] = arguments.buffers[results_[step.first_result + k]].get();
  }

  static std::exception_ptr poison_of(const Step& step, const Run& state) {
    for (size_t k = 0; k < state.operands.size(); ++k) {
      const Buffer* buffer = state.operands[k];
      if (buffer->failure && step.call->operands[k].access != Access::kWrite) return buffer->failure->error;
      if (!state.stale.empty() && state.stale.count(buffer)) return state.result.error;
    }
    return nullptr;
  }

  static bool writes_contents(const Step& step, const Run& state) {
    for (size_t k = 0; k < state.operands.size(); ++k)
      if (step.call->operands[k].access != Access::kRead &&
          state.operands[k]->contents.load(std::memory_order_relaxed))
        return true;
    return false;
  }

  static void mark_written(const Step& step, const Run& state) {
    for (size_t k = 0; k < state.operands.size(); ++k)
      if (step.call->operands[k].access != Access::kRead)
        state.operands[k]->contents.store(true, std::memory_order_relaxed);
    for (Buffer* buffer : state.results) buffer->contents.store(true, std::memory_order_relaxed);
  }

  static void fail(const Step& step, Run& state, const std::exception_ptr& error) {
    if (!state.result.error) state.result = {error, step.trace_index};
    auto failure = std::make_shared<const runtime::Failure>(runtime::Failure{error});
    const auto mark = [&](Buffer* buffer) {
      if (buffer->contents.load(std::memory_order_relaxed))
        state.stale.insert(buffer);
      else
        buffer->failure = failure;
    };
    for (size_t k = 0; k < state.operands.size(); ++k)
      if (step.call->operands[k].access != Access::kRead) mark(state.operands[k]);
    for (Buffer* buffer : state.results) mark(buffer);
  }

  static void let_go(const runtime::RunArguments& arguments, uint32_t number) {
    Ref<Buffer>& buffer = arguments.buffers[number];
    if (buffer && buffer->foreign)
      arguments.retired.push_back(std::move(buffer));
    else
      buffer = nullptr;
  }

  std::vector<Step> steps_;
  std::vector<uint32_t> operands_;
  std::vector<int64_t> offsets_;
  std::vector<uint32_t> results_;
  std::vector<uint32_t> unused_;
};

class ReferenceEngine final : public runtime::Engine {
 public:
  std::string_view name() const override { return "reference"; }
  Result<std::unique_ptr<runtime::Executable>> compile(graph::Graph graph, plan::Plan plan) override {
    return std::unique_ptr<runtime::Executable>(
        std::make_unique<ReferenceExecutable>(graph, std::move(plan)));
  }
};

}  // namespace

std::unique_ptr<runtime::Engine> make_reference_engine() { return std::make_unique<ReferenceEngine>(); }

}  // namespace sinter::engine
