// Random ops: reserving numbers when an op is recorded and drawing them when it runs.
//
// Element i of a result is drawn at (seed, offset, i), i counting in row-major order whatever the strides; see
// runtime/philox.h. Ops without a kernel here run PyTorch's own with a CPU generator that (seed, offset) seeds.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include <span>

#include "graph/call.h"
#include "torch/op_info.h"
#include "torch/torch_call.h"

namespace sinter::torch_device {

struct RandomRange {
  uint64_t seed;
  uint64_t offset;
};

// Reserves `draws` Philox counters from a generator of the device, or the default one.
RandomRange reserve(const c10::GeneratorImpl* generator, uint64_t draws);

// ---- when an op is recorded
// How many counters a call reserves. Its results must be known.
uint64_t draws_of(const TorchCall& call);
// Fills results and returns where they are known without a trial, after asking PyTorch's kernel about dtypes and
// arguments. False: try it. Throws what the op would throw.
bool infer_random(const OpInfo& info, const torch::jit::Stack& stack, TorchCall& call);
// Values of scalars are not part of a call, so they are checked each time. Throws what the op would throw.
void check_random_scalars(const TorchCall& call, std::span<const graph::Scalar> scalars);

// ---- when it runs
// Draws with our own kernels where the op has one; the stack then holds the returns instead of the arguments.
// Otherwise returns false: the library kernel runs with a generator seeded from the range.
bool run_random(const TorchCall& call, std::span<const graph::Scalar> scalars, torch::jit::Stack& stack);

// The default generator of the device, and a new one.
const at::Generator& default_generator();
at::Generator new_generator();

}  // namespace sinter::torch_device
