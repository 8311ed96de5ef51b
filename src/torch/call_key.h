// Digests an argument stack: the key of the call, the operands, and the values of scalars.
//
// The key is a list of words: the op, and for each argument its kind and everything fixed (sizes, strides, types,
// integers, strings), but not the values of scalars nor which buffers stand behind. Equal keys mean the same Call.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "graph/trace.h"
#include "torch/op_info.h"
#include "torch/torch_call.h"

namespace sinter::torch_device {

struct DigestedOperand {
  c10::TensorImpl* tensor;
  graph::Access access;
};

struct Digest {
  c10::SmallVector<uint64_t, 160> key;
  c10::SmallVector<DigestedOperand, 16> operands;
  c10::SmallVector<graph::Scalar, 16> scalars;
  bool has_mask_index = false;   // a boolean or byte tensor stands in a list of optional tensors
  bool shares_memory = false;    // the op writes, and two operands share a storage
  bool unkeyable = false;        // an argument whose identity matters; the op runs at once
  const c10::GeneratorImpl* generator = nullptr;
};

// Reads the top `info.arguments.size()` values of the stack. CPU tensors are uploaded in place where the op table
// allows them, and raise PyTorch's device error otherwise.
void digest(const OpInfo& info, torch::jit::Stack& stack, Digest& out);

// The argument program and scalar kinds for a stack that was digested.
void fill_call(const OpInfo& info, const torch::jit::Stack& stack, TorchCall& call);

graph::Scalar scalar_of(const c10::IValue& number, graph::ScalarKind* kind);

}  // namespace sinter::torch_device
