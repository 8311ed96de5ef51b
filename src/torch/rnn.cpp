// Recurrent networks as eager runs them on the CPU, to the bit.
//
// PyTorch's own composites look at the device: they send PrivateUse1 to fused cells that only CUDA has, and give oneDNN
// and the input product of a whole sequence to CPU tensors alone. So these composites take their place, above and below
// autograd. They say again what PyTorch's do for CPU tensors, op for op, and can go when PyTorch asks the backend.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "torch/device_state.h"
#include "torch/registration.h"

namespace sinter::torch_device {
namespace {

using at::Tensor;
using at::TensorList;

// ---------------------------------------------------------------- parameters and cells

struct Parameters {
  Tensor w_ih, w_hh, b_ih, b_hh;
  Tensor w_hr;  // projections only

  Tensor of_input(const Tensor& input) const { return at::linear(input, w_ih, b_ih); }
  Tensor of_hidden(const Tensor& hidden) const { return at::linear(hidden, w_hh, b_hh); }
  Tensor project(const Tensor& hidden) const { return w_hr.defined() ? at::matmul(hidden, w_hr.t()) : hidden; }
};

// What goes from step to step; `c` is the LSTM's alone.
struct Hidden {
  Tensor h, c;

  Hidden rows(int64_t begin, int64_t end) const {
    const auto part = [&](const Tensor& t) { return t.defined() ? t.narrow(0, begin, end - begin) : t; };
    return {part(h), part(c)};
  }
};

Hidden stack_rows(const std::vector<Hidden>& parts) {
  std::vector<Tensor> h, c;
  for (const Hidden& part : parts) {
    h.push_back(part.h);
    if (part.c.defined()) c.push_back(part.c);
  }
  return {at::cat(h, 0), c.empty() ? Tensor() : at::cat(c, 0)};
}

// One step. `input` is the step's input, or its product with the weights already when `multiplied`.
using Cell = Hidden (*)(const Tensor& input, const Hidden& hidden, const Parameters& with, bool multiplied);

template <Tensor (*kNonlinearity)(const Tensor&)>
Hidden simple_cell(const Tensor& input, const Hidden& hidden, const Parameters& with, bool multiplied) {
  return {kNonlinearity(with.of_hidden(hidden.h).add_(multiplied ? input : with.of_input(input))), {}};
}

Hidden lstm_cell(const Tensor& input, const Hidden& hidden, const Parameters& with, bool multiplied) {
  const Tensor gates = with.of_hidden(hidden.h).add_(multiplied ? input : with.of_input(input));
  const std::vector<Tensor> parts = gates.unsafe_chunk(4, 1);
  const Tensor in = parts[0].sigmoid_(), forget = parts[1].sigmoid_();
  const Tensor cell = parts[2].tanh_(), out = parts[3].sigmoid_();
  Tensor c = forget.mul(hidden.c).add_(in.mul(cell));
  const Tensor h = out.mul(c.tanh());
  return {with.project(h), std::move(c)};
}

Hidden gru_cell(const Tensor& input, const Hidden& hidden, const Parameters& with, bool multiplied) {
  const std::vector<Tensor> of_input = (multiplied ? input : with.of_input(input)).unsafe_chunk(3, 1);
  const std::vector<Tensor> of_hidden = with.of_hidden(hidden.h).unsafe_chunk(3, 1);
  const Tensor reset = of_hidden[0].add_(of_input[0]).sigmoid_();
  const Tensor update = of_hidden[1].add_(of_input[1]).sigmoid_();
  const Tensor fresh = of_input[2].add(of_hidden[2].mul_(reset)).tanh_();
  return {hidden.h.sub(fresh).mul_(update).add_(fresh), {}};
}

// ---------------------------------------------------------------- one direction of one layer

struct Sequence {
  Tensor data;
  const int64_t* batch_sizes = nullptr;  // of a packed sequence: how many rows each step has, never rising
  int64_t steps = 0;
};

struct Run {
  Tensor outputs;
  Hidden last;
};

Run run_whole(Cell cell, const Tensor& input, Hidden hidden, const Parameters& with, bool backwards) {
  std::vector<Tensor> steps = with.of_input(input).unbind(0);
  if (backwards) std::reverse(steps.begin(), steps.end());
  std::vector<Tensor> outputs;
  for (const Tensor& step : steps) {
    hidden = cell(step, hidden, with, /*multiplied=*/true);
    outputs.push_back(hidden.h);
  }
  TORCH_CHECK(!outputs.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  return {at::stack(outputs, 0), std::move(hidden)};
}

// Sequences end one after another: the rows of those that have ended are set aside.
Run run_packed(Cell cell, const Sequence& input, Hidden hidden, const Parameters& with) {
  const Tensor product = with.of_input(input.data);
  std::vector<Tensor> outputs;
  std::vector<Hidden> ended;
  int64_t row = 0, rows = input.batch_sizes[0];
  for (int64_t step = 0; step < input.steps; ++step) {
    const int64_t now = input.batch_sizes[step];
    const Tensor part = product.narrow(0, row, now);
    row += now;
    if (now < rows) {
      ended.push_back(hidden.rows(now, rows));
      hidden = hidden.rows(0, now);
    }
    rows = now;
    hidden = cell(part, hidden, with, /*multiplied=*/true);
    outputs.push_back(hidden.h);
  }
  ended.push_back(hidden);
  std::reverse(ended.begin(), ended.end());
  return {at::cat(outputs, 0), stack_rows(ended)};
}

// From the end: sequences begin one after another.
Run run_packed_backwards(Cell cell, const Sequence& input, const Hidden& first, const Parameters& with) {
  const Tensor product = with.of_input(input.data);
  std::vector<Tensor> outputs;
  int64_t row = input.data.size(0), rows = input.batch_sizes[input.steps - 1];
  Hidden hidden = first.rows(0, rows);
  for (int64_t step = input.steps - 1; step >= 0; --step) {
    const int64_t now = input.batch_sizes[step];
    if (now > rows) hidden = stack_rows({hidden, first.rows(rows, now)});
    row -= now;
    rows = now;
    hidden = cell(product.narrow(0, row, now), hidden, with, /*multiplied=*/true);
    outputs.push_back(hidden.h);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), std::move(hidden)};
}

// ---------------------------------------------------------------- layers

struct Settings {
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
};

struct Stacked {
  Tensor outputs;
  std::vector<Hidden> last;  // by layer, then direction
};

Stacked run_layers(Cell cell, const Sequence& input, const std::vector<Hidden>& first,
                   const std::vector<Parameters>& parameters, const Settings& how) {
  const size_t directions = how.bidirectional ? 2 : 1;
  TORCH_CHECK(first.size() % directions == 0 && parameters.size() % directions == 0,
              "Odd number of params or hiddens given to a bidirectional RNN");
  TORCH_CHECK(how.layers == static_cast<int64_t>(first.size() / directions),
              "Expected more hidden states in stacked_rnn");
  TORCH_CHECK(how.layers == static_cast<int64_t>(parameters.size() / directions),
              "Expected more weights in stacked_rnn");
  Stacked result;
  Sequence now = input;
  for (int64_t layer = 0; layer < how.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (size_t direction = 0; direction < directions; ++direction) {
      const size_t i = static_cast<size_t>(layer) * directions + direction;
      Run run = !now.batch_sizes ? run_whole(cell, now.data, first[i], parameters[i], direction == 1)
                : direction == 0 ? run_packed(cell, now, first[i], parameters[i])
                                 : run_packed_backwards(cell, now, first[i], parameters[i]);
      outputs.push_back(std::move(run.outputs));
      result.last.push_back(std::move(run.last));
    }
    now.data = directions == 1 ? outputs[0] : at::cat(outputs, now.batch_sizes ? -1 : outputs[0].dim() - 1);
    if (how.dropout != 0 && how.train && layer < how.layers - 1)
      now.data = at::dropout(now.data, how.dropout, /*train=*/true);
  }
  result.outputs = std::move(now.data);
  return result;
}

std::vector<Parameters> gather(TensorList flat, bool biases, bool projections) {
  const size_t each = 2 + (biases ? 2 : 0) + (projections ? 1 : 0);
  TORCH_CHECK(flat.size() % each == 0, "got an incorrect number of RNN parameters");
  std::vector<Parameters> result;
  for (size_t i = 0; i < flat.size(); i += each) {
    Parameters with{flat[i], flat[i + 1], {}, {}, {}};
    if (biases) with.b_ih = flat[i + 2], with.b_hh = flat[i + 3];
    if (projections) with.w_hr = flat[i + each - 1];
    result.push_back(std::move(with));
  }
  return result;
}

std::vector<Hidden> unbind(const Tensor& hx, const Tensor& cx = {}) {
  std::vector<Hidden> result;
  const std::vector<Tensor> h = hx.unbind(0);
  const std::vector<Tensor> c = cx.defined() ? cx.unbind(0) : std::vector<Tensor>(h.size());
  for (size_t i = 0; i < h.size(); ++i) result.push_back({h[i], c.at(i)});
  return result;
}

Tensor stack_of(const std::vector<Hidden>& hidden, Tensor Hidden::*part) {
  std::vector<Tensor> tensors;
  for (const Hidden& one : hidden) tensors.push_back(one.*part);
  return at::stack(tensors, 0);
}

Sequence packed(const Tensor& data, const Tensor& batch_sizes) {
  TORCH_CHECK(batch_sizes.device().is_cpu(), "batch_sizes should always be on CPU, got ", batch_sizes.device());
  return {data, batch_sizes.const_data_ptr<int64_t>(), batch_sizes.size(0)};
}

// ---------------------------------------------------------------- the ops with one hidden state

template <Cell kCell>
std::tuple<Tensor, Tensor> rnn_input(const Tensor& batch, const Tensor& hx, TensorList flat, bool biases,
                                     int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  at::native::check_attributes(batch, flat, hx);
  const Tensor input = batch_first ? batch.transpose(0, 1) : batch;
  Stacked run =
      run_layers(kCell, {input}, unbind(hx), gather(flat, biases, false), {layers, dropout, train, bidirectional});
  Tensor last = stack_of(run.last, &Hidden::h);
  if (batch_first) run.outputs.transpose_(0, 1);
  return {std::move(run.outputs), std::move(last)};
}

template <Cell kCell>
std::tuple<Tensor, Tensor> rnn_data(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList flat,
                                    bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  Stacked run = run_layers(kCell, packed(data, batch_sizes), unbind(hx), gather(flat, biases, false),
                           {layers, dropout, train, bidirectional});
  Tensor last = stack_of(run.last, &Hidden::h);
  return {std::move(run.outputs), std::move(last)};
}

// ---------------------------------------------------------------- LSTM

bool onednn_supports(const char* question) {
  const auto op = c10::Dispatcher::singleton().findSchema({question, ""});
  if (!op) return false;
  torch::jit::Stack stack;
  op->callBoxed(&stack);
  return stack.back().toBool();
}

// Eager's conditions for oneDNN, with this device in the place of the CPU.
bool takes_onednn(const Tensor& input, TensorList parameters, TensorList hx) {
  static const bool bfloat16 = onednn_supports("mkldnn::_is_mkldnn_bf16_supported");
  static const bool half = onednn_supports("mkldnn::_is_mkldnn_fp16_supported");
  if (!at::globalContext().userEnabledMkldnn() || !at::globalContext().hasMKLDNN()) return false;
  const auto strided_here = [](const Tensor& t) {
    return t.device().type() == kDeviceType && t.layout() == at::kStrided;
  };
  if (!strided_here(input) || !std::all_of(parameters.begin(), parameters.end(), strided_here) ||
      !std::all_of(hx.begin(), hx.end(), strided_here))
    return false;
  const c10::ScalarType type = input.scalar_type();
  return (type == at::kFloat || (type == at::kBFloat16 && bfloat16) ||
          (type == at::kHalf && !at::GradMode::is_enabled() && half)) &&
         input.sym_numel() != 0;
}

using LstmResult = std::tuple<Tensor, Tensor, Tensor>;

LstmResult lstm_input(const Tensor& batch, TensorList hx, TensorList flat, bool biases, int64_t layers, double dropout,
                      bool train, bool bidirectional, bool batch_first) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const bool projections = hx[0].sym_size(2) != hx[1].sym_size(2);
  if (takes_onednn(batch, flat, hx)) {
    if (projections) {
      TORCH_WARN_ONCE("LSTM with projections is not supported with oneDNN. Using default implementation.");
    } else if (hx[0].unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
      TORCH_WARN_ONCE(
          "LSTM with symbolic sizes and strides is not supported with oneDNN. Using default implementation.");
    } else {
      // PyTorch's loop over layers: it calls ops only, so it works on any device. One function serves all vector
      // extensions; the stub's own call, which would choose, is not exported.
      Tensor output, hy, cy;
      at::native::lstm_mkldnn_stub.DEFAULT(output, hy, cy, batch, hx, flat, biases, layers, dropout, train,
                                           bidirectional, batch_first);
      return {std::move(output), std::move(hy), std::move(cy)};
    }
  }
  at::native::check_attributes(batch, flat, hx);
  const Tensor input = batch_first ? batch.transpose(0, 1) : batch;
  Stacked run = run_layers(lstm_cell, {input}, unbind(hx[0], hx[1]), gather(flat, biases, projections),
                           {layers, dropout, train, bidirectional});
  Tensor hy = stack_of(run.last, &Hidden::h), cy = stack_of(run.last, &Hidden::c);
  return {batch_first ? run.outputs.transpose(0, 1) : run.outputs, std::move(hy), std::move(cy)};
}

LstmResult lstm_data(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList flat, bool biases,
                     int64_t layers, double dropout, bool train, bool bidirectional) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const bool projections = hx[0].size(2) != hx[1].size(2);
  const Sequence input = packed(data, batch_sizes);
  // Sequences of one length are a plain batch.
  if (!projections && input.steps > 0 && takes_onednn(data, flat, hx) &&
      std::all_of(input.batch_sizes, input.batch_sizes + input.steps,
                  [&](int64_t size) { return size == input.batch_sizes[0]; })) {
    const int64_t rows = input.batch_sizes[0];
    LstmResult result = lstm_input(data.reshape({input.steps, rows, data.size(-1)}), hx, flat, biases, layers, dropout,
                                   train, bidirectional, /*batch_first=*/false);
    Tensor& output = std::get<0>(result);
    output = output.reshape({input.steps * rows, output.size(-1)});
    return result;
  }
  Stacked run = run_layers(lstm_cell, input, unbind(hx[0], hx[1]), gather(flat, biases, projections),
                           {layers, dropout, train, bidirectional});
  Tensor hy = stack_of(run.last, &Hidden::h), cy = stack_of(run.last, &Hidden::c);
  return {std::move(run.outputs), std::move(hy), std::move(cy)};
}

