#include "torch/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/min.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "runtime/philox.h"
#include "torch/kernel_scope.h"
#include "torch/library_call.h"

namespace sinter::torch_device {
namespace {

using philox::DrawBits;
using philox::Position;

// The ops that have kernels here; every other one is a library call.
enum class RandomOp : uint8_t {
  kLibrary,
  kUniform,
  kNormal,
  kBernoulli,
  kBernoulliEach,
  kBernoulliOut,
  kDropout,
  kRandom,
  kRandomFrom,
  kRandomTo,
  kExponential,
  kCauchy,
  kLogNormal,
  kGeometric,
  kNormalMean,  // a tensor of means, one standard deviation
  kNormalMeanOut,
  kNormalStd,  // one mean, a tensor of standard deviations
  kNormalStdOut,
  kNormalBoth,
  kNormalBothOut,
};

RandomOp op_of(std::string_view name) {
  static const auto* known = new std::unordered_map<std::string_view, RandomOp>{
      {"aten::uniform_", RandomOp::kUniform},
      {"aten::normal_", RandomOp::kNormal},
      {"aten::bernoulli_.float", RandomOp::kBernoulli},
      {"aten::bernoulli_.Tensor", RandomOp::kBernoulliEach},
      {"aten::bernoulli.out", RandomOp::kBernoulliOut},
      {"aten::native_dropout", RandomOp::kDropout},
      {"aten::random_", RandomOp::kRandom},
      {"aten::random_.from", RandomOp::kRandomFrom},
      {"aten::random_.to", RandomOp::kRandomTo},
      {"aten::exponential_", RandomOp::kExponential},
      {"aten::cauchy_", RandomOp::kCauchy},
      {"aten::log_normal_", RandomOp::kLogNormal},
      {"aten::geometric_", RandomOp::kGeometric},
      {"aten::normal.Tensor_float", RandomOp::kNormalMean},
      {"aten::normal.Tensor_float_out", RandomOp::kNormalMeanOut},
      {"aten::normal.float_Tensor", RandomOp::kNormalStd},
      {"aten::normal.float_Tensor_out", RandomOp::kNormalStdOut},
      {"aten::normal.Tensor_Tensor", RandomOp::kNormalBoth},
      {"aten::normal.Tensor_Tensor_out", RandomOp::kNormalBothOut},
  };
  const auto found = known->find(name);
  return found == known->end() ? RandomOp::kLibrary : found->second;
}

// Ops that fill their first argument and read no other tensor.
bool fills_self(RandomOp op) {
  switch (op) {
    case RandomOp::kUniform:
    case RandomOp::kNormal:
    case RandomOp::kBernoulli:
    case RandomOp::kRandom:
    case RandomOp::kRandomFrom:
    case RandomOp::kRandomTo:
    case RandomOp::kExponential:
    case RandomOp::kCauchy:
    case RandomOp::kLogNormal:
    case RandomOp::kGeometric:
      return true;
    default:
      return false;
  }
}

// ---------------------------------------------------------------- filling tensors

constexpr int64_t kChunk = 1024;  // elements that a thread holds on its stack
constexpr int64_t kGrain = 1 << 14;

// Calls run(first, count, offset, stride) for the innermost rows of elements [begin, end): `count` elements whose
// first, number `first`, lies at `offset`.
template <class Run>
void for_rows(const at::Tensor& tensor, int64_t begin, int64_t end, Run&& run) {
  const c10::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  if (sizes.empty()) return run(begin, end - begin, int64_t{0}, int64_t{1});
  const int64_t width = sizes.back(), stride = strides.back();
  for (int64_t i = begin; i < end;) {
    int64_t rest = i / width, offset = i % width * stride;
    const int64_t count = std::min(end - i, width - i % width);
    for (size_t d = sizes.size() - 1; d-- > 0; rest /= sizes[d]) offset += rest % sizes[d] * strides[d];
    run(i, count, offset, stride);
    i += count;
  }
}

// A value drawn, in the type that is stored.
template <class Stored, class Drawn>
Stored stored_as(Drawn value) {
  if constexpr (std::is_integral_v<Stored> && std::is_floating_point_v<Drawn>) {
    // Saturated first: a conversion out of range has no defined result.
    return static_cast<Stored>(static_cast<int64_t>(std::min(value, static_cast<Drawn>(int64_t{1} << 62))));
  } else if constexpr (std::is_same_v<Stored, Drawn>) {
    return value;
  } else {
    return static_cast<Stored>(value);
  }
}

// Writes every element of `out`: draw(values, begin, end) gives elements [begin, end) as `Drawn`.
template <class Stored, class Drawn, class Draw>
void fill(const at::Tensor& out, Draw&& draw) {
  auto* data = out.mutable_data_ptr<Stored>();
  const bool contiguous = out.is_contiguous();
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t from, int64_t to) {
    if constexpr (std::is_same_v<Stored, Drawn>) {
      if (contiguous) return draw(data + from, from, to);
    }
    std::array<Drawn, kChunk> values;
    for (int64_t begin = from; begin < to; begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, to);
      draw(values.data(), begin, end);
      if (contiguous) {
        for (int64_t i = begin; i < end; ++i) data[i] = stored_as<Stored>(values[i - begin]);
      } else {
        for_rows(out, begin, end, [&](int64_t first, int64_t count, int64_t offset, int64_t stride) {
          for (int64_t i = 0; i < count; ++i) data[offset + i * stride] = stored_as<Stored>(values[first - begin + i]);
        });
      }
    }
  });
}

