#include "torch/decompose.h"

#include <ATen/core/Tensor.h>

#include "support/flags.h"
#include "torch/op_info.h"
#include "torch/recorder.h"

namespace sinter::torch_device {
namespace {

bool is_one(const c10::IValue& number) {
  return number.isInt() ? number.toInt() == 1 : number.isDouble() && number.toDouble() == 1;
}

// A bias added in a loop of ours costs less than the copy of it into the result that a library's product begins with,
// and what follows (an activation, a residual) joins that loop.
bool split_addmm(const TorchCall& call, torch::jit::Stack& stack) {
  static const OpInfo& mm = op_info(c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", ""));
  static const OpInfo& add = op_info(c10::Dispatcher::singleton().findSchemaOrThrow("aten::add_", "Tensor"));
  const size_t base = stack.size() - 5;
  if (!is_one(stack[base + 3]) || !is_one(stack[base + 4])) return false;
  const graph::TensorMeta& result = call.results[0];
  if (!c10::isFloatingType(static_cast<c10::ScalarType>(result.dtype)) || call.operands.size() != 3) return false;
  for (const graph::Operand& operand : call.operands)
    if (operand.meta.dtype != result.dtype) return false;
  const at::Tensor bias = stack[base].toTensor();
  torch::jit::Stack parts{stack[base + 1], stack[base + 2]};
  call_op(mm, parts);
  parts.emplace_back(bias);
  parts.emplace_back(1);
  call_op(add, parts);
  stack.resize(base);
  stack.push_back(std::move(parts[0]));
  return true;
}

struct Row {
  std::string_view op;
  Decomposition record;
};

constexpr Row kRows[] = {
    {"aten::addmm", split_addmm},
};

}  // namespace

Decomposition decomposition(std::string_view op) {
  if (flags::engine() == "reference") return nullptr;
  for (const Row& row : kRows)
    if (row.op == op) return row.record;
  return nullptr;
}

}  // namespace sinter::torch_device
