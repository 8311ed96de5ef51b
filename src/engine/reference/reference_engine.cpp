#include "engine/reference/reference_engine.h"

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
    std::vector<Buffer*> operands, results;
    for (uint32_t buffer : unused_) let_go(arguments, buffer);
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const size_t operand_count = step.call->operands.size();
      operands.resize(operand_count);
      for (size_t k = 0; k < operand_count; ++k)
        operands[k] = arguments.buffers[operands_[step.first_operand + k]].get();
      results.resize(step.result_count);
      for (size_t k = 0; k < step.result_count; ++k)
        results[k] = arguments.buffers[results_[step.first_result + k]].get();

      std::exception_ptr error = poison_of(*step.call, operands);
      if (!error) {
        error = arguments.host.run({*step.call, operands,
                                    std::span(offsets_).subspan(step.first_operand, operand_count),
                                    arguments.scalars.subspan(step.first_scalar, step.call->scalars.size()),
                                    results});
        metrics().add(Counter::kLibraryCalls);
      }
      if (error) {
        poison(arguments, i, error);
        return {error, step.trace_index};
      }
      for (size_t k = 0; k < operand_count; ++k)
        if (step.call->operands[k].access != Access::kRead)
          operands[k]->contents.store(true, std::memory_order_relaxed);
      for (Buffer* buffer : results) buffer->contents.store(true, std::memory_order_relaxed);
      for (uint32_t buffer : step.releases) let_go(arguments, buffer);
    }
    return {};
  }

  size_t bytes() const override {
    size_t total = sizeof(*this) + steps_.size() * sizeof(Step) + results_.size() * 4 +
                   operands_.size() * 12;
    for (const Step& step : steps_) total += step.releases.size() * 4;
    return total;
  }

 private:
  static std::exception_ptr poison_of(const Call& call, const std::vector<Buffer*>& operands) {
    for (size_t k = 0; k < operands.size(); ++k)
      if (operands[k]->failure && call.operands[k].access != Access::kWrite)
        return operands[k]->failure->error;
    return nullptr;
  }

  // Buffers that the failing op and those after it would have written for the first time.
  void poison(const runtime::RunArguments& arguments, size_t from, std::exception_ptr error) const {
    auto failure = std::make_shared<const runtime::Failure>(runtime::Failure{std::move(error)});
    const auto mark = [&](uint32_t number) {
      Buffer* buffer = arguments.buffers[number].get();
      if (buffer && !buffer->contents.load(std::memory_order_relaxed)) buffer->failure = failure;
    };
    for (size_t i = from; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      for (size_t k = 0; k < step.call->operands.size(); ++k)
        if (step.call->operands[k].access != Access::kRead) mark(operands_[step.first_operand + k]);
      for (size_t k = 0; k < step.result_count; ++k) mark(results_[step.first_result + k]);
    }
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
