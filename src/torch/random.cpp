#include "torch/random.h"

namespace sinter::torch_device {

bool run_random(const TorchCall& call, const runtime::LibraryCall& node, torch::jit::Stack& stack) {
  (void)call; (void)node; (void)stack;
  return false;
}

}  // namespace sinter::torch_device