// Float kernels serve the two short types; double has its own.
template <class Stored>
using DrawnAs = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

template <class Stored>
constexpr philox::Real kReal = std::is_same_v<Stored, at::Half>       ? philox::Real::kHalf
                               : std::is_same_v<Stored, at::BFloat16> ? philox::Real::kBFloat16
                                                                      : philox::Real::kFloat;

// Instantiates for the floating types; complex tensors come as their real and imaginary parts.
#define SINTER_FLOATING(tensor, name, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, (tensor).scalar_type(), name, __VA_ARGS__)

void draw_uniform(float* out, int64_t begin, int64_t end, Position at, double from, double to, philox::Real type) {
  philox::uniform(out, begin, end, at, from, to, type);
}
void draw_uniform(double* out, int64_t begin, int64_t end, Position at, double from, double to, philox::Real) {
  philox::uniform(out, begin, end, at, from, to);
}

void fill_uniform(const at::Tensor& self, Position at, double from, double to) {
  const at::Tensor out = self.is_complex() ? at::view_as_real(self) : self;
  SINTER_FLOATING(out, "uniform", [&] {
    using Drawn = DrawnAs<scalar_t>;
    fill<scalar_t, Drawn>(out, [&](Drawn* values, int64_t begin, int64_t end) {
      draw_uniform(values, begin, end, at, from, to, kReal<scalar_t>);
    });
  });
}

void fill_normal(const at::Tensor& self, Position at, double mean, double std) {
  // Both parts of a complex number share the variance.
  const at::Tensor out = self.is_complex() ? at::view_as_real(self) : self;
  if (self.is_complex()) std /= std::sqrt(2.0);
  SINTER_FLOATING(out, "normal", [&] {
    using Drawn = DrawnAs<scalar_t>;
    fill<scalar_t, Drawn>(
        out, [&](Drawn* values, int64_t begin, int64_t end) { philox::normal(values, begin, end, at, mean, std); });
  });
}

void fill_exponential(const at::Tensor& self, Position at, double lambda) {
  SINTER_FLOATING(self, "exponential", [&] {
    using Drawn = DrawnAs<scalar_t>;
    fill<scalar_t, Drawn>(
        self, [&](Drawn* values, int64_t begin, int64_t end) { philox::exponential(values, begin, end, at, lambda); });
  });
}

