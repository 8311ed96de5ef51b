// Kernels of our own for whole ops that no loop nest describes: contractions, attention.
//
// A row of the table names the op and the function. The native engine takes them in place of PyTorch's; the reference
// engine never does. A function gets the argument stack (CPU tensors, in schema order) and either replaces all
// arguments by the results and returns true, or returns false, where PyTorch's kernel is as fast or the case is not one
// that the function is for; then it leaves the stack as it is, or has put an argument into a better layout. Results have
// the layout that PyTorch's kernel gives them.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

#include "torch/torch_call.h"

namespace sinter::torch_device {

using OwnKernel = bool (*)(const TorchCall& call, torch::jit::Stack& stack);

// The row for an op by its name with overload, or null.
OwnKernel own_kernel(std::string_view op);

// ---- the functions
bool attention_backward(const TorchCall& call, torch::jit::Stack& stack);
bool attention_forward(const TorchCall& call, torch::jit::Stack& stack);
bool batch_norm(const TorchCall& call, torch::jit::Stack& stack);
bool batch_norm_backward(const TorchCall& call, torch::jit::Stack& stack);
bool convolution(const TorchCall& call, torch::jit::Stack& stack);
bool matrix_product(const TorchCall& call, torch::jit::Stack& stack);

}  // namespace sinter::torch_device
