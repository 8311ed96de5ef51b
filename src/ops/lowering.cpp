#include "ops/lowering.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>

#include "support/log.h"

namespace sinter::ops {
namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    parts.emplace_back(part);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return parts;
}

// The tables are the program's own: text that does not parse is a bug that the tests of the table find.
Expression must_parse(std::string_view text) {
  Result<Expression> parsed = parse_expression(text);
  if (!parsed.ok()) {
    log::error(parsed.message());
    std::abort();
  }
  return *parsed;
}

using Bindings = std::unordered_map<std::string, const Expression*>;

Expression expand(const Expression& expression, const Bindings& bindings) {
  if (expression.kind == Expression::Kind::kNumber) return expression;
  if (expression.kind == Expression::Kind::kArgument) {
    const auto found = bindings.find(expression.name);
    return found == bindings.end() ? expression : *found->second;
  }
  Expression out{Expression::Kind::kApply, expression.name, 0, {}};
  for (const Expression& operand : expression.operands) out.operands.push_back(expand(operand, bindings));
  for (const Macro& macro : macro_table()) {
    if (macro.name != expression.name) continue;
    const std::vector<std::string> parameters = split(macro.parameters);
    Bindings inner;
    for (size_t i = 0; i < parameters.size() && i < out.operands.size(); ++i)
      inner[parameters[i]] = &out.operands[i];
    return expand(must_parse(macro.expression), inner);
  }
  return out;
}

bool uses_function(const Expression& expression) {
  if (expression.kind != Expression::Kind::kApply) return false;
  if (expression.name == "exp" || expression.name == "tanh" || expression.name == "erf") return true;
  for (const Expression& operand : expression.operands)
    if (uses_function(operand)) return true;
  return false;
}

std::string without_underscore(std::string_view op) {
  const size_t dot = op.find('.');
  const std::string_view base = op.substr(0, dot);
  if (base.empty() || base.back() != '_') return {};
  std::string found(base.substr(0, base.size() - 1));
  if (dot != std::string_view::npos) found += op.substr(dot);
  return found;
}

}  // namespace

const std::vector<ParsedLowering>& lowerings_of(std::string_view op) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<std::string, std::vector<ParsedLowering>>;
  const std::lock_guard lock(mutex);
  const auto [it, fresh] = known->try_emplace(std::string(op));
  if (!fresh) return it->second;
  const std::string functional = without_underscore(op);
  for (const Lowering& row : lowering_table()) {
    if (row.op != op && row.op != functional) continue;
    Expression expression = expand(must_parse(row.expression), {});
    const bool needs = uses_function(expression);
    // Of the ops that end in "_" only those that have a row of their own name are written that way in the table.
    const bool in_place = row.op == functional || op == "aten::copy_" || op == "aten::_foreach_copy_";
    it->second.push_back({&row, std::move(expression), in_place, needs});
  }
  return it->second;
}

}  // namespace sinter::ops
