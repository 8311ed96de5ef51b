// Passes over the graph: rows of one table, run by one function that switches, counts, dumps and verifies each.
//
// A pass changes the graph in place and says how much it changed. It keeps the graph's contract (graph/graph.h).
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "support/result.h"

namespace sinter::passes {

struct Pass {
  std::string_view name;     // a verb phrase, as SINTER_DUMP shows it
  std::string_view purpose;
  size_t (*run)(graph::Graph& graph);  // the number of changes
  bool exact = true;                   // results stay what they were, to the bit
};

const std::vector<Pass>& pass_table();

struct RunPassesOptions {
  bool verify = false;
  bool exact_only = true;  // for engines whose results are the framework's to the bit
};

// Runs every pass of the table in order. Fails only when a verifier finds a broken graph, naming the pass.
Status run_passes(graph::Graph& graph, const RunPassesOptions& options);

// Removes ops whose results nobody can see. Kept are ops that write memory which is visible, draw random numbers,
// or may raise on contents (every library call that the op table does not know to be pure).
size_t remove_dead_code(graph::Graph& graph);

// Lets an op that computes what an earlier one did take that one's result.
size_t share_equal_results(graph::Graph& graph);

// Gives images between convolutions the layout that convolutions compute in.
size_t choose_layouts(graph::Graph& graph);

}  // namespace sinter::passes
