#include "torch/library_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "runtime/metrics.h"
#include "runtime/timeline.h"
#include "support/hash.h"
#include "torch/device_state.h"
#include "torch/kernel_scope.h"
#include "torch/lines.h"
#include "torch/memory.h"
#include "torch/random.h"

namespace sinter::torch_device {
namespace {

// A result becomes the buffer's memory when it is laid out as predicted and nobody else holds its storage.
void take_result(const TorchCall& call, const graph::TensorMeta& expected, const at::Tensor& result,
                 runtime::Buffer& buffer) {
  TORCH_CHECK(result.defined(), "sinter: ", call.name, " returned no tensor where one was predicted (",
              to_text(expected), ")");
  const graph::TensorMeta actual = meta_of(result);
  TORCH_CHECK(actual.sizes == expected.sizes && actual.dtype == expected.dtype, "sinter: ", call.name,
              " returned ", to_text(actual), " where ", to_text(expected),
              " was predicted. This is a bug in torch-sinter; SINTER_BLOCKING=1 shows the line.");
  if (actual == expected && result.storage_offset() == 0 && result.storage().use_count() == 1 &&
      result.unsafeGetTensorImpl()->storage().nbytes() >= buffer.nbytes)
    return adopt(buffer, result);
  if (actual != expected) metrics().add(Counter::kLayoutCorrections);
  // Strides of dimensions with one element, or of empty tensors, do not matter to memory.
  cpu_view(buffer, expected, 0).copy_(result);
}

void take_results(const TorchCall& call, const runtime::LibraryCall& node, torch::jit::Stack& stack) {
  size_t position = stack.size() - call.returns.size();
  size_t next_buffer = 0;
  for (const ReturnSlot& slot : call.returns) {
    c10::IValue& value = stack[position++];
    switch (slot.kind) {
      case ReturnSlot::Kind::kArgument:
        break;
      case ReturnSlot::Kind::kResult:
        if (call.results[slot.index].defined) {
          at::Tensor result = std::move(value).toTensor();
          value = c10::IValue();
          take_result(call, call.results[slot.index], result, *node.results[next_buffer++]);
        }
        break;
      case ReturnSlot::Kind::kList: {
        std::vector<at::Tensor> results = value.toTensorVector();
        value = c10::IValue();
        TORCH_CHECK(results.size() == slot.count, "sinter: ", call.name, " returned ", results.size(),
                    " tensors where ", slot.count, " were predicted");
        for (uint32_t k = 0; k < slot.count; ++k)
          if (call.results[slot.index + k].defined) {
            at::Tensor result = std::move(results[k]);
            take_result(call, call.results[slot.index + k], result, *node.results[next_buffer++]);
          }
        break;
      }
    }
  }
}

}  // namespace

std::string describe(const graph::Call& call) {
  std::string out = call.name + "(";
  for (size_t k = 0; k < call.operands.size(); ++k) {
    if (k) out += ", ";
    if (k == 8 && call.operands.size() > 10) {
      out += "… " + std::to_string(call.operands.size() - k) + " more";
      break;
    }
    out += to_text(call.operands[k].meta);
  }
  return out + ")";
}

c10::IValue number_of(const graph::Scalar& scalar, graph::ScalarKind kind) {
  switch (kind) {
    case graph::ScalarKind::kBool:
      return scalar.bits[0] != 0;
    case graph::ScalarKind::kInt:
      return static_cast<int64_t>(scalar.bits[0]);
    case graph::ScalarKind::kFloat: {
      double value;
      std::memcpy(&value, scalar.bits, 8);
      return value;
    }
    case graph::ScalarKind::kComplex: {
      c10::complex<double> value;
      std::memcpy(&value, scalar.bits, 16);
      return value;
    }
  }
  return {};
}

at::Tensor host_scalar_tensor(const graph::Scalar& scalar, c10::ScalarType dtype, bool wrapped_number) {
  at::Tensor tensor = at::empty({}, at::TensorOptions().dtype(dtype).device(at::kCPU));
  std::memcpy(tensor.mutable_data_ptr(), scalar.bits, tensor.element_size());
  if (wrapped_number) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Generator seeded_generator(uint64_t seed, uint64_t offset) {
  return at::make_generator<at::CPUGeneratorImpl>(Hasher(seed).add(offset).finish());
}

std::exception_ptr TorchHost::run(const runtime::LibraryCall& node) {
  const auto& call = static_cast<const TorchCall&>(node.call);
  try {
    KernelScope scope;
    std::optional<c10::AutoGradMode> grad_mode;
    if (call.op->has(ops::kReadsGradMode)) grad_mode.emplace(call.grad_mode);
    torch::jit::Stack stack;
    stack.reserve(call.arguments.size() + 2);
    std::vector<at::Tensor> shared(call.same_object.size());  // operands that are one tensor object
    push_arguments(
        call, node.scalars,
        [&](uint32_t k) {
          if (shared.empty()) return cpu_view(*node.operands[k], call.operands[k].meta, node.offsets[k]);
          at::Tensor& view = shared[call.same_object[k]];
          if (!view.defined()) view = cpu_view(*node.operands[k], call.operands[k].meta, node.offsets[k]);
          return view;
        },
        stack);
    std::optional<runtime::Spanning> span;
    if (runtime::timeline().recording())
      span.emplace(runtime::Span::Kind::kKernel, call.name, describe(call),
                   runtime::Timeline::event_of(node.trace_index));
    const bool own = node.own_kernels && call.own_kernel && call.own_kernel(call, stack);
    if (!own && (!call.random || !run_random(call, node.scalars, stack)))
      call.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    take_results(call, node, stack);
    for (size_t k = 0; k < node.operands.size(); ++k)
      if (node.operands[k]->failure && call.operands[k].access == graph::Access::kWrite)
        node.operands[k]->failure = nullptr;
    return nullptr;
  } catch (...) {
    return explain(std::current_exception(), "while running " + describe(call));
  }
}

std::exception_ptr TorchHost::explain(std::exception_ptr error, const std::string& what) {
  try {
    if (!error) TORCH_CHECK(false, "sinter: ", what);
    std::rethrow_exception(error);
  } catch (c10::Error& known) {
    known.add_context(what);
    return std::current_exception();
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr TorchHost::give_memory(runtime::Buffer& buffer) {
  try {
    cpu_storage(buffer);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void TorchHost::parallel_for(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  at::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) { body(context, begin, end); });
}

void TorchHost::memory_attached(runtime::Buffer& buffer) { install_address(buffer); }

std::string TorchHost::current_line() { return torch_device::current_line(); }

int TorchHost::threads() { return at::get_num_threads(); }

void TorchHost::use_threads(int count) { torch_device::use_threads(count); }

namespace {
thread_local std::optional<ThreadPolicy> run_policy;
}

uint64_t TorchHost::begin_run(uint64_t settings) {
  run_policy.emplace();
  return exchange_settings(settings);
}

void TorchHost::end_run(uint64_t token) {
  exchange_settings(token);
  run_policy.reset();
}

}  // namespace sinter::torch_device
