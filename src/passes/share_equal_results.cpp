// Common subexpressions: an op that computes again what an earlier one did takes that one's result.
//
// Under autocast an activation is cast for each layer that reads it, and backward formulas of different ops begin alike.
// Two nodes are the same computation when they share a call (so metadata and fixed arguments are equal), have no scalars
// (whose values come when the graph runs) and read the same values at the same offsets. A copy into memory that nobody
// wrote before counts as an op with a result. The later result must be hidden and neither may be written afterwards.
#include <optional>
#include <unordered_map>

#include "passes/pass.h"
#include "support/hash.h"

namespace sinter::passes {
namespace {

using graph::Node;
using graph::Value;

bool is_pure(const ops::Op& op) {
  switch (op.op_class) {
    case ops::OpClass::kPointwise:
    case ops::OpClass::kReduction:
    case ops::OpClass::kContraction:
      return !op.has(ops::kChecksContents) && !op.has(ops::kRandom) && !op.has(ops::kReadsGradMode);
    default:
      return false;
  }
}

// Operand 0 is filled from the others.
bool is_first_copy(const graph::Graph& graph, const Node& node) {
  if (node.call->name != "aten::copy_" || node.definitions.size() != 1 || node.definitions[0].operand != 0) return false;
  const graph::BufferInfo& to = graph.buffers[node.uses[0].value.buffer];
  return to.origin == graph::Origin::kEmpty && node.uses[0].value.version == 0 && node.uses[0].offset == 0 &&
         node.call->operands[0].meta.dense();
}

// What a node computes, if it is a function of values alone; the values that it leaves behind.
std::optional<std::vector<Value>> outcome(const graph::Graph& graph, const Node& node) {
  if (!node.call->scalars.empty()) return std::nullopt;
  std::vector<Value> values;
  if (is_first_copy(graph, node)) {
    values.push_back(node.definitions[0].value);
  } else if (is_pure(*node.call->op) && node.definitions.empty()) {
    for (const uint32_t buffer : node.results) values.push_back({buffer, 0});
  }
  if (values.empty()) return std::nullopt;
  for (const Value& value : values)
    if (graph.buffers[value.buffer].versions != value.version + 1) return std::nullopt;  // written afterwards
  return values;
}

struct Computation {
  const graph::Call* call;
  std::vector<std::pair<Value, int64_t>> reads;
  bool operator==(const Computation&) const = default;
};

struct HashOf {
  size_t operator()(const Computation& computation) const {
    Hasher hasher(reinterpret_cast<uintptr_t>(computation.call));
    for (const auto& [value, offset] : computation.reads)
      hasher.add(uint64_t{value.buffer}).add(uint64_t{value.version}).add(static_cast<uint64_t>(offset));
    return hasher.finish();
  }
};

}  // namespace

size_t share_equal_results(graph::Graph& graph) {
  std::unordered_map<Computation, std::vector<Value>, HashOf> known;
  std::vector<std::optional<Value>> replaced(graph.buffers.size());  // by buffer: all its values are one
  size_t to = 0, removed = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (graph::Use& use : node.uses)
      if (replaced[use.value.buffer]) use.value = *replaced[use.value.buffer];
    bool drop = false;
    if (const auto values = outcome(graph, node)) {
      Computation computation{node.call.get(), {}};
      for (size_t k = node.definitions.empty() ? 0 : 1; k < node.uses.size(); ++k)
        computation.reads.emplace_back(node.uses[k].value, node.uses[k].offset);
      const auto [it, fresh] = known.emplace(std::move(computation), *values);
      drop = !fresh;
      for (const Value& value : *values) drop = drop && !graph.buffers[value.buffer].live;
      if (drop)
        for (size_t v = 0; v < values->size(); ++v) replaced[(*values)[v].buffer] = it->second[v];
    }
    if (drop) {
      ++removed;
      continue;
    }
    if (to != i) graph.nodes[to] = std::move(node);
    ++to;
  }
  graph.nodes.resize(to);
  return removed;
}

}  // namespace sinter::passes
