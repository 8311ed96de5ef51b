#include "fusion/point.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace sinter::fusion {
namespace {

using graph::Access;
using graph::DType;
using graph::Formal;
using graph::TensorMeta;
using ops::TypeRule;

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

bool is_supported(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kBool:
    case DType::kBFloat16:
      return true;
    default:
      return false;
  }
}

bool usable(const TensorMeta& meta) { return meta.defined && !meta.conj && !meta.neg && is_supported(meta.dtype); }

// No two points of the tensor are the same element.
bool no_overlap(const TensorMeta& meta) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t i = 0; i < meta.sizes.size(); ++i)
    if (meta.sizes[i] > 1) dims.emplace_back(meta.strides[i], meta.sizes[i]);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 1;
  for (auto [stride, size] : dims) {
    if (stride < reach) return false;
    reach = stride * (size - 1) + reach;
  }
  return true;
}

const Formal* find(const graph::Call& call, std::string_view name) {
  for (const Formal& formal : call.formals)
    if (formal.name == name) return &formal;
  return nullptr;
}

bool mentions(const ops::Expression& expression, std::string_view name) {
  if (expression.kind == ops::Expression::Kind::kArgument) return expression.name == name;
  for (const ops::Expression& operand : expression.operands)
    if (mentions(operand, name)) return true;
  return false;
}

bool arguments_exist(const ops::Expression& expression, const graph::Call& call) {
  if (expression.kind == ops::Expression::Kind::kArgument) {
    const Formal* formal = find(call, expression.name);
    return formal && formal->kind != Formal::Kind::kNone && formal->kind != Formal::Kind::kFixed &&
           formal->kind != Formal::Kind::kMixed;
  }
  for (const ops::Expression& operand : expression.operands)
    if (!arguments_exist(operand, call)) return false;
  return true;
}

// "approximate=none, dim=1": each named argument has that text. Appends the names.
bool conditions_hold(std::string_view when, const graph::Call& call, std::vector<std::string_view>& named) {
  while (!when.empty()) {
    const size_t comma = when.find(", ");
    const std::string_view one = when.substr(0, comma);
    const size_t equals = one.find('=');
    const Formal* formal = find(call, one.substr(0, equals));
    if (!formal || formal->kind != Formal::Kind::kFixed || formal->text != one.substr(equals + 1)) return false;
    named.push_back(one.substr(0, equals));
    when = comma == std::string_view::npos ? std::string_view() : when.substr(comma + 2);
  }
  return true;
}

// Arguments whose effect is in the result's metadata already.
constexpr std::string_view kInMetadata[] = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"};

const ops::ParsedLowering* choose(const graph::Call& call) {
  for (const ops::ParsedLowering& lowering : ops::lowerings_of(call.name)) {
    std::vector<std::string_view> named;
    if (!conditions_hold(lowering.row->when, call, named)) continue;
    if (!arguments_exist(lowering.expression, call)) continue;
    bool all_used = true;
    for (const Formal& formal : call.formals) {
      if (formal.kind == Formal::Kind::kNone || mentions(lowering.expression, formal.name)) continue;
      if (std::find(named.begin(), named.end(), formal.name) != named.end()) continue;
      if (lowering.in_place && (formal.name == "self" || formal.name == "out")) continue;
      if (std::find(std::begin(kInMetadata), std::end(kInMetadata), formal.name) != std::end(kInMetadata)) continue;
      all_used = false;
    }
    if (all_used) return &lowering;
  }
  return nullptr;
}

// What one element of a call reads and writes.
struct Signature {
  std::vector<uint32_t> operands;        // read or written
  std::vector<const Formal*> scalars;
  std::vector<graph::ScalarKind> kinds;
  const TensorMeta* output = nullptr;
  uint32_t written = ~0u;                // operand, when in place
};

bool float_scalar(const Formal& formal, graph::ScalarKind kind) {
  return formal.host_tensor ? is_floating(formal.dtype) : kind == graph::ScalarKind::kFloat;
}

bool scalar_fits(const Signature& signature, bool floating) {
  for (size_t i = 0; i < signature.scalars.size(); ++i) {
    if (signature.kinds[i] == graph::ScalarKind::kComplex) return false;
    if (signature.scalars[i]->host_tensor && !is_supported(signature.scalars[i]->dtype)) return false;
    if (!floating && float_scalar(*signature.scalars[i], signature.kinds[i])) return false;
  }
  return true;
}

