// The seam between the runtime and the engines: a planned graph goes in, something that runs comes out.
//
// An Executable is immutable; it may run many times, one run at a time (the stream's execution lock).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "plan/plan.h"
#include "runtime/buffer.h"
#include "runtime/host.h"
#include "support/result.h"

namespace sinter::runtime {

struct RunArguments {
  std::span<Ref<Buffer>> buffers;            // by number; released as the plan says
  std::span<const graph::Scalar> scalars;    // by slot
  std::vector<Ref<Buffer>>& retired;         // foreign buffers, to be freed outside the locks
  Host& host;
  std::span<const uint16_t> threads = {};    // which thread recorded each op of the trace; empty when all are one's
};

struct RunResult {
  std::exception_ptr error;  // null when all steps ran
  uint32_t failed_node = 0;  // index in the trace of the op that failed; later ones did not run
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual RunResult run(const RunArguments& arguments) const = 0;
  virtual size_t bytes() const = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;
  // Whether results are the framework's to the bit, so that no pass may change them in the last ones.
  virtual bool exact() const = 0;
  virtual Result<std::unique_ptr<Executable>> compile(graph::Graph graph, plan::Plan plan) = 0;
};

}  // namespace sinter::runtime
