// What an op will return, without running it on real data and without Python.
//
// In this order: PyTorch's structured meta function called directly; a rule of our own; a trial of the CPU kernel on
// stand-in operands of the same metadata, filled with zeros, whose contents nobody sees. Dispatching to the Meta key
// is out: once Python has loaded, its kernels are Python functions.
#pragma once

#include <ATen/core/stack.h>

#include "torch/call_key.h"
#include "torch/op_info.h"
#include "torch/torch_call.h"

namespace sinter::torch_device {

// Fills results, returns, mode and resized_to of a call whose arguments are filled. False when the op has to run on
// real data to be known (or to raise the error that it deserves).
bool infer(const OpInfo& info, const torch::jit::Stack& stack, const Digest& digest, TorchCall& call);

// Reads results and returns off what the op gave. `outputs` are its returns; `operands` the CPU tensors that stood
// for the call's operands.
bool describe_results(const OpInfo& info, c10::ArrayRef<c10::IValue> outputs,
                      c10::ArrayRef<at::Tensor> operands, bool check_memory, TorchCall& call);

// A structured meta function, boxed, or an invalid function when the op has none. Generated table.
const c10::KernelFunction* meta_function(const std::string& name);

// A rule of our own, from the arguments on the stack (device tensors) and the filled operands of the call. It appends
// the results, flattened, or returns false where it does not know; then the op is tried. A rule for an op that writes its
// arguments also vouches that nothing would be raised or resized.
struct RuleInput {
  const OpInfo& info;
  c10::ArrayRef<c10::IValue> arguments;
  const Digest& digest;
};
using ShapeRule = bool (*)(const RuleInput& input, std::vector<graph::TensorMeta>& results);
// Null when there is none.
ShapeRule shape_rule(const OpInfo& info);

}  // namespace sinter::torch_device
