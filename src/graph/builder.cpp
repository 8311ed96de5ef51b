// Trace to graph: numbers the versions of each buffer in program order.
#include "graph/graph.h"

namespace sinter::graph {
namespace {

// A write overwrites the whole buffer when its view is dense, starts at the buffer's first element and reaches
// its known extent: that of the op that made the buffer. The extent of a buffer from outside is not known here.
bool covers(const Operand& operand, int64_t offset, size_t extent) {
  return operand.access == Access::kWrite && offset == 0 && extent != 0 && operand.meta.dense() &&
         operand.meta.extent_bytes() >= extent;
}

}  // namespace

Graph build_graph(const Trace& trace, const std::vector<bool>& live) {
  Graph graph;
  graph.buffers.resize(trace.origins.size());
  std::vector<size_t> extents(trace.origins.size(), 0);
  for (size_t b = 0; b < trace.origins.size(); ++b) {
    graph.buffers[b].origin = trace.origins[b];
    graph.buffers[b].live = b >= live.size() || live[b];
  }
  graph.nodes.reserve(trace.nodes.size());
  for (uint32_t i = 0; i < trace.nodes.size(); ++i) {
    const TraceNode& recorded = trace.nodes[i];
    const Call& call = *recorded.call;
    Node node;
    node.call = recorded.call;
    node.first_scalar = recorded.first_scalar;
    node.trace_index = i;
    node.uses.reserve(call.operands.size());
    for (uint32_t k = 0; k < call.operands.size(); ++k) {
      const TraceOperand& operand = trace.operands[recorded.first_operand + k];
      node.uses.push_back({{operand.buffer, graph.buffers[operand.buffer].versions - 1}, operand.offset});
    }
    // Definitions come after all uses: an op reads its operands before it writes them.
    for (uint32_t k = 0; k < call.operands.size(); ++k) {
      if (call.operands[k].access == Access::kRead) continue;
      const TraceOperand& operand = trace.operands[recorded.first_operand + k];
      BufferInfo& buffer = graph.buffers[operand.buffer];
      node.definitions.push_back({k,
                                  {operand.buffer, buffer.versions++},
                                  covers(call.operands[k], operand.offset, extents[operand.buffer])});
    }
    for (uint32_t r = 0; r < call.results.size(); ++r) {
      if (!call.results[r].defined) continue;
      const uint32_t buffer = trace.results[recorded.first_result + node.results.size()];
      extents[buffer] = call.results[r].extent_bytes();
      node.results.push_back(buffer);
    }
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

}  // namespace sinter::graph
