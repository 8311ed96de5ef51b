// The sinter device in C++ programs that use libtorch. No Python is needed.
//
//   torch::Device device = sinter::device();
//   sinter::to(*model, device);
//   torch::Tensor loss = loss_of(model->forward(x.to(device)), y.to(device));
//   loss.backward();
//   optimizer.step();
//   sinter::end_graph();
//
// Linking libtorch_sinter registers the device; everything that takes a torch::Device then takes this one, and
// torch::manual_seed seeds its generator. Operations are recorded and run when a graph ends: at end_graph() or
// sync(), or when a value is read (item(), a copy to the CPU, torch::save, printing). libtorch's C++ optimizers tell
// nobody that a step is over, so call end_graph() there; without it a graph grows to its bound before it runs.
// Errors are thrown as libtorch throws them. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>

namespace torch::nn {
class Module;
}

#define SINTER_API __attribute__((visibility("default")))

namespace sinter {

SINTER_API const char* version();

// Makes the device ready: a later first use does it as well. Throws where another out-of-tree backend has taken
// PyTorch's one place for such devices.
SINTER_API void init();
SINTER_API bool is_available() noexcept;
SINTER_API c10::Device device();

// Moves parameters, buffers and gradients. The parameters stay the same tensor objects, so that weights which are
// tied stay tied and an optimizer made before keeps working.
SINTER_API void to(torch::nn::Module& module, c10::Device device = sinter::device());

// Ends the open graph, which runs before this returns unless SINTER_ASYNC=1 queues it. The end of a training step.
SINTER_API void end_graph();
// Ends the open graph and waits until everything recorded has run.
SINTER_API void sync();

// Seeds the device's generator alone; torch::manual_seed seeds it too.
SINTER_API void manual_seed(uint64_t seed);

struct MemoryStats {
  int64_t allocated = 0;  // bytes that tensors hold
  int64_t peak_allocated = 0;
  int64_t reserved = 0;  // bytes taken from the system, those kept for reuse included
  int64_t peak_reserved = 0;
};
SINTER_API MemoryStats memory_stats();
SINTER_API void reset_peak_memory_stats();
// Gives memory that no tensor uses back to the system.
SINTER_API void empty_cache();

// Counters, timers and the causes of syncs since the start or the last reset, as a JSON object.
SINTER_API std::string metrics_json();
SINTER_API void reset_metrics();
// Graphs planned so far: a training loop that repeats its steps stops adding to it.
SINTER_API int64_t compiles();

}  // namespace sinter
