#include "graph/trace.h"

#include "support/hash.h"

namespace sinter::graph {

void Trace::clear() {
  nodes.clear();
  operands.clear();
  results.clear();
  scalars.clear();
  origins.clear();
  settings = 0;
}

uint64_t Trace::hash() const {
  Hasher hasher;
  hasher.add(settings);
  hasher.add(uint64_t{nodes.size()});
  for (const TraceNode& node : nodes) hasher.add(node.call->id);
  for (const TraceOperand& operand : operands) {
    hasher.add(uint64_t{operand.buffer});
    hasher.add(static_cast<uint64_t>(operand.offset));
  }
  for (Origin origin : origins) hasher.add(static_cast<uint64_t>(origin));
  return hasher.finish();
}

bool Trace::same_program(const Trace& other) const {
  if (settings != other.settings || nodes.size() != other.nodes.size() ||
      operands != other.operands || results != other.results || origins != other.origins)
    return false;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].call.get() != other.nodes[i].call.get()) return false;
  return true;
}

size_t Trace::bytes() const {
  return nodes.size() * sizeof(TraceNode) + operands.size() * sizeof(TraceOperand) +
         results.size() * sizeof(uint32_t) + origins.size() * sizeof(Origin) +
         scalars.size() * sizeof(Scalar);
}

}  // namespace sinter::graph
