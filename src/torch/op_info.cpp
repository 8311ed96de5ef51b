#include "torch/op_info.h"

#include <ATen/core/enum_tag.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace sinter::torch_device {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

bool is_number_type(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return is_number_type(type->containedType(0));
    default:
      return false;
  }
}

bool contains_tensor(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  for (const auto& inner : type->containedTypes())
    if (contains_tensor(inner)) return true;
  return false;
}

// In-place ops that do not read what they overwrite.
bool overwrites(const std::string& name) {
  return name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_" ||
         name == "aten::_foreach_zero_" || name == "aten::_foreach_copy_" || name == "aten::eye";
}

bool hidden_write(std::string_view list, std::string_view argument) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == argument) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& handle)
    : handle(handle),
      row(ops::find_op(handle.operator_name().name, handle.operator_name().overload_name)),
      id(next_id()) {
  const c10::FunctionSchema& schema = handle.schema();
  name = schema.name();
  aten = name.rfind("aten::", 0) == 0;
  const std::string base = name;
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  data_dependent = row.has(ops::kDataDependent) || handle.hasTag(at::Tag::dynamic_output_shape) ||
                   handle.hasTag(at::Tag::data_dependent_output);
  if (row.has(ops::kDataDependentWithMask)) data_dependent = false;
  const bool whole = overwrites(base) || row.op_class == ops::OpClass::kRandom;
  for (const c10::Argument& argument : schema.arguments()) {
    ArgumentInfo info;
    info.number = is_number_type(argument.type());
    has_tensor_argument = has_tensor_argument || contains_tensor(argument.type());
    const bool marked = argument.alias_info() && argument.alias_info()->isWrite();
    info.writes = marked || hidden_write(row.hidden_writes, argument.name());
    if (info.writes)
      info.access = marked && (argument.is_out() || whole) ? graph::Access::kWrite
                                                           : graph::Access::kReadWrite;
    writes_any = writes_any || info.writes;
    arguments.push_back(info);
  }
  foreach_in_place = writes_any && base.rfind("aten::_foreach_", 0) == 0 && base.back() == '_';
  counts_list_writes = foreach_in_place || base == "aten::unbind_copy" || base == "aten::split_copy" ||
                       base == "aten::split_with_sizes_copy";
  for (const c10::Argument& ret : schema.returns()) {
    ReturnInfo info;
    const auto kind = ret.type()->kind();
    info.tensor = kind == c10::TypeKind::TensorType;
    info.tensor_list =
        kind == c10::TypeKind::ListType &&
        ret.type()->containedType(0)->kind() == c10::TypeKind::TensorType;
    if (ret.alias_info())
      for (size_t i = 0; i < schema.arguments().size() && info.alias_of < 0; ++i)
        if (const auto* alias = schema.arguments()[i].alias_info())
          if (alias->isWrite() && ret.alias_info()->isWrite() &&
              alias->beforeSets() == ret.alias_info()->beforeSets())
            info.alias_of = static_cast<int32_t>(i);
    if (ret.alias_info() && info.alias_of < 0) recordable = false;  // a view
    if (!info.tensor && !info.tensor_list) recordable = false;
    returns.push_back(info);
  }
}

const OpInfo& op_info(const c10::OperatorHandle& handle) {
  static std::mutex mutex;
  static auto* infos = new std::unordered_map<c10::OperatorName, OpInfo*>;
  const std::lock_guard lock(mutex);
  OpInfo*& info = (*infos)[handle.operator_name()];
  if (!info) info = new OpInfo(handle);
  return *info;
}

}  // namespace sinter::torch_device
