// What the recorder needs to know of an operator, computed once: its row in the op table and its schema, digested.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "graph/call.h"
#include "ops/op_table.h"

namespace sinter::torch_device {

struct ArgumentInfo {
  bool number = false;        // Scalar, float or a list of them: an input, not a constant
  bool writes = false;
  graph::Access access = graph::Access::kRead;
};

struct ReturnInfo {
  int32_t alias_of = -1;  // argument position, when the schema says that the argument itself is returned
  bool tensor = false;
  bool tensor_list = false;
};

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& handle);

  c10::OperatorHandle handle;
  const ops::Op& row;
  std::string name;  // "aten::add.Tensor"
  uint64_t id;       // unique, for keys
  std::vector<ArgumentInfo> arguments;
  std::vector<ReturnInfo> returns;
  bool aten = false;
  bool data_dependent = false;
  bool has_tensor_argument = false;
  bool recordable = true;  // every return is a tensor, a list of tensors, or an argument
  bool writes_any = false;
  bool counts_list_writes = false;  // each tensor of a written list gets a new version, as with eager's kernels
  bool foreach_in_place = false;  // aten::_foreach_add_ and the like
};

// The info of an operator, made on first request. Thread-safe.
const OpInfo& op_info(const c10::OperatorHandle& handle);

}  // namespace sinter::torch_device
