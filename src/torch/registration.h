// Registration with PyTorch's dispatcher. Each function fills one library; the key is the library's, so that a second
// device type can be served by calling them again.
#pragma once

#include <torch/library.h>

namespace sinter::torch_device {

void register_views(torch::Library& library);
void register_copies(torch::Library& library);
void register_attention();
// Composites: for the device's key and for its autograd key.
void register_rnn(torch::Library& library);
// Collectives, where PyTorch has them.
void register_distributed();
// The recording kernel for every op that needs it; explicit kernels must have been registered before.
void register_recorder(torch::Library& library);
// Device guard, allocators, hooks, generator.
void register_device();

}  // namespace sinter::torch_device