void fill_cauchy(const at::Tensor& self, Position at, double median, double sigma) {
  SINTER_FLOATING(self, "cauchy", [&] {
    using Drawn = DrawnAs<scalar_t>;
    fill<scalar_t, Drawn>(self, [&](Drawn* values, int64_t begin, int64_t end) {
      philox::cauchy(values, begin, end, at, median, sigma);
    });
  });
}

void fill_log_normal(const at::Tensor& self, Position at, double mean, double std) {
  SINTER_FLOATING(self, "log_normal", [&] {
    using Drawn = DrawnAs<scalar_t>;
    fill<scalar_t, Drawn>(self, [&](Drawn* values, int64_t begin, int64_t end) {
      philox::log_normal(values, begin, end, at, mean, std);
    });
  });
}

void fill_geometric(const at::Tensor& self, Position at, double p) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "geometric", [&] {
    // Integers hold larger values than float counts exactly.
    using Drawn = std::conditional_t<std::is_integral_v<scalar_t>, double, DrawnAs<scalar_t>>;
    fill<scalar_t, Drawn>(
        self, [&](Drawn* values, int64_t begin, int64_t end) { philox::geometric(values, begin, end, at, p); });
  });
}

void fill_bernoulli(const at::Tensor& self, Position at, double p) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(), "bernoulli", [&] {
    using Drawn = std::conditional_t<std::is_same_v<scalar_t, float>, float, bool>;
    fill<scalar_t, Drawn>(
        self, [&](Drawn* values, int64_t begin, int64_t end) { philox::bernoulli(values, begin, end, at, p); });
  });
}

// Probabilities of elements [begin, end), checked.
template <class P, class Wide>
void gather_probabilities(const at::Tensor& p, int64_t begin, int64_t end, Wide* out) {
  const P* data = p.const_data_ptr<P>();
  for_rows(p, begin, end, [&](int64_t first, int64_t count, int64_t offset, int64_t stride) {
    for (int64_t i = 0; i < count; ++i) {
      const auto p_in = static_cast<Wide>(data[offset + i * stride]);
      TORCH_CHECK(p_in >= 0 && p_in <= 1);
      out[first - begin + i] = p_in;
    }
  });
}

void fill_bernoulli_each(const at::Tensor& self, Position at, const at::Tensor& probabilities) {
  const at::Tensor p = *at::expand_inplace(self, probabilities);
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(), "bernoulli", [&] {
    using Stored = scalar_t;
    fill<Stored, bool>(self, [&](bool* values, int64_t begin, int64_t end) {
      SINTER_FLOATING(p, "bernoulli", [&] {
        using Wide = DrawnAs<scalar_t>;
        std::array<Wide, kChunk> chunk;
        for (int64_t from = begin; from < end; from += kChunk) {
          const int64_t to = std::min(from + kChunk, end);
          gather_probabilities<scalar_t>(p, from, to, chunk.data());
          philox::bernoulli(values + (from - begin), from, to, at, chunk.data());
        }
      });
    });
  });
}

// ---- random_

struct Integers {
  int64_t base = 0;
  uint64_t range = 0;  // 0 stands for 2^64
};

// The significand's bits of floating types, where every integer up to 2^digits is exact; else 0.
template <class T>
constexpr int kDigits = std::is_integral_v<T> ? 0 : std::numeric_limits<T>::digits;

// An integer as T has it, back as an integer.
template <class T>
int64_t through(int64_t value) {
  const auto rounded = static_cast<double>(static_cast<T>(static_cast<double>(value)));
  if (!std::isfinite(rounded)) return value;
  return rounded >= 0x1p63 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(rounded);
}
// The distance of T's neighbouring values near `value`.
template <class T>
int64_t spacing(int64_t value) {
  const auto size = static_cast<uint64_t>(value < 0 ? -(value + 1) : value);
  const int exponent = size ? 63 - __builtin_clzll(size) : 0;
  return int64_t{1} << std::max(0, exponent - kDigits<T> + 1);
}
// The nearest bounds whose conversion to T stays within [from, to).
template <class T>
int64_t lowest_from(int64_t from) {
  if constexpr (kDigits < T >> 0) {
    if (through<T>(from) < from) {
      const int64_t step = spacing<T>(from);
      return (from / step + (from > 0)) * step;
    }
  }
  return from;
}
template <class T>
int64_t highest_to(int64_t to) {
  if constexpr (kDigits < T >> 0) {
    if (const int64_t last = to - 1; through<T>(last) > last) {
      const int64_t step = spacing<T>(last);
      return (last / step - (last < 0)) * step + 1;
    }
  }
  return to;
}

