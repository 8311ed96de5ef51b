// The ops recorded since the last graph ended, in call order, with buffers numbered by first appearance.
//
// A trace is at once the input of the graph builder and the key of the graph cache: two traces that compare
// equal mean the same program. Scalar values are inputs and take no part in the comparison.
// Not thread-safe: the stream's recording lock guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/call.h"

namespace sinter::graph {

enum class Origin : uint8_t {
  kContents,  // existed before the graph and holds values
  kEmpty,     // existed before the graph, never written
  kResult,    // made by an op of the graph
};

struct TraceOperand {
  uint32_t buffer;  // number within the trace
  int64_t offset;   // storage offset of the view, in elements
  bool operator==(const TraceOperand&) const = default;
};

struct TraceNode {
  Ref<const Call> call;
  uint32_t first_operand;
  uint32_t first_result;
  uint32_t first_scalar;
};

struct Trace {
  std::vector<TraceNode> nodes;
  std::vector<TraceOperand> operands;
  std::vector<uint32_t> results;  // buffer numbers
  std::vector<Scalar> scalars;
  std::vector<Origin> origins;    // one per buffer
  uint64_t settings = 0;          // fingerprint of process settings that kernels read

  void clear();
  uint64_t hash() const;
  // Equal but for the values of scalars.
  bool same_program(const Trace& other) const;
  size_t bytes() const;
};

}  // namespace sinter::graph
