// The plan of a graph: the order in which its nodes run and when each buffer is let go.
//
// The schedule is program order. A buffer is released after the last node that touches it; when no storage holds it,
// its memory goes back to the allocator there, so a graph holds no more than eager execution would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace sinter::plan {

struct Step {
  uint32_t node = 0;
  std::vector<uint32_t> releases;  // buffers not touched by any later step
};

struct Plan {
  std::vector<Step> steps;
  std::vector<uint32_t> unused;  // buffers that no step touches (their ops were removed)
};

Plan make_plan(const graph::Graph& graph);

std::string to_text(const Plan& plan, const graph::Graph& graph);

}  // namespace sinter::plan
