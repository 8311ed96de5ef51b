// A Call that can be executed: the operator and a program that rebuilds its argument stack.
//
// Immutable after construction. Arguments are kept as a list of slots: what is fixed stands there as a value, what
// varies as an index into the operands or scalars of the node.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

#include "graph/call.h"

namespace sinter::torch_device {

struct ArgumentSlot {
  enum class Kind : uint8_t {
    kFixed,       // value
    kTensor,      // operand `index`
    kScalar,      // scalar `index`, as a number
    kHostScalar,  // scalar `index`, as a CPU tensor without dimensions
    kList,        // `elements`, of the type of `value` (an empty list)
    kGenerator,   // a CPU generator made from the (seed, offset) scalars
  };
  Kind kind = Kind::kFixed;
  bool wrapped_number = false;        // kHostScalar
  bool requires_list_of_optional = false;
  c10::ScalarType dtype = c10::ScalarType::Float;  // kHostScalar
  uint32_t index = 0;
  c10::IValue value;
  std::vector<ArgumentSlot> elements;
};

struct ReturnSlot {
  enum class Kind : uint8_t {
    kArgument,   // the argument at stack position `index`
    kResult,     // fresh result `index`
    kList,       // a list of `count` fresh results from `index`
  };
  Kind kind = Kind::kResult;
  uint32_t index = 0;
  uint32_t count = 0;
};

class TorchCall final : public graph::Call {
 public:
  explicit TorchCall(c10::OperatorHandle handle) : handle(std::move(handle)) {}

  Ref<const graph::Call> relaid(std::vector<graph::TensorMeta> to_operands,
                                std::vector<graph::TensorMeta> to_results) const override {
    Ref<TorchCall> copy = make_ref<TorchCall>(handle);
    copy_into(*copy, std::move(to_operands), std::move(to_results));
    copy->mode = mode;
    copy->arguments = arguments;
    copy->returns = returns;
    copy->resized_to = resized_to;
    copy->same_object = same_object;
    copy->seed_scalar = seed_scalar;
    copy->draws = draws;
    copy->random = random;
    copy->own_kernel = own_kernel;
    copy->decompose = decompose;
    copy->grad_mode = grad_mode;
    return copy;
  }

  enum class Mode : uint8_t {
    kRecord,   // append to the graph
    kResize,   // first give a written operand the size in resized_to, then record
    kRunNow,   // the result aliases an operand, or cannot be described: never recorded
  };
  Mode mode = Mode::kRecord;

  c10::OperatorHandle handle;
  std::vector<ArgumentSlot> arguments;
  std::vector<ReturnSlot> returns;
  // For kResize: new metadata of operands that change; `defined` false where they do not.
  std::vector<graph::TensorMeta> resized_to;
  // For each operand the first operand that is the same tensor object (itself where there is none earlier); filled
  // only when the op writes.
  std::vector<uint32_t> same_object;
  // First of the two scalars (seed, offset) of a random op; the op draws `draws` counters.
  uint32_t seed_scalar = 0;
  uint64_t draws = 0;
  bool random = false;
  // Records the op as several, or null; torch/decompose.h.
  bool (*decompose)(const TorchCall& call, torch::jit::Stack& stack) = nullptr;
  // A kernel of ours for this op, or null; src/torch/kernels.
  bool (*own_kernel)(const TorchCall& call, torch::jit::Stack& stack) = nullptr;
  // For kReadsGradMode: what it was when the op was recorded.
  bool grad_mode = false;
};

}  // namespace sinter::torch_device