template <class T>
Integers bounds(RandomOp op, const torch::jit::Stack& stack) {
  const bool with_from = op == RandomOp::kRandomFrom;
  if (op == RandomOp::kRandom) {
    if constexpr (std::is_same_v<T, bool>)
      return {0, 2};
    else if constexpr (kDigits<T> > 0)
      return {0, (uint64_t{1} << kDigits<T>)+1};
    else
      return {0, static_cast<uint64_t>(std::numeric_limits<T>::max()) + 1};
  }
  int64_t from = with_from ? stack[1].toInt() : 0;
  const c10::IValue& last = stack[with_from ? 2 : 1];
  if (!last.isNone()) {
    from = lowest_from<T>(from);
    const int64_t to = highest_to<T>(last.toInt());
    return {from, static_cast<uint64_t>(to) - static_cast<uint64_t>(from)};
  }
  if (from == std::numeric_limits<int64_t>::lowest()) return {from, 0};
  from = lowest_from<T>(from);
  int64_t top;  // inclusive
  if constexpr (kDigits < T >> 0)
    top = int64_t{1} << kDigits<T>;
  else
    top = static_cast<int64_t>(std::min<uint64_t>(static_cast<uint64_t>(std::numeric_limits<T>::max()), INT64_MAX));
  return {from, static_cast<uint64_t>(top) - static_cast<uint64_t>(from) + 1};
}

