#include "passes/pass.h"

namespace sinter::passes {

const std::vector<Pass>& pass_table() {
  static const std::vector<Pass> table = {
      {"remove-dead-code", "drop ops whose results nobody can see", remove_dead_code},
      {"share-equal-results", "compute once what is asked for several times", share_equal_results},
      {"choose-layouts", "keep channels last between convolutions", choose_layouts, false},
  };
  return table;
}

Status run_passes(graph::Graph& graph, const RunPassesOptions& options) {
  if (options.verify)
    if (Status status = verify(graph); !status.ok()) return status;
  for (const Pass& pass : pass_table()) {
    if (options.exact_only && !pass.exact) continue;
    pass.run(graph);
    if (!options.verify) continue;
    if (Status status = verify(graph); !status.ok())
      return bug("after pass " + std::string(pass.name) + ": " + status.message());
  }
  return Status();
}

}  // namespace sinter::passes
