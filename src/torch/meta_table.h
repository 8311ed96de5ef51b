// PyTorch's structured meta functions by operator name; the rows are generated from the headers of the torch that is
// built against (tools/gen_meta_table.py).
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>
#include <unordered_map>

namespace sinter::torch_device {

class MetaTable {
 public:
  template <typename Function>
  void add(const char* op, Function* function) {
    functions_.emplace(op, c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
  }
  const c10::KernelFunction* find(const std::string& op) const {
    const auto it = functions_.find(op);
    return it == functions_.end() ? nullptr : &it->second;
  }

 private:
  std::unordered_map<std::string, c10::KernelFunction> functions_;
};

void add_meta_functions(MetaTable& table);  // generated

}  // namespace sinter::torch_device
