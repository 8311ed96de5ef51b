// Copies between the host and the device, and within the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace sinter::torch_device {

// A device tensor with the values that a CPU tensor has now, with its sizes and strides.
at::Tensor upload(const at::Tensor& cpu);

}  // namespace sinter::torch_device
