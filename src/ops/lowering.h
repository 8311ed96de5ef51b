// Finding the row of the lowering table that a call is computed by.
#pragma once

#include <string_view>

#include "ops/expression.h"

namespace sinter::ops {

struct ParsedLowering {
  const Lowering* row = nullptr;
  Expression expression;      // macros expanded
  bool in_place = false;      // the call overwrites its argument "self"
  bool needs_function = false;  // uses a function that exists for 32-bit floats only
};

// Rows for an op by its name with overload ("aten::add_.Tensor" finds the row of "aten::add.Tensor"), in table order;
// several where rows differ in `when`. Empty for an op that is not elementwise.
const std::vector<ParsedLowering>& lowerings_of(std::string_view op);

}  // namespace sinter::ops
