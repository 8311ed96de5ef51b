#include "loops/kernel.h"

#include <cstdio>

namespace sinter::loops {
namespace {

constexpr const char* kTypes[] = {"i1", "i64", "f32", "f64"};
constexpr const char* kStrides[] = {"0", "1", "?"};
constexpr const char* kCodes[] = {"load", "scalar", "constant", "convert", "round", "add", "sub", "mul", "div",
                                  "neg", "abs", "min", "max", "fma", "sqrt", "exp", "tanh", "erf", "less",
                                  "less_equal", "equal", "not_equal", "and", "or", "xor", "not", "select", "store"};
static_assert(std::size(kCodes) == static_cast<size_t>(Code::kStore) + 1);

int operand_count(Code code) {
  switch (code) {
    case Code::kLoad:
    case Code::kScalar:
    case Code::kConstant:
      return 0;
    case Code::kConvert:
    case Code::kRound:
    case Code::kNeg:
    case Code::kAbs:
    case Code::kSqrt:
    case Code::kExp:
    case Code::kTanh:
    case Code::kErf:
    case Code::kNot:
    case Code::kStore:
      return 1;
    case Code::kFma:
    case Code::kSelect:
      return 3;
    default:
      return 2;
  }
}

}  // namespace

std::string to_text(const Kernel& kernel) {
  std::string out = "kernel rank " + std::to_string(kernel.rank) + " {\n";
  for (size_t i = 0; i < kernel.accesses.size(); ++i) {
    const MemoryAccess& access = kernel.accesses[i];
    out += "  @" + std::to_string(i) + " = " + (access.store ? "out " : "in ") + dtype_name(access.dtype) +
           " stride " + kStrides[static_cast<size_t>(access.inner)] + "\n";
  }
  for (size_t i = 0; i < kernel.scalars.size(); ++i)
    out += "  $" + std::to_string(i) + " = " + kTypes[static_cast<size_t>(kernel.scalars[i])] + "\n";
  for (size_t i = 0; i < kernel.body.size(); ++i) {
    const Instruction& node = kernel.body[i];
    out += "  %" + std::to_string(i) + " = " + kTypes[static_cast<size_t>(node.type)] + " " +
           kCodes[static_cast<size_t>(node.code)];
    if (node.code == Code::kLoad || node.code == Code::kStore) out += " @" + std::to_string(node.index);
    if (node.code == Code::kScalar) out += " $" + std::to_string(node.index);
    if (node.code == Code::kRound) out += " " + dtype_name(node.dtype);
    if (node.code == Code::kConstant) {
      char number[40];
      std::snprintf(number, sizeof number, " %a", node.number);
      out += number;
    }
    const int operands = operand_count(node.code);
    if (operands > 0) out += " %" + std::to_string(node.a);
    if (operands > 1) out += " %" + std::to_string(node.b);
    if (operands > 2) out += " %" + std::to_string(node.c);
    out += "\n";
  }
  return out + "}\n";
}

}  // namespace sinter::loops
