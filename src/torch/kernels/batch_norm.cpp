// Batch normalisation of images with channels last, and of matrices: training, forward and backward.
//
// Two passes over memory each: sums of every column, then the result. The statistics are counted from the first row, in
// floats over a block of rows and in doubles over the blocks. How rows are divided into blocks depends on their number
// only, so the number of threads changes no bit.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "torch/kernels/kernel_table.h"
#include "torch/kernels/tiles/tile_functions.h"

namespace sinter::torch_device {
namespace {

using tiles::Real;
using tiles::Rows;

constexpr int64_t kBlock = 16;       // rows that are summed as floats
constexpr int64_t kLeastRows = 256;  // of a part
constexpr int64_t kMostParts = 32;   // that rows are divided into
constexpr int64_t kWorthAThread = 1 << 15;  // elements

// The tensor as rows of channels, if it lies so.
std::optional<Rows> rows_of(const at::Tensor& t, int64_t channels) {
  const bool image = t.dim() == 4 && t.is_contiguous(at::MemoryFormat::ChannelsLast);
  const bool matrix = t.dim() == 2 && t.is_contiguous();
  if (!image && !matrix) return std::nullopt;
  Real type;
  if (t.scalar_type() == at::kFloat)
    type = Real::kFloat;
  else if (t.scalar_type() == at::kBFloat16)
    type = Real::kBFloat16;
  else if (t.scalar_type() == at::kHalf)
    type = Real::kHalf;
  else
    return std::nullopt;
  return Rows{t.const_data_ptr(), channels, type};
}

bool absent_or_floats(const c10::IValue& value, int64_t channels) {
  if (value.isNone() || !value.toTensor().defined()) return true;
  const at::Tensor& t = value.toTensor();
  return t.scalar_type() == at::kFloat && t.is_contiguous() && t.numel() == channels;
}

const float* floats(const c10::IValue& value) {
  return value.isNone() || !value.toTensor().defined() ? nullptr : value.toTensor().const_data_ptr<float>();
}

struct Sums {
  std::vector<double> sums, products;  // a column
};

Sums column_sums(Rows x, Rows gradient, int64_t rows, int64_t columns, const float* shift) {
  const int64_t part = std::max(kLeastRows, (rows + kMostParts - 1) / kMostParts), parts = (rows + part - 1) / part;
  std::vector<Sums> of(static_cast<size_t>(parts));
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / (part * columns));
  at::parallel_for(0, parts, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> some(static_cast<size_t>(2 * columns));
    for (int64_t p = begin; p < end; ++p) {
      Sums& mine = of[static_cast<size_t>(p)];
      mine.sums.resize(static_cast<size_t>(columns));
      mine.products.resize(static_cast<size_t>(columns));
      for (int64_t row = p * part; row < std::min(rows, (p + 1) * part); row += kBlock) {
        const int64_t count = std::min(kBlock, std::min(rows, (p + 1) * part) - row);
        tiles::functions()->column_sums({x.from(row), gradient.data ? gradient.from(row) : Rows{}, count, columns, shift,
                                         some.data(), some.data() + columns});
        for (int64_t c = 0; c < columns; ++c) {
          mine.sums[static_cast<size_t>(c)] += some[static_cast<size_t>(c)];
          mine.products[static_cast<size_t>(c)] += some[static_cast<size_t>(columns + c)];
        }
      }
    }
  });
  for (size_t p = 1; p < of.size(); ++p)
    for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
      of[0].sums[c] += of[p].sums[c];
      of[0].products[c] += of[p].products[c];
    }
  return std::move(of[0]);
}

void column_scale(tiles::ColumnScale step) {
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / step.columns);
  at::parallel_for(0, step.rows, grain, [&](int64_t begin, int64_t end) {
    tiles::ColumnScale part = step;
    part.x = step.x.from(begin), part.out = step.out.from(begin);
    if (step.gradient.data) part.gradient = step.gradient.from(begin);
    part.rows = end - begin;
    tiles::functions()->column_scale(part);
  });
}

struct Problem {
  Rows x;
  int64_t rows, channels;
};

std::optional<Problem> read(const at::Tensor& input) {
  if (!tiles::functions() || input.dim() < 2 || input.numel() == 0) return std::nullopt;
  const int64_t channels = input.size(1);
  const auto x = rows_of(input, channels);
  if (!x || channels % tiles::kColumns != 0) return std::nullopt;
  return Problem{*x, input.numel() / channels, channels};
}

}  // namespace

