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
  bool own_kernels = false;          // a kernel of ours may stand in for the framework's
};

class Host {
 public:
  virtual ~Host() = default;

  // Runs the framework's own kernel on the buffers' memory. An error is returned, not thrown.
  virtual std::exception_ptr run(const LibraryCall& call) = 0;
  // Adds to an error what was being run ("while running …") and where it was recorded, keeping its type.
  virtual std::exception_ptr explain(std::exception_ptr error, const std::string& what) = 0;
  // Gives a buffer its memory, if it has none. An error (out of memory) is returned, not thrown.
  virtual std::exception_ptr give_memory(Buffer& buffer) = 0;
  // Calls body(context, begin, end) for parts of [0, n), none smaller than `grain`, on the framework's own threads.
  virtual void parallel_for(int64_t n, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end),
                            void* context) = 0;
  // Called when a buffer that a storage can see has received its memory.
  virtual void memory_attached(Buffer& buffer) = 0;
  // The user's line that is running now, or nothing; asked for only when lines are traced, with no lock held.
  virtual std::string current_line() { return {}; }
  // How many threads kernels called from this thread use; the worker is told the number of who ended the graph.
  virtual int threads() { return 0; }
  virtual void use_threads(int) {}
  // Brackets the run of a graph that was recorded under `settings`; returns what end_run restores.
  virtual uint64_t begin_run(uint64_t settings) = 0;
  virtual void end_run(uint64_t token) = 0;
};

}  // namespace sinter::runtime
