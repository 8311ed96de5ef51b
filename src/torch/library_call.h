// Running PyTorch's own CPU kernel for one recorded op, on the memory of its buffers.
#pragma once

#include <ATen/core/stack.h>

#include "runtime/host.h"
#include "torch/torch_call.h"

namespace sinter::torch_device {

class TorchHost final : public runtime::Host {
 public:
  std::exception_ptr run(const runtime::LibraryCall& call) override;
  std::exception_ptr explain(std::exception_ptr error, const std::string& what) override;
  std::exception_ptr give_memory(runtime::Buffer& buffer) override;
  void parallel_for(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) override;
  void memory_attached(runtime::Buffer& buffer) override;
  std::string current_line() override;
  int threads() override;
  void use_threads(int count) override;
  uint64_t begin_run(uint64_t settings) override;
  void end_run(uint64_t token) override;
};

// Pushes the arguments of a call; `tensor(k)` gives the CPU tensor of operand k, `scalars` the scalar values.
template <typename TensorOf>
void push_arguments(const TorchCall& call, std::span<const graph::Scalar> scalars, TensorOf&& tensor,
                    torch::jit::Stack& stack);

c10::IValue number_of(const graph::Scalar& scalar, graph::ScalarKind kind);
at::Tensor host_scalar_tensor(const graph::Scalar& scalar, c10::ScalarType dtype, bool wrapped_number);
// A CPU generator in a state that (seed, offset) determines.
at::Generator seeded_generator(uint64_t seed, uint64_t offset);

// "aten::mm(f32[2,3], f32[4,5])"
std::string describe(const graph::Call& call);

template <typename TensorOf>
c10::IValue make_argument(const TorchCall& call, const ArgumentSlot& slot,
                          std::span<const graph::Scalar> scalars, TensorOf&& tensor) {
  switch (slot.kind) {
    case ArgumentSlot::Kind::kFixed:
      return slot.value;
    case ArgumentSlot::Kind::kTensor:
      return tensor(slot.index);
    case ArgumentSlot::Kind::kScalar:
      return number_of(scalars[slot.index], call.scalars[slot.index]);
    case ArgumentSlot::Kind::kHostScalar:
      return host_scalar_tensor(scalars[slot.index], slot.dtype, slot.wrapped_number);
    case ArgumentSlot::Kind::kGenerator:
      return seeded_generator(scalars[call.seed_scalar].bits[0], scalars[call.seed_scalar + 1].bits[0]);
    case ArgumentSlot::Kind::kList: {
      c10::List<c10::IValue> list(slot.value.toList().elementType());
      list.reserve(slot.elements.size());
      for (const ArgumentSlot& element : slot.elements)
        list.push_back(make_argument(call, element, scalars, tensor));
      return list;
    }
  }
  return {};
}

template <typename TensorOf>
void push_arguments(const TorchCall& call, std::span<const graph::Scalar> scalars, TensorOf&& tensor,
                    torch::jit::Stack& stack) {
  for (const ArgumentSlot& slot : call.arguments)
    stack.push_back(make_argument(call, slot, scalars, tensor));
}

}  // namespace sinter::torch_device