// ---------------------------------------------------------------- cells as ops

void check_input(const Tensor& input, const c10::SymInt& size) {
  TORCH_CHECK(input.sym_size(1) == size, "input has inconsistent input_size: got ", input.sym_size(1), " expected ",
              size);
}

void check_hidden(const Tensor& input, const Tensor& hx, const c10::SymInt& size, int label) {
  TORCH_CHECK(input.sym_size(0) == hx.sym_size(0), "Input batch size ", input.sym_size(0), " doesn't match hidden",
              label, " batch size ", hx.sym_size(0));
  TORCH_CHECK(hx.sym_size(1) == size, "hidden", label, " has inconsistent hidden_size: got ", hx.sym_size(1),
              ", expected ", size);
}

void check_weights(const Tensor& w_ih, const Tensor& w_hh, int64_t gates, const c10::SymInt& size) {
  const auto check = [&](const char* name, const Tensor& weight) {
    TORCH_CHECK(weight.sym_size(0) == size * gates, name, " first dim must be ", gates,
                " * hidden_size = ", size * gates, ", but got ", weight.sym_size(0));
  };
  check("weight_ih", w_ih);
  check("weight_hh", w_hh);
}

std::tuple<Tensor, Tensor> lstm_cell_op(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                                        const std::optional<Tensor>& b_ih, const std::optional<Tensor>& b_hh) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  const c10::SymInt size = w_hh.sym_size(1);
  check_input(input, w_ih.sym_size(1));
  check_weights(w_ih, w_hh, 4, size);
  check_hidden(input, hx[0], size, 0);
  check_hidden(input, hx[1], size, 1);
  Hidden next = lstm_cell(input, {hx[0], hx[1]}, {w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), {}},
                          /*multiplied=*/false);
  return {std::move(next.h), std::move(next.c)};
}

