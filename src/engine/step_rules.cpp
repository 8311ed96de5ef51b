#include "engine/step_rules.h"

#include "runtime/metrics.h"

namespace sinter::engine {

using graph::Access;

void LibraryStep::run(const runtime::RunArguments& arguments, StepRules& rules, Scratch& scratch) const {
  scratch.operands.resize(operands_.size());
  scratch.results.resize(results_.size());
  scratch.reads.clear();
  scratch.writes.clear();
  for (size_t k = 0; k < operands_.size(); ++k) {
    runtime::Buffer* buffer = scratch.operands[k] = rules.buffer(operands_[k]);
    const Access access = call_->operands[k].access;
    if (access != Access::kWrite) scratch.reads.push_back(buffer);
    if (access != Access::kRead) scratch.writes.push_back(buffer);
  }
  std::exception_ptr error = rules.forbids(scratch.reads, scratch.writes, trace_index_);
  for (size_t k = 0; k < results_.size(); ++k)
    scratch.writes.push_back(scratch.results[k] = rules.buffer(results_[k]));
  if (!error) {
    metrics().add(Counter::kLibraryCalls);
    error = arguments.host.run({*call_, scratch.operands, offsets_,
                                arguments.scalars.subspan(first_scalar_, call_->scalars.size()), scratch.results,
                                trace_index_, own_kernels_});
  }
  if (error)
    rules.failed(error, trace_index_, scratch.writes);
  else
    StepRules::written(scratch.writes);
}

}  // namespace sinter::engine