void fill_integers(RandomOp op, const torch::jit::Stack& stack, Position at) {
  const at::Tensor& self = stack[0].toTensor();
  AT_DISPATCH_V2(self.scalar_type(), "random_", AT_WRAP([&] {
                   const Integers in = bounds<scalar_t>(op, stack);
                   fill<scalar_t, int64_t>(self, [&](int64_t* values, int64_t begin, int64_t end) {
                     philox::integers(values, begin, end, at, in.base, in.range);
                   });
                 }),
                 at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

// ---- dropout

template <class T>
void drop(const at::Tensor& input, const at::Tensor& output, const at::Tensor& mask, Position at, double keep,
          double scale) {
  using Wide = DrawnAs<T>;
  const auto factor = static_cast<Wide>(static_cast<T>(scale));  // rounded, as eager's mul_ does
  const T* in = input.const_data_ptr<T>();
  T* out = output.mutable_data_ptr<T>();
  bool* kept = mask.mutable_data_ptr<bool>();
  at::parallel_for(0, input.numel(), kGrain, [&](int64_t from, int64_t to) {
    for (int64_t begin = from; begin < to; begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, to);
      philox::bernoulli(kept + begin, begin, end, at, keep);
      // A product, not a choice: infinities and NaNs that are dropped become NaN, as in eager.
      for (int64_t i = begin; i < end; ++i)
        out[i] = static_cast<T>(static_cast<Wide>(in[i]) * static_cast<Wide>(kept[i]) * factor);
    }
  });
}

void dropout(torch::jit::Stack& stack, Position at) {
  const at::Tensor input = stack[0].toTensor();
  const double p = stack[1].toDouble();
  const bool train = stack[2].isNone() || stack[2].toBool();
  const double keep = 1 - p, scale = keep == 0 ? 0 : 1 / keep;
  const auto as_mask = input.options().dtype(at::kBool);
  at::Tensor output, mask;
  if (input.numel() == 0) {
    output = input;
    mask = at::empty_like(input, input.options());
  } else if (!train) {
    mask = at::ones_like(input, as_mask);
    output = input.clone();
  } else {
    mask = at::empty_like(input, as_mask);
    if (input.is_floating_point() && input.is_contiguous() && !input.is_neg()) {
      output = at::empty(input.sizes(), input.options());
      SINTER_FLOATING(input, "dropout", [&] { drop<scalar_t>(input, output, mask, at, keep, scale); });
    } else {
      fill_bernoulli(mask, at, keep);
      output = input.mul(mask).mul_(scale);
    }
  }
  stack.clear();
  stack.emplace_back(std::move(output));
  stack.emplace_back(std::move(mask));
}

// ---- normal with tensors

// What the op makes is standard normal first; then times and plus, as PyTorch's own kernel does it.
void normal_from_tensors(RandomOp op, torch::jit::Stack& stack, Position at) {
  const bool to_out = op == RandomOp::kNormalMeanOut || op == RandomOp::kNormalStdOut || op == RandomOp::kNormalBothOut;
  const c10::IValue mean = stack[0], std = stack[1];
  if (std.isTensor()) {
    const at::Tensor& values = std.toTensor();
    TORCH_CHECK(!values.is_complex(), "normal expects standard deviation to be non-complex");
    TORCH_CHECK(values.numel() == 0 || values.min().item<double>() >= 0, "normal expects all elements of std >= 0.0");
  }
  at::Tensor out;
  if (to_out) {
    out = stack[3].toTensor();
  } else {
    const at::Tensor& first = mean.isTensor() ? mean.toTensor() : std.toTensor();
    const std::vector<int64_t> sizes = mean.isTensor() && std.isTensor()
                                           ? at::infer_size(mean.toTensor().sizes(), std.toTensor().sizes())
                                           : first.sizes().vec();
    out = at::empty(sizes, first.options());
  }
  if (!std.isTensor()) {
    fill_normal(out, at, 0, std.toDouble());
  } else {
    fill_normal(out, at, 0, 1);
    out.mul_(std.toTensor());
  }
  if (mean.isTensor())
    out.add_(mean.toTensor());
  else
    out.add_(mean.toScalar());
  stack.clear();
  stack.emplace_back(std::move(out));
}

// ---------------------------------------------------------------- checks

template <class T>
void check_uniform(double from, double to, c10::ScalarType type) {
  const double min = static_cast<double>(std::numeric_limits<T>::lowest());
  const double max = static_cast<double>(std::numeric_limits<T>::max());
  const caffe2::TypeMeta dtype = c10::scalarTypeToTypeMeta(type);
  TORCH_CHECK(from >= min && from <= max, "from", " is out of bounds for ", dtype);
  TORCH_CHECK(to >= min && to <= max, "to", " is out of bounds for ", dtype);
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  TORCH_CHECK(to - from <= max, "uniform_ expects to-from <= std::numeric_limits<", c10::toString(type),
              ">::max(), but found to=", to, " and from=", from, " which result in to-from to exceed the limit");
}

DrawBits bits_of(RandomOp op, c10::ScalarType type) {
  switch (op) {
    case RandomOp::kRandom:
    case RandomOp::kRandomFrom:
    case RandomOp::kRandomTo:
      return DrawBits::k64;
    case RandomOp::kBernoulli:
    case RandomOp::kBernoulliEach:
    case RandomOp::kBernoulliOut:
    case RandomOp::kDropout:
    case RandomOp::kLibrary:
      return DrawBits::k32;
    case RandomOp::kGeometric:
      if (c10::isIntegralType(type, /*includeBool=*/true)) return DrawBits::k64;
      [[fallthrough]];
    default:
      return c10::toRealValueType(type) == c10::ScalarType::Double ? DrawBits::k64 : DrawBits::k32;
  }
}

// Fixed arguments of a call that are not scalars.
bool draws_nothing(RandomOp op, const TorchCall& call) {
  return op == RandomOp::kDropout && call.arguments[2].value.isBool() && !call.arguments[2].value.toBool();
}

graph::TensorMeta meta_with(const graph::TensorMeta& like, c10::ScalarType type) {
  graph::TensorMeta meta = like;
  meta.dtype = static_cast<graph::DType>(type);
  meta.element_size = static_cast<uint8_t>(c10::elementSize(type));
  return meta;
}

void add_result(TorchCall& call, graph::TensorMeta meta) {
  const auto index = static_cast<uint32_t>(call.results.size());
  call.results.push_back(std::move(meta));
  call.returns.push_back({ReturnSlot::Kind::kResult, index, 1});
}

// The op's own kernel on one element tells whether it takes the dtype and the arguments.
void ask_kernel(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  c10::impl::ForceDispatchKeyGuard keys(kernel_dispatch_keys());
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  stack[0] = at::empty({1}, at::TensorOptions().dtype(stack[0].toTensor().scalar_type()));
  stack.back() = seeded_generator(0, 0);
  info.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
}

// The result of sampling rows; false where the op refuses.
bool infer_multinomial(c10::ArrayRef<c10::IValue> arguments, TorchCall& call) {
  const graph::TensorMeta& self = call.operands[0].meta;
  const int64_t samples = arguments[1].toInt();
  const bool replacement = arguments[2].toBool();
  const auto type = static_cast<c10::ScalarType>(self.dtype);
  if (!c10::isFloatingType(type) || samples <= 0) return false;
  if (self.sizes.size() != 1 && self.sizes.size() != 2) return false;
  const int64_t categories = self.sizes.back();
  if (categories <= 0 || categories > (int64_t{1} << 24) || self.numel() == 0) return false;
  if (!replacement && samples > categories) return false;
  graph::TensorMeta meta = meta_with({}, c10::ScalarType::Long);
  if (self.sizes.size() == 2)
    meta.sizes = {self.sizes[0], samples}, meta.strides = {samples, 1};
  else
    meta.sizes = {samples}, meta.strides = {1};
  add_result(call, std::move(meta));
  return true;
}

}  // namespace