bool batch_norm(const TorchCall&, torch::jit::Stack& stack) {
  const size_t at = stack.size() - 8;
  const at::Tensor input = stack[at].toTensor();
  const auto problem = read(input);
  if (!problem || !stack[at + 5].toBool()) return false;
  const auto [x, rows, channels] = *problem;
  for (size_t i = 1; i <= 4; ++i)
    if (!absent_or_floats(stack[at + i], channels)) return false;
  // The statistics have the parameters' type, which is the input's where there are none.
  if (x.type != Real::kFloat && !floats(stack[at + 1])) return false;
  const double momentum = stack[at + 6].toDouble(), epsilon = stack[at + 7].toDouble();

  std::vector<float> shift(static_cast<size_t>(channels)), slope(shift), constant(shift);
  const at::Tensor first = (input.dim() == 4 ? input.select(0, 0).select(1, 0).select(1, 0) : input.select(0, 0))
                               .to(at::kFloat).contiguous();
  std::copy_n(first.const_data_ptr<float>(), channels, shift.data());
  const Sums sums = column_sums(x, {}, rows, channels, shift.data());

  at::Tensor out = at::empty_like(input);
  at::Tensor mean = at::empty({channels}, input.options().dtype(at::kFloat)), deviation = at::empty_like(mean);
  const float *weight = floats(stack[at + 1]), *bias = floats(stack[at + 2]);
  auto* running_mean = const_cast<float*>(floats(stack[at + 3]));
  auto* running_variance = const_cast<float*>(floats(stack[at + 4]));
  auto *means = mean.mutable_data_ptr<float>(), *inverse = deviation.mutable_data_ptr<float>();
  const auto n = static_cast<double>(rows);
  for (int64_t c = 0; c < channels; ++c) {
    const auto i = static_cast<size_t>(c);
    const double from_shift = sums.sums[i] / n;
    const double average = shift[i] + from_shift;
    const double variance = std::max(0.0, sums.products[i] / n - from_shift * from_shift);
    means[c] = static_cast<float>(average);
    inverse[c] = static_cast<float>(1 / std::sqrt(variance + epsilon));
    if (std::isnan(sums.products[i])) inverse[c] = std::numeric_limits<float>::quiet_NaN();
    slope[i] = inverse[c] * (weight ? weight[c] : 1.0f);
    constant[i] = bias ? bias[c] : 0.0f;
    if (running_mean) running_mean[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * average);
    if (running_variance)
      running_variance[c] =
          static_cast<float>((1 - momentum) * running_variance[c] + momentum * (variance * n / (n - 1)));
  }
  column_scale({x, {}, rows, channels, means, slope.data(), nullptr, constant.data(),
                {out.mutable_data_ptr(), channels, x.type}});
  stack.resize(at);
  stack.emplace_back(std::move(out));
  stack.emplace_back(std::move(mean));
  stack.emplace_back(std::move(deviation));
  return true;
}

bool batch_norm_backward(const TorchCall&, torch::jit::Stack& stack) {
  const size_t at = stack.size() - 10;
  const at::Tensor gradient = stack[at].toTensor(), input = stack[at + 1].toTensor();
  const auto problem = read(input);
  if (!problem || !stack[at + 7].toBool()) return false;
  const auto [x, rows, channels] = *problem;
  const auto g = rows_of(gradient, channels);
  if (!g || g->type != x.type || gradient.sizes() != input.sizes()) return false;
  for (const size_t i : {2, 5, 6})
    if (!absent_or_floats(stack[at + i], channels)) return false;
  const float *weight = floats(stack[at + 2]), *mean = floats(stack[at + 5]), *inverse = floats(stack[at + 6]);
  if (!mean || !inverse || (x.type != Real::kFloat && !weight)) return false;
  const auto wanted = stack[at + 9].toBoolList();

  const Sums sums = column_sums(x, *g, rows, channels, mean);
  const at::TensorOptions options = input.options().dtype(at::kFloat);
  at::Tensor of_input, of_weight, of_bias;
  if (wanted[1]) of_weight = at::empty({channels}, options);
  if (wanted[2]) of_bias = at::empty({channels}, options);
  std::vector<float> slope(static_cast<size_t>(channels)), factor(slope), constant(slope);
  const auto n = static_cast<double>(rows);
  for (int64_t c = 0; c < channels; ++c) {
    const auto i = static_cast<size_t>(c);
    const double deviation = inverse[c], scale = deviation * (weight ? weight[c] : 1.0);
    if (wanted[1]) of_weight.mutable_data_ptr<float>()[c] = static_cast<float>(sums.products[i] * deviation);
    if (wanted[2]) of_bias.mutable_data_ptr<float>()[c] = static_cast<float>(sums.sums[i]);
    factor[i] = static_cast<float>(scale);
    slope[i] = static_cast<float>(-scale * deviation * deviation * sums.products[i] / n);
    constant[i] = static_cast<float>(-scale * sums.sums[i] / n);
  }
  if (wanted[0]) {
    of_input = at::empty_like(input);
    column_scale({x, *g, rows, channels, mean, slope.data(), factor.data(), constant.data(),
                  {of_input.mutable_data_ptr(), channels, x.type}});
  }
  stack.resize(at);
  stack.emplace_back(std::move(of_input));
  stack.emplace_back(std::move(of_weight));
  stack.emplace_back(std::move(of_bias));
  return true;
}

}  // namespace sinter::torch_device
