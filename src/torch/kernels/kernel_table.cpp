#include "torch/kernels/kernel_table.h"

namespace sinter::torch_device {
namespace {

struct Row {
  std::string_view op;
  OwnKernel kernel;
};

constexpr Row kRows[] = {
    {"aten::mm", matrix_product},
    {"aten::convolution", convolution},
    {"aten::native_batch_norm", batch_norm},
    {"aten::native_batch_norm_backward", batch_norm_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attention_forward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
};

}  // namespace

OwnKernel own_kernel(std::string_view op) {
  for (const Row& row : kRows)
    if (row.op == op) return row.kernel;
  return nullptr;
}

}  // namespace sinter::torch_device
