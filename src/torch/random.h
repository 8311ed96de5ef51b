// Random ops: reserving numbers when an op is recorded and drawing them when it runs.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include "runtime/host.h"
#include "torch/torch_call.h"

namespace sinter::torch_device {

struct RandomRange {
  uint64_t seed;
  uint64_t offset;
};

// Reserves `draws` Philox counters from a generator of the device, or the default one.
RandomRange reserve(const c10::GeneratorImpl* generator, uint64_t draws);

// Draws with our own kernels where the op has one; the stack then holds the returns instead of the arguments.
// Otherwise returns false: the library kernel runs with a generator seeded from the range.
bool run_random(const TorchCall& call, const runtime::LibraryCall& node, torch::jit::Stack& stack);

// The default generator of the device, and a new one.
const at::Generator& default_generator();
at::Generator new_generator();

}  // namespace sinter::torch_device