// The dtype in which the op computes, or nothing where PyTorch's promotion is more than we follow.
std::optional<DType> common_dtype(const graph::Call& call, const ops::ParsedLowering& lowering,
                                  const Signature& signature) {
  const DType to = signature.output->dtype;
  const auto tensors_have = [&](DType dtype, size_t from = 0) {
    for (size_t i = from; i < signature.operands.size(); ++i)
      if (call.operands[signature.operands[i]].meta.dtype != dtype) return false;
    return true;
  };
  switch (lowering.row->rule) {
    case TypeRule::kArithmetic:
    case TypeRule::kFloating:
      if (lowering.row->rule == TypeRule::kFloating ? !is_floating(to) : to == DType::kBool) return std::nullopt;
      if (lowering.needs_function && to == DType::kFloat64) return std::nullopt;
      if (lowering.in_place && !tensors_have(to)) return std::nullopt;
      // A boolean beside numbers is 0 or 1; wider types than the result's would have been the result's.
      for (uint32_t k : signature.operands)
        if (const DType from = call.operands[k].meta.dtype; is_floating(from) && !is_floating(to)) return std::nullopt;
      if (!scalar_fits(signature, is_floating(to))) return std::nullopt;
      return to;
    case TypeRule::kCompare: {
      const DType from = call.operands[signature.operands[0]].meta.dtype;
      if (to != DType::kBool || from == DType::kBool || !tensors_have(from) || lowering.in_place) return std::nullopt;
      if (!scalar_fits(signature, is_floating(from))) return std::nullopt;
      return from;
    }
    case TypeRule::kLogical:
      if (to != DType::kBool || !signature.scalars.empty() || lowering.in_place) return std::nullopt;
      return to;
    case TypeRule::kBitwise:
      if (to != DType::kBool || !tensors_have(DType::kBool) || !signature.scalars.empty()) return std::nullopt;
      return to;
    case TypeRule::kSelect:
      // Only the condition has another type; it is not told apart here, so booleans may stand for numbers nowhere else.
      for (uint32_t k : signature.operands)
        if (const DType from = call.operands[k].meta.dtype; from != to && from != DType::kBool) return std::nullopt;
      if (to == DType::kBool && !signature.scalars.empty()) return std::nullopt;
      if (!scalar_fits(signature, is_floating(to))) return std::nullopt;
      return to;
    case TypeRule::kCast: {
      if (!signature.scalars.empty() || signature.operands.empty()) return std::nullopt;
      const DType from = call.operands[signature.operands.back()].meta.dtype;
      // What a float outside an integer's range becomes is the business of the kernel that eager calls.
      if (is_floating(from) && !is_floating(to) && to != DType::kBool) return std::nullopt;
      return to;
    }
  }
  return std::nullopt;
}

// Strides of `meta` along the dimensions `order` of an output of `sizes`; nothing where it does not broadcast.
std::optional<std::vector<int64_t>> strides_along(const TensorMeta& meta, const std::vector<int64_t>& sizes,
                                                  const std::vector<size_t>& order) {
  if (meta.sizes.size() > sizes.size()) return std::nullopt;
  const size_t lead = sizes.size() - meta.sizes.size();
  for (size_t i = 0; i < meta.sizes.size(); ++i)
    if (meta.sizes[i] != 1 && meta.sizes[i] != sizes[lead + i]) return std::nullopt;
  std::vector<int64_t> strides;
  for (size_t dim : order)
    strides.push_back(dim < lead || meta.sizes[dim - lead] == 1 ? 0 : meta.strides[dim - lead]);
  return strides;
}

bool is_list(const Formal& formal) {
  return formal.kind == Formal::Kind::kTensors || formal.kind == Formal::Kind::kScalars;
}

}  // namespace

