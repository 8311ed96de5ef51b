// Groups to kernels: the expressions of a group's points as one loop body, with what its memory and scalars are.
#pragma once

#include <vector>

#include "fusion/fuse.h"
#include "loops/kernel.h"

namespace sinter::loops {

struct BoundAccess {
  uint32_t buffer = 0;
  int64_t offset = 0;  // elements
};

struct BoundScalar {
  uint32_t slot = 0;               // of the graph's scalars
  graph::ScalarKind kind = graph::ScalarKind::kFloat;
  bool host_tensor = false;        // the bytes are of `dtype`
  graph::DType dtype = graph::DType::kFloat64;
  Type to = Type::kFloat;          // what the kernel expects
};

// A group as a kernel and the arguments it runs with.
struct Loop {
  Kernel kernel;
  std::vector<BoundAccess> accesses;
  std::vector<int64_t> strides;  // of access 0, then 1, ...; outermost first
  std::vector<int64_t> sizes;    // as many as the kernel's rank
  std::vector<BoundScalar> scalars;

  int64_t points() const;        // of the whole nest
};

// stored[p]: point p leaves its output in memory. Fails (kUnsupported) where an expression uses what the kernel
// language lacks.
Result<Loop> lower_stored(const graph::Graph& graph, const fusion::Group& group, const std::vector<bool>& stored);

// visible(buffer): something outside the group sees what the group leaves in the buffer.
template <typename Visible>
Result<Loop> lower(const graph::Graph& graph, const fusion::Group& group, Visible&& visible) {
  std::vector<bool> stored(group.points.size());
  for (size_t p = 0; p < stored.size(); ++p) {
    bool last = true;  // of the writes into its buffer
    for (size_t later = p + 1; later < stored.size(); ++later)
      last = last && group.points[later].output.value.buffer != group.points[p].output.value.buffer;
    stored[p] = last && visible(group.points[p].output.value.buffer);
  }
  return lower_stored(graph, group, stored);
}

}  // namespace sinter::loops
