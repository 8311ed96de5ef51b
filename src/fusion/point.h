// Turning nodes of a graph into points.
#pragma once

#include <vector>

#include "fusion/fuse.h"

namespace sinter::fusion {

struct PlacedPoint {
  Point point;
  std::vector<int64_t> sizes;  // its iteration space, in the order of the output's memory
};

// The points of a node; empty when the node is not elementwise or is one of the cases that only PyTorch's own kernel
// gets right (overlapping outputs, mixed types in place, lazy conjugation, ...).
std::vector<PlacedPoint> points_of(const graph::Graph& graph, uint32_t node);

// Splits the dimensions of two iteration spaces until they are the same; false when they have no common refinement.
// `strides` are those of all views over each space, and are split along.
bool refine(std::vector<int64_t>& a, const std::vector<std::vector<int64_t>*>& strides_a, std::vector<int64_t>& b,
            const std::vector<std::vector<int64_t>*>& strides_b);

}  // namespace sinter::fusion