uint64_t draws_of(const TorchCall& call) {
  const RandomOp op = op_of(call.name);
  if (draws_nothing(op, call)) return 0;
  const graph::TensorMeta* meta = nullptr;
  for (const graph::TensorMeta& result : call.results)
    if (result.defined && !meta) meta = &result;
  for (const graph::Operand& operand : call.operands)
    if (operand.access != graph::Access::kRead && !meta) meta = &operand.meta;
  if (!meta) return 1;
  const auto type = static_cast<c10::ScalarType>(meta->dtype);
  const auto count = static_cast<uint64_t>(meta->numel()) * (c10::isComplexType(type) ? 2 : 1);
  const uint64_t counters = philox::counters_for(count, bits_of(op, type));
  // A library kernel is seeded by the range, so that two of them must not begin at the same place.
  return op == RandomOp::kLibrary ? std::max<uint64_t>(counters, 1) : counters;
}

bool infer_random(const OpInfo& info, const torch::jit::Stack& stack, TorchCall& call) {
  const RandomOp op = op_of(info.name);
  const auto arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - info.arguments.size());
  if (fills_self(op)) {
    const at::Tensor& self = arguments[0].toTensor();
    // The others raise, or need more than their metadata; PyTorch's kernel knows.
    if (at::has_internal_overlap(self.unsafeGetTensorImpl()) != at::MemOverlap::No || self.is_conj() || self.is_neg())
      return false;
    ask_kernel(info, arguments);
    call.returns.push_back({ReturnSlot::Kind::kArgument, 0, 0});
    return true;
  }
  if (op == RandomOp::kDropout) {
    const graph::TensorMeta& input = call.operands[0].meta;
    const auto type = static_cast<c10::ScalarType>(input.dtype);
    if (!c10::isFloatingType(type) || input.numel() == 0 || input.neg) return false;
    if (arguments[0].toTensor().strides() != c10::IntArrayRef(c10::contiguous_strides(input.sizes))) return false;
    add_result(call, input);
    add_result(call, meta_with(input, c10::ScalarType::Bool));
    return true;
  }
  if (info.name == "aten::multinomial") return infer_multinomial(arguments, call);
  return false;
}

