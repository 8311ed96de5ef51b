#include "loops/lower.h"

#include <algorithm>
#include <string>
#include <tuple>

namespace sinter::loops {
namespace {

using fusion::Group;
using fusion::Point;
using fusion::View;
using graph::DType;
using graph::Formal;

Type compute_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return Type::kDouble;
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
      return Type::kFloat;
    case DType::kBool:
      return Type::kBool;
    default:
      return Type::kInt;
  }
}

bool is_narrow(DType dtype) {
  return dtype != DType::kFloat32 && dtype != DType::kFloat64 && dtype != DType::kInt64 && dtype != DType::kBool;
}

struct Unsupported {
  std::string what;
};

class Lowerer {
 public:
  Lowerer(const graph::Graph& graph, const Group& group) : graph_(graph), group_(group) {}

  Loop run(const std::vector<bool>& stored) {
    std::vector<std::pair<uint32_t, const View*>> stores;
    for (size_t p = 0; p < group_.points.size(); ++p) {
      const Point& point = group_.points[p];
      uint32_t value = evaluate(point, point.lowering->expression);
      value = finish(point, value);
      values_.emplace_back(&point.output, value);
      if (stored[p]) stores.emplace_back(value, &point.output);
    }
    for (auto [value, view] : stores) {
      const uint32_t access = add_access(*view, true);
      emit({.code = Code::kStore, .type = kernel().body[value].type, .index = access, .a = value});
    }
    collapse();
    return std::move(loop_);
  }

 private:
  Kernel& kernel() { return loop_.kernel; }

  uint32_t emit(const Instruction& instruction) {
    for (uint32_t i = 0; i < kernel().body.size(); ++i)
      if (instruction.code != Code::kStore && kernel().body[i] == instruction) return i;
    kernel().body.push_back(instruction);
    return static_cast<uint32_t>(kernel().body.size() - 1);
  }

  uint32_t add_access(const View& view, bool store) {
    for (uint32_t i = 0; i < views_.size(); ++i)
      if (!store && !kernel().accesses[i].store && views_[i]->value == view.value && views_[i]->offset == view.offset &&
          views_[i]->dtype == view.dtype && views_[i]->strides == view.strides)
        return i;
    views_.push_back(&view);
    kernel().accesses.push_back({view.dtype, Stride::kAny, store});
    loop_.accesses.push_back({view.value.buffer, view.offset});
    return static_cast<uint32_t>(views_.size() - 1);
  }

  uint32_t convert(uint32_t value, Type to) {
    if (kernel().body[value].type == to) return value;
    return emit({.code = Code::kConvert, .type = to, .a = value});
  }

  uint32_t input(const Point& point, uint32_t operand) {
    const size_t k = static_cast<size_t>(
        std::find(point.operands.begin(), point.operands.end(), operand) - point.operands.begin());
    const View& view = point.inputs[k];
    // What an earlier point of the group computed is there already; that it is met at the same place, fusion saw to.
    for (size_t v = values_.size(); v-- > 0;)
      if (values_[v].first->value == view.value) return values_[v].second;
    const uint32_t access = add_access(view, false);
    return emit({.code = Code::kLoad, .type = compute_type(view.dtype), .index = access});
  }

  uint32_t scalar(const graph::Node& node, const Formal& formal, uint32_t at, Type to) {
    const BoundScalar bound{node.first_scalar + at, node.call->scalars[at], formal.host_tensor, formal.dtype, to};
    for (uint32_t i = 0; i < loop_.scalars.size(); ++i)
      if (loop_.scalars[i].slot == bound.slot && loop_.scalars[i].to == to)
        return emit({.code = Code::kScalar, .type = to, .index = i});
    loop_.scalars.push_back(bound);
    kernel().scalars.push_back(to);
    return emit({.code = Code::kScalar, .type = to, .index = static_cast<uint32_t>(loop_.scalars.size() - 1)});
  }

  uint32_t argument(const Point& point, const std::string& name) {
    const graph::Node& node = graph_.nodes[point.node];
    const Type to = compute_type(point.common);
    for (const Formal& formal : node.call->formals) {
      if (formal.name != name) continue;
      const bool list = formal.kind == Formal::Kind::kTensors || formal.kind == Formal::Kind::kScalars;
      const uint32_t at = formal.first + (list ? point.element : 0);
      if (formal.kind == Formal::Kind::kTensor || formal.kind == Formal::Kind::kTensors) {
        const uint32_t value = input(point, at);
        // A condition stays one; everything else meets in the common type, rounded to it.
        const DType from = node.call->operands[at].meta.dtype;
        if (from == DType::kBool && (name == "condition" || name == "mask") &&
            point.lowering->row->rule == ops::TypeRule::kSelect)
          return value;
        return round(convert(value, to), from == point.common ? DType::kFloat32 : point.common);
      }
      const uint32_t value = scalar(node, formal, at, to);
      // PyTorch compares with, fills in, and scales addends by the scalar in the tensor's own type.
      const auto rule = point.lowering->row->rule;
      const bool rounded = rule == ops::TypeRule::kCompare || rule == ops::TypeRule::kSelect || name == "alpha";
      return rounded ? round(value, point.common) : value;
    }
    throw Unsupported{"argument " + name};
  }

