#include "passes/pass.h"

namespace sinter::passes {
namespace {

bool droppable(const graph::Node& node) {
  const ops::Op& op = *node.call->op;
  switch (op.op_class) {
    case ops::OpClass::kPointwise:
    case ops::OpClass::kReduction:
    case ops::OpClass::kContraction:
      return !op.has(ops::kChecksContents);
    default:
      return false;
  }
}

}  // namespace

size_t remove_dead_code(graph::Graph& graph) {
  // A buffer is needed when it is live at the end or a kept later node touches it. Writes to a needed buffer keep
  // their node; walking backwards decides every node once.
  std::vector<bool> needed(graph.buffers.size());
  for (size_t b = 0; b < graph.buffers.size(); ++b) needed[b] = graph.buffers[b].live;
  std::vector<bool> keep(graph.nodes.size(), true);
  size_t removed = 0;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const graph::Node& node = graph.nodes[i];
    bool used = !droppable(node);
    for (uint32_t buffer : node.results) used = used || needed[buffer];
    for (const graph::Definition& definition : node.definitions)
      used = used || needed[definition.value.buffer];
    if (!used) {
      keep[i] = false;
      ++removed;
      continue;
    }
    for (const graph::Use& use : node.uses) needed[use.value.buffer] = true;
  }
  if (removed) {
    size_t to = 0;
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (keep[i]) {
        if (to != i) graph.nodes[to] = std::move(graph.nodes[i]);
        ++to;
      }
    graph.nodes.resize(to);
  }
  return removed;
}

}  // namespace sinter::passes
