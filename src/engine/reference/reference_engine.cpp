#include "engine/reference/reference_engine.h"

#include <utility>

#include "engine/step_rules.h"

namespace sinter::engine {
namespace {

class ReferenceExecutable final : public runtime::Executable {
 public:
  ReferenceExecutable(const graph::Graph& graph, plan::Plan plan) : unused_(std::move(plan.unused)) {
    steps_.reserve(plan.steps.size());
    for (plan::Step& planned : plan.steps)
      steps_.push_back({LibraryStep(graph.nodes[planned.node], false), std::move(planned.releases)});
  }

  runtime::RunResult run(const runtime::RunArguments& arguments) const override {
    StepRules rules(arguments);
    LibraryStep::Scratch scratch;
    for (uint32_t buffer : unused_) rules.let_go(buffer);
    for (const Step& step : steps_) {
      step.op.run(arguments, rules, scratch);
      for (uint32_t buffer : step.releases) rules.let_go(buffer);
    }
    return rules.result();
  }

  size_t bytes() const override {
    size_t total = sizeof(*this);
    for (const Step& step : steps_) total += step.op.bytes() + step.releases.size() * 4;
    return total;
  }

 private:
  struct Step {
    LibraryStep op;
    std::vector<uint32_t> releases;
  };

  std::vector<Step> steps_;
  std::vector<uint32_t> unused_;
};

class ReferenceEngine final : public runtime::Engine {
 public:
  std::string_view name() const override { return "reference"; }
  bool exact() const override { return true; }
  Result<std::unique_ptr<runtime::Executable>> compile(graph::Graph graph, plan::Plan plan) override {
    return std::unique_ptr<runtime::Executable>(
        std::make_unique<ReferenceExecutable>(graph, std::move(plan)));
  }
};

}  // namespace

std::unique_ptr<runtime::Engine> make_reference_engine() { return std::make_unique<ReferenceEngine>(); }

}  // namespace sinter::engine
