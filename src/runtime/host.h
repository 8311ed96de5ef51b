// What the runtime needs from the framework it lives in; src/torch implements it, tests use a plain one.
//
// All functions are called with the execution lock held, on the thread that runs the graph.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include "graph/call.h"
#include "runtime/buffer.h"

namespace sinter::runtime {

// One op of a graph with what differs between its uses.
struct LibraryCall {
  const graph::Call& call;
  std::span<Buffer* const> operands;
  std::span<const int64_t> offsets;  // storage offset of each operand, in elements
  std::span<const graph::Scalar> scalars;
  std::span<Buffer* const> results;  // receive memory
  uint32_t trace_index = 0;          // of the op in the graph's trace
};

class Host {
 public:
  virtual ~Host() = default;

  // Runs the framework's own kernel on the buffers' memory. An error is returned, not thrown.
  virtual std::exception_ptr run(const LibraryCall& call) = 0;
  // Adds to an error what was being run ("while running …") and where it was recorded, keeping its type.
  virtual std::exception_ptr explain(std::exception_ptr error, const std::string& what) = 0;
  // Called when a buffer that a storage can see has received its memory.
  virtual void memory_attached(Buffer& buffer) = 0;
  // The user's line that is running now, or nothing; asked for only when lines are traced, with no lock held.
  virtual std::string current_line() { return {}; }
  // Brackets the run of a graph that was recorded under `settings`; returns what end_run restores.
  virtual uint64_t begin_run(uint64_t settings) = 0;
  virtual void end_run(uint64_t token) = 0;
};

}  // namespace sinter::runtime
