#include "graph/graph.h"

namespace sinter::graph {
namespace {

Status bad(size_t node, const Graph& graph, const std::string& what) {
  return bug("graph: node " + std::to_string(node) + " (" + graph.nodes[node].call->name +
                     "): " + what);
}

}  // namespace

Status verify(const Graph& graph) {
  // Passes may remove nodes, so a version may be missing; what is used must have been defined before.
  std::vector<std::vector<bool>> defined(graph.buffers.size());
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    defined[b].resize(graph.buffers[b].versions, false);
    if (graph.buffers[b].origin != Origin::kResult && !defined[b].empty()) defined[b][0] = true;
  }
  const auto known = [&](const Value& value) {
    return value.buffer < defined.size() && value.version < defined[value.buffer].size();
  };
  uint32_t last_index = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!node.call) return bug("graph: node " + std::to_string(i) + " calls nothing");
    if (i && node.trace_index <= last_index) return bad(i, graph, "out of program order");
    last_index = node.trace_index;
    if (node.uses.size() != node.call->operands.size())
      return bad(i, graph, "the number of uses differs from the call's operands");
    for (const Use& use : node.uses) {
      if (!known(use.value)) return bad(i, graph, "uses an unknown value");
      if (!defined[use.value.buffer][use.value.version])
        return bad(i, graph,
                   "uses %" + std::to_string(use.value.buffer) + "." +
                       std::to_string(use.value.version) + " before it is defined");
      if (use.offset < 0) return bad(i, graph, "uses a negative offset");
    }
    size_t writes = 0;
    for (const Operand& operand : node.call->operands) writes += operand.access != Access::kRead;
    if (writes != node.definitions.size())
      return bad(i, graph, "the number of definitions differs from the operands written");
    for (const Definition& definition : node.definitions) {
      if (definition.operand >= node.uses.size() ||
          node.uses[definition.operand].value.buffer != definition.value.buffer)
        return bad(i, graph, "defines a buffer that it does not use");
      if (!known(definition.value)) return bad(i, graph, "defines an unknown value");
      if (defined[definition.value.buffer][definition.value.version])
        return bad(i, graph, "defines a value twice");
      defined[definition.value.buffer][definition.value.version] = true;
    }
    size_t results = 0;
    for (const TensorMeta& meta : node.call->results) results += meta.defined;
    if (results != node.results.size())
      return bad(i, graph, "the number of results differs from the call's");
    for (uint32_t buffer : node.results) {
      if (buffer >= graph.buffers.size() || graph.buffers[buffer].origin != Origin::kResult)
        return bad(i, graph, "result buffer is not one");
      if (defined[buffer].empty() || defined[buffer][0]) return bad(i, graph, "result defined twice");
      defined[buffer][0] = true;
    }
  }
  return Status();
}

}  // namespace sinter::graph