std::vector<PlacedPoint> points_of(const graph::Graph& graph, uint32_t index) {
  const graph::Node& node = graph.nodes[index];
  const graph::Call& call = *node.call;
  const ops::ParsedLowering* lowering = choose(call);
  if (!lowering) return {};

  uint32_t elements = 0;
  for (const Formal& formal : call.formals)
    if (is_list(formal)) {
      if (elements && formal.count != elements) return {};
      elements = formal.count;
    }
  const bool lists = elements != 0;
  if (!lists) elements = 1;
  if (lowering->in_place ? node.definitions.size() != elements || !node.results.empty()
                         : node.results.size() != elements || !node.definitions.empty())
    return {};

  std::vector<PlacedPoint> found;
  for (uint32_t element = 0; element < elements; ++element) {
    Signature signature;
    uint32_t self = ~0u;
    for (const Formal& formal : call.formals) {
      const uint32_t at = formal.first + (is_list(formal) ? element : 0);
      const bool used = mentions(lowering->expression, formal.name);
      if (formal.kind == Formal::Kind::kTensor || formal.kind == Formal::Kind::kTensors) {
        if (formal.name == "self") self = at;
        if (used) signature.operands.push_back(at);
      } else if (used && (formal.kind == Formal::Kind::kScalar || formal.kind == Formal::Kind::kScalars)) {
        signature.scalars.push_back(&formal);
        signature.kinds.push_back(call.scalars[at]);
      }
    }
    if (signature.operands.empty()) return {};
    PlacedPoint placed;
    Point& point = placed.point;
    point.node = index;
    point.element = element;
    point.lowering = lowering;
    if (lowering->in_place) {
      if (self == ~0u || call.operands[self].access == Access::kRead) return {};
      signature.written = self;
      signature.output = &call.operands[self].meta;
      const auto definition = std::find_if(node.definitions.begin(), node.definitions.end(),
                                           [&](const graph::Definition& d) { return d.operand == self; });
      if (definition == node.definitions.end()) return {};
      point.output.value = definition->value;
      point.output.offset = node.uses[self].offset;
    } else {
      signature.output = &call.results[element];
      point.output.value = {node.results[element], 0};
    }
    const TensorMeta& output = *signature.output;
    if (!usable(output) || output.numel() == 0 || !no_overlap(output)) return {};
    const std::optional<DType> common = common_dtype(call, *lowering, signature);
    if (!common) return {};
    point.common = *common;
    point.output.dtype = output.dtype;

    // The order of the output's memory, so that the innermost loop walks along it.
    std::vector<size_t> order;
    for (size_t i = 0; i < output.sizes.size(); ++i)
      if (output.sizes[i] != 1) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return output.strides[a] > output.strides[b]; });
    for (size_t dim : order) {
      placed.sizes.push_back(output.sizes[dim]);
      point.output.strides.push_back(output.strides[dim]);
    }
    for (uint32_t k : signature.operands) {
      const TensorMeta& meta = call.operands[k].meta;
      if (!usable(meta)) return {};
      auto strides = strides_along(meta, output.sizes, order);
      if (!strides) return {};
      View view{node.uses[k].value, meta.dtype, node.uses[k].offset, std::move(*strides)};
      // Memory that is written and read through another view: PyTorch decides whether that is an error.
      if (lowering->in_place && view.value.buffer == point.output.value.buffer &&
          (view.offset != point.output.offset || view.strides != point.output.strides ||
           view.dtype != point.output.dtype))
        return {};
      point.inputs.push_back(std::move(view));
      point.operands.push_back(k);
    }
    found.push_back(std::move(placed));
  }
  // Two elements over one buffer: their order would matter.
  if (lowering->in_place && elements > 1) {
    std::vector<uint32_t> written, read;
    for (const PlacedPoint& placed : found) {
      written.push_back(placed.point.output.value.buffer);
      for (const View& view : placed.point.inputs) read.push_back(view.value.buffer);
    }
    std::sort(written.begin(), written.end());
    if (std::adjacent_find(written.begin(), written.end()) != written.end()) return {};
    for (const PlacedPoint& placed : found)
      for (const View& view : placed.point.inputs)
        if (view.value.buffer != placed.point.output.value.buffer &&
            std::binary_search(written.begin(), written.end(), view.value.buffer))
          return {};
  }
  return found;
}

bool refine(std::vector<int64_t>& a, const std::vector<std::vector<int64_t>*>& strides_a, std::vector<int64_t>& b,
            const std::vector<std::vector<int64_t>*>& strides_b) {
  // Both are walked from the innermost dimension; `cuts` are the sizes of the common refinement, innermost first.
  std::vector<int64_t> cuts;
  {
    size_t i = a.size(), j = b.size();
    int64_t rest_a = 1, rest_b = 1;
    while (true) {
      if (rest_a == 1 && i > 0) rest_a = a[--i];
      if (rest_b == 1 && j > 0) rest_b = b[--j];
      if (rest_a == 1 && rest_b == 1) break;
      const int64_t cut = std::gcd(rest_a, rest_b);
      // Only whole inner parts split off: the smaller of the two has to divide the other.
      if (cut != std::min(rest_a, rest_b) || cut == 1) return false;
      cuts.push_back(cut);
      rest_a /= cut;
      rest_b /= cut;
    }
  }
  const auto split = [&](std::vector<int64_t>& sizes, const std::vector<std::vector<int64_t>*>& all) {
    std::vector<size_t> parent;  // of each cut, the dimension that it is part of
    std::vector<int64_t> inner;  // how many elements of that dimension lie further in
    size_t dim = sizes.size();
    int64_t left = 1, done = 1;
    for (int64_t cut : cuts) {
      if (left == 1) {
        left = sizes[--dim];
        done = 1;
      }
      parent.push_back(dim);
      inner.push_back(done);
      done *= cut;
      left /= cut;
    }
    for (std::vector<int64_t>* strides : all) {
      std::vector<int64_t> now;
      for (size_t c = cuts.size(); c-- > 0;) now.push_back((*strides)[parent[c]] * inner[c]);
      *strides = std::move(now);
    }
    sizes.assign(cuts.rbegin(), cuts.rend());
  };
  split(a, strides_a);
  split(b, strides_b);
  return true;
}

}  // namespace sinter::fusion
