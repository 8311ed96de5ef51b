// Ops that are recorded as several, so that the compiler can fuse the parts.
//
// Only for engines that compile: the reference engine records what was called. A row of the table names an op and a
// function that either records the parts, replaces the arguments by the results and returns true, or does nothing and
// returns false. It is called when the op itself has been found right in shapes and types, so errors are the op's own.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

#include "torch/torch_call.h"

namespace sinter::torch_device {

using Decomposition = bool (*)(const TorchCall& call, torch::jit::Stack& stack);

// The row for an op by its name with overload, or null; null for all where the engine does not compile.
Decomposition decomposition(std::string_view op);

}  // namespace sinter::torch_device