void check_random_scalars(const TorchCall& call, std::span<const graph::Scalar> scalars) {
  const auto scalar = [&](size_t argument) {
    const uint32_t i = call.arguments[argument].index;
    return number_of(scalars[i], call.scalars[i]).toScalar().toDouble();
  };
  const RandomOp op = op_of(call.name);
  switch (op) {
    case RandomOp::kUniform: {
      const auto type = c10::toRealValueType(static_cast<c10::ScalarType>(call.operands[0].meta.dtype));
      AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "check_uniform_bounds",
                                      [&] { check_uniform<scalar_t>(scalar(1), scalar(2), type); });
      return;
    }
    case RandomOp::kNormal:
    case RandomOp::kNormalMean:
    case RandomOp::kNormalMeanOut: {
      const double std = scalar(op == RandomOp::kNormal ? 2 : 1);
      TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
      return;
    }
    case RandomOp::kBernoulli:
    case RandomOp::kDropout: {
      const bool drops = op == RandomOp::kDropout;
      if (drops && draws_nothing(RandomOp::kDropout, call)) return;
      const double p = drops ? 1 - scalar(1) : scalar(1);
      TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
      return;
    }
    case RandomOp::kExponential: {
      const double lambda = scalar(1);
      TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
      return;
    }
    case RandomOp::kCauchy: {
      const double sigma = scalar(2);
      TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
      return;
    }
    case RandomOp::kLogNormal: {
      const double std = scalar(2);
      TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
      return;
    }
    case RandomOp::kGeometric: {
      const double p = scalar(1);
      TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
      return;
    }
    default:
      return;
  }
}

bool run_random(const TorchCall& call, std::span<const graph::Scalar> scalars, torch::jit::Stack& stack) {
  const RandomOp op = op_of(call.name);
  if (op == RandomOp::kLibrary) return false;
  const Position at{scalars[call.seed_scalar].bits[0], scalars[call.seed_scalar + 1].bits[0]};
  const auto number = [&](size_t i) { return stack[i].toScalar().toDouble(); };
  const at::Tensor self = stack[0].isTensor() ? stack[0].toTensor() : at::Tensor();
  switch (op) {
    case RandomOp::kUniform:
      fill_uniform(self, at, number(1), number(2));
      break;
    case RandomOp::kNormal:
      fill_normal(self, at, number(1), number(2));
      break;
    case RandomOp::kBernoulli:
      fill_bernoulli(self, at, number(1));
      break;
    case RandomOp::kBernoulliEach:
      fill_bernoulli_each(self, at, stack[1].toTensor());
      break;
    case RandomOp::kBernoulliOut: {
      const at::Tensor out = stack[2].toTensor();
      fill_bernoulli_each(out, at, self);
      stack.clear();
      stack.emplace_back(out);
      return true;
    }
    case RandomOp::kDropout:
      dropout(stack, at);
      return true;
    case RandomOp::kRandom:
    case RandomOp::kRandomFrom:
    case RandomOp::kRandomTo:
      fill_integers(op, stack, at);
      break;
    case RandomOp::kExponential:
      fill_exponential(self, at, number(1));
      break;
    case RandomOp::kCauchy:
      fill_cauchy(self, at, number(1), number(2));
      break;
    case RandomOp::kLogNormal:
      fill_log_normal(self, at, number(1), number(2));
      break;
    case RandomOp::kGeometric:
      fill_geometric(self, at, number(1));
      break;
    default:
      normal_from_tensors(op, stack, at);
      return true;
  }
  stack.clear();
  stack.emplace_back(self);
  return true;
}

}  // namespace sinter::torch_device
