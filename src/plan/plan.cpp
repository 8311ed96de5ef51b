#include "plan/plan.h"

namespace sinter::plan {
namespace {

constexpr uint32_t kNever = ~0u;

template <typename F>
void each_buffer(const graph::Node& node, F&& f) {
  for (const graph::Use& use : node.uses) f(use.value.buffer);
  for (uint32_t buffer : node.results) f(buffer);
}

}  // namespace

Plan make_plan(const graph::Graph& graph) {
  std::vector<uint32_t> last(graph.buffers.size(), kNever);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    each_buffer(graph.nodes[i], [&](uint32_t buffer) { last[buffer] = i; });
  Plan plan;
  plan.steps.resize(graph.nodes.size());
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) plan.steps[i].node = i;
  for (uint32_t buffer = 0; buffer < last.size(); ++buffer) {
    if (last[buffer] == kNever)
      plan.unused.push_back(buffer);
    else
      plan.steps[last[buffer]].releases.push_back(buffer);
  }
  return plan;
}

std::string to_text(const Plan& plan, const graph::Graph& graph) {
  std::string out = "plan {\n";
  for (const Step& step : plan.steps) {
    out += "  " + std::to_string(step.node) + " " + graph.nodes[step.node].call->name;
    if (!step.releases.empty()) {
      out += "  release";
      for (uint32_t buffer : step.releases) out += " %" + std::to_string(buffer);
    }
    out += '\n';
  }
  return out + "}\n";
}

}  // namespace sinter::plan