  uint32_t round(uint32_t value, DType dtype) {
    if (!is_narrow(dtype)) return value;
    return emit({.code = Code::kRound, .type = kernel().body[value].type, .dtype = dtype, .a = value});
  }

  // The point's value as its output holds it.
  uint32_t finish(const Point& point, uint32_t value) {
    const DType to = point.output.dtype;
    return round(convert(value, compute_type(to)), to);
  }

  uint32_t evaluate(const Point& point, const ops::Expression& expression) {
    using Kind = ops::Expression::Kind;
    const Type type = compute_type(point.common);
    if (expression.kind == Kind::kArgument) return argument(point, expression.name);
    if (expression.kind == Kind::kNumber)
      return emit({.code = Code::kConstant, .type = type == Type::kBool ? Type::kInt : type, .number = expression.number});
    std::vector<uint32_t> v;
    for (const ops::Expression& operand : expression.operands) v.push_back(evaluate(point, operand));
    struct Function {
      std::string_view name;
      Code code;
      size_t operands;
      bool boolean;  // its result
    };
    static constexpr Function kFunctions[] = {
        {"+", Code::kAdd, 2, false},   {"-", Code::kSub, 2, false},    {"*", Code::kMul, 2, false},
        {"/", Code::kDiv, 2, false},   {"neg", Code::kNeg, 1, false},  {"abs", Code::kAbs, 1, false},
        {"min", Code::kMin, 2, false}, {"max", Code::kMax, 2, false},  {"fma", Code::kFma, 3, false},
        {"sqrt", Code::kSqrt, 1, false}, {"exp", Code::kExp, 1, false}, {"tanh", Code::kTanh, 1, false},
        {"erf", Code::kErf, 1, false}, {"<", Code::kLess, 2, true},    {"<=", Code::kLessEqual, 2, true},
        {"==", Code::kEqual, 2, true}, {"!=", Code::kNotEqual, 2, true}, {"&", Code::kAnd, 2, true},
        {"|", Code::kOr, 2, true},     {"^", Code::kXor, 2, true},     {"!", Code::kNot, 1, true},
        {"select", Code::kSelect, 3, false}};
    for (const Function& function : kFunctions) {
      if (function.name != expression.name || function.operands != v.size()) continue;
      v.resize(3);
      Instruction instruction{.code = function.code, .type = function.boolean ? Type::kBool : type,
                              .a = v[0], .b = v[1], .c = v[2]};
      if (function.operands < 2) instruction.b = 0;
      if (function.operands < 3) instruction.c = 0;
      return emit(instruction);
    }
    throw Unsupported{"function " + expression.name};
  }

  // Neighbouring loops that every access walks through as one become one.
  void collapse() {
    std::vector<int64_t> sizes = group_.sizes;
    std::vector<std::vector<int64_t>> strides;
    for (const View* view : views_) strides.push_back(view->strides);
    for (size_t d = sizes.size(); d-- > 1;) {
      const bool whole = std::all_of(strides.begin(), strides.end(), [&](const std::vector<int64_t>& s) {
        return s[d - 1] == s[d] * sizes[d];
      });
      if (!whole) continue;
      sizes[d - 1] *= sizes[d];
      sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(d));
      for (auto& s : strides) s.erase(s.begin() + static_cast<ptrdiff_t>(d - 1));
    }
    if (sizes.empty()) {
      sizes.push_back(1);
      for (auto& s : strides) s.push_back(1);
    }
    kernel().rank = static_cast<uint32_t>(sizes.size());
    for (size_t i = 0; i < strides.size(); ++i) {
      const int64_t inner = strides[i].back();
      kernel().accesses[i].inner = inner == 0 ? Stride::kZero : inner == 1 ? Stride::kOne : Stride::kAny;
      loop_.strides.insert(loop_.strides.end(), strides[i].begin(), strides[i].end());
    }
    loop_.sizes = std::move(sizes);
  }

  const graph::Graph& graph_;
  const Group& group_;
  Loop loop_;
  std::vector<const View*> views_;                        // of each access
  std::vector<std::pair<const View*, uint32_t>> values_;  // outputs of the points so far
};

}  // namespace

int64_t Loop::points() const {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

Result<Loop> lower_stored(const graph::Graph& graph, const fusion::Group& group, const std::vector<bool>& stored) {
  try {
    return Lowerer(graph, group).run(stored);
  } catch (const Unsupported& reason) {
    return unsupported(reason.what);
  }
}

}  // namespace sinter::loops
