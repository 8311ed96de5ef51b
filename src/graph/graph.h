// The graph IR: what a trace means.
//
// Contract. A graph is a list of nodes in program order. Each node calls one op. Memory is named by buffers; a
// buffer's contents at one moment are a Value, written %buffer.version. A node uses values through views (element
// type, sizes, strides, offset) and defines new ones: its results (version 0 of a new buffer) and, for each operand
// it writes, the next version of that buffer. A use names the version current at that point of the program, so two
// nodes may be exchanged exactly when neither uses or defines a version that the other defines. A definition is
// `whole` when it overwrites the entire buffer, so that earlier versions do not flow into it.
// Evaluation order, overflow and rounding are those of the op called; there is no implicit conversion.
//
// A graph owns its nodes; passes hold indices. verify() checks the contract; to_text() shows everything but the values
// of scalars.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/call.h"
#include "graph/trace.h"
#include "support/result.h"

namespace sinter::graph {

struct Value {
  uint32_t buffer = 0;
  uint32_t version = 0;
  bool operator==(const Value&) const = default;
};

struct Use {
  Value value;
  int64_t offset = 0;  // elements
};

struct Definition {
  uint32_t operand = 0;  // which operand of the node is written
  Value value;           // the version that the write makes
  bool whole = false;
};

struct Node {
  Ref<const Call> call;
  std::vector<Use> uses;                // one per operand of the call
  std::vector<Definition> definitions;  // one per written operand
  std::vector<uint32_t> results;        // buffers of the fresh results
  uint32_t first_scalar = 0;
  uint32_t trace_index = 0;             // where it was recorded
};

struct BufferInfo {
  Origin origin = Origin::kContents;
  bool live = true;         // visible after the graph has run
  uint32_t versions = 1;    // versions made so far
};

struct Graph {
  std::vector<BufferInfo> buffers;
  std::vector<Node> nodes;
};

// live[b] says whether some tensor can see buffer b when the graph ends.
Graph build_graph(const Trace& trace, const std::vector<bool>& live);

// Checks the contract above; the message names the node.
Status verify(const Graph& graph);

std::string to_text(const Graph& graph);

}  // namespace sinter::graph
