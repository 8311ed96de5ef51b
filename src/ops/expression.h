// What an elementwise op computes, as an expression over its arguments.
//
// A row of the lowering table gives it as text, in the op's own argument names:
//
//   {"aten::addcmul", "fma(value * tensor1, tensor2, self)"}
//
// Operators: + - * / (unary -), < <= > >= == !=, & | ^ ! (booleans), cond ? a : b; numbers; function calls. Functions
// are those that loops::Code knows (exp, fma, sqrt, ...) and the macros of the table, which are expressions themselves.
// Evaluation is in the op's compute type, one rounding per operator; `fma` is the only fused one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace sinter::ops {

struct Expression {
  enum class Kind : unsigned char { kArgument, kNumber, kApply };
  Kind kind = Kind::kNumber;
  std::string name;  // of the argument, or of the function or operator ("+", "neg", "select", "exp")
  double number = 0;
  std::vector<Expression> operands;
};

Result<Expression> parse_expression(std::string_view text);

std::string to_text(const Expression& expression);

// How the compute type follows from the operands.
enum class TypeRule : unsigned char {
  kArithmetic,  // the result's type; integers too
  kFloating,    // the result's type, which must be a floating one
  kCompare,     // the operands' common type; the result is boolean
  kLogical,     // operands are turned into booleans; the result is boolean
  kBitwise,     // as kLogical, for boolean tensors only
  kSelect,      // the first tensor is a condition, the others as kArithmetic, booleans too
  kCast,        // the operand's value in the result's type
};

struct Lowering {
  std::string_view op;          // with its overload
  std::string_view expression;
  TypeRule rule = TypeRule::kFloating;
  std::string_view when = {};   // "name=text, …": fixed arguments that the row is for
};

// A function defined by an expression over its parameters.
struct Macro {
  std::string_view name;
  std::string_view parameters;  // "a, b"
  std::string_view expression;
};

const std::vector<Lowering>& lowering_table();
const std::vector<Macro>& macro_table();

}  // namespace sinter::ops
