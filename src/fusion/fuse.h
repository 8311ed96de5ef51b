// Which nodes of a graph run together: elementwise computations of one iteration space become one group.
//
// A Point is one elementwise computation with one output: a node, or one element of a node over lists of tensors
// (foreach). Points that depend on each other and walk over memory alike share a Group; a group is delayed until
// something that cannot join it needs it, so the order of everything that touches the same buffer stays the program's.
// Groups of one `wave` were closed together and do not depend on each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/lowering.h"

namespace sinter::fusion {

// Memory of one buffer as the points of a group meet it.
struct View {
  graph::Value value;            // read: the version met; written: the version made
  graph::DType dtype;
  int64_t offset = 0;            // elements
  std::vector<int64_t> strides;  // one per dimension of the group's iteration space; 0 where broadcast
};

struct Point {
  uint32_t node = 0;
  uint32_t element = 0;                    // of the lists; 0 for others
  const ops::ParsedLowering* lowering = nullptr;
  graph::DType common = graph::DType::kFloat32;  // the dtype in which the op computes
  std::vector<View> inputs;                // in operand order
  std::vector<uint32_t> operands;          // of the call, for each input
  View output;
};

struct Group {
  std::vector<int64_t> sizes;  // the iteration space, outermost first; no dimension of size 1
  std::vector<Point> points;   // in program order
  uint32_t wave = 0;
};

struct Item {
  enum class Kind : uint8_t { kLibrary, kGroup };
  Kind kind = Kind::kLibrary;
  uint32_t index = 0;  // of the node, or of the group
};

struct Schedule {
  std::vector<Item> items;
  std::vector<Group> groups;
};

Schedule fuse(const graph::Graph& graph);

std::string to_text(const Schedule& schedule, const graph::Graph& graph);

}  // namespace sinter::fusion
