// Where the graph wants a convolution's result with channels last, its input is given that layout: PyTorch's kernel
// takes the layout of a result from the input and the weight.
#include <ATen/core/Tensor.h>

#include "torch/kernels/kernel_table.h"

namespace sinter::torch_device {

bool convolution(const TorchCall& call, torch::jit::Stack& stack) {
  const graph::TensorMeta& result = call.results[0];
  if (result.sizes.size() != 4 || result.strides[1] != 1 || result.strides[3] == 1) return false;
  c10::IValue& input = stack[stack.size() - call.arguments.size()];
  input = input.toTensor().contiguous(at::MemoryFormat::ChannelsLast);
  return false;
}

}  // namespace sinter::torch_device