Tensor gru_cell_op(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                   const std::optional<Tensor>& b_ih, const std::optional<Tensor>& b_hh) {
  const c10::SymInt size = w_hh.sym_size(1);
  check_input(input, w_ih.sym_size(1));
  check_hidden(input, hx, size, 0);
  check_weights(w_ih, w_hh, 3, size);
  return gru_cell(input, {hx, {}}, {w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), {}},
                  /*multiplied=*/false)
      .h;
}

}  // namespace

void register_rnn(torch::Library& library) {
  library.impl("lstm.input", TORCH_FN(lstm_input));
  library.impl("lstm.data", TORCH_FN(lstm_data));
  library.impl("gru.input", TORCH_FN(rnn_input<gru_cell>));
  library.impl("gru.data", TORCH_FN(rnn_data<gru_cell>));
  library.impl("rnn_tanh.input", TORCH_FN(rnn_input<simple_cell<at::tanh>>));
  library.impl("rnn_tanh.data", TORCH_FN(rnn_data<simple_cell<at::tanh>>));
  library.impl("rnn_relu.input", TORCH_FN(rnn_input<simple_cell<at::relu>>));
  library.impl("rnn_relu.data", TORCH_FN(rnn_data<simple_cell<at::relu>>));
  library.impl("lstm_cell", TORCH_FN(lstm_cell_op));
  library.impl("gru_cell", TORCH_FN(gru_cell_op));
}

}  // namespace sinter::torch_device
