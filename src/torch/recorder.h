// The one boxed kernel that sees every op of the device: it records what can be recorded and runs the rest at once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "runtime/stream.h"
#include "torch/op_info.h"

namespace sinter::torch_device {

// Replaces the arguments on the stack by the returns. Throws what the op would throw.
void call_op(const OpInfo& info, torch::jit::Stack& stack);

// Waits for the operands and runs the CPU kernel on the calling thread; `reason` is counted.
void run_now(const OpInfo& info, torch::jit::Stack& stack, const char* reason);

// A copy of `source` (a device tensor) into `destination` (a device tensor), as an op of the graph.
void record_copy(const at::Tensor& destination, const at::Tensor& source, bool non_blocking);

// Gives a tensor other sizes and strides, with a new buffer when its storage is too small; contents in common are
// kept. Recorded, not waited for.
void resize_tensor(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);
void resize_storage(const c10::Storage& storage, size_t nbytes);

// Ends the graph when the flags or what the op touched ask for it.
void after_record(runtime::Stream::After after, bool exported);

class RecordingKernel final : public c10::OperatorKernel {
 public:
  explicit RecordingKernel(const OpInfo& info) : info_(info) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    call_op(info_, *stack);
  }

 private:
  const OpInfo& info_;
};

}  // namespace sinter::torch_device
