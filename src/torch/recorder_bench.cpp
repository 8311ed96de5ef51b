// What recording an op costs in C++: dispatcher, shape lookup, result tensor, hash, append and lock, without Python.
// bench/record.py gives the cost from Python, beside eager. The CPU rows here are eager calls on the same tiny tensors.
//
//   T=<folder of the torch package>; g++ -std=c++20 -O2 -Iinclude -isystem $T/include src/torch/recorder_bench.cpp
//   -Lbuild/dev/lib -ltorch_sinter -L$T/lib -ltorch_cpu -lc10 -lbenchmark -Wl,-rpath,build/dev/lib:$T/lib
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <benchmark/benchmark.h>
#include <sinter/sinter.h>

#include <vector>

namespace {

constexpr int kGraph = 1000;  // ops to a graph; it runs outside the clock

at::Tensor ones(at::IntArrayRef sizes, c10::Device device) { return at::ones(sizes, at::TensorOptions(device)); }

template <typename Op>
void record(benchmark::State& state, bool lazy, Op&& op) {
  const at::NoGradGuard no_grad;
  int open = 0;
  for (auto _ : state) {
    op();
    if (lazy && ++open == kGraph) {
      state.PauseTiming();
      sinter::sync();
      open = 0;
      state.ResumeTiming();
    }
  }
  if (lazy) sinter::sync();
}

struct Tensors {
  explicit Tensors(c10::Device device)
      : x(ones({4, 4}, device)), y(ones({4, 4}, device)), bias(ones({4}, device)), weight(ones({4}, device)) {}
  at::Tensor x, y, bias, weight;
};

template <typename Op>
void pair(const char* name, Op op) {
  for (const bool lazy : {true, false}) {
    const c10::Device device = lazy ? sinter::device() : c10::Device(c10::kCPU);
    benchmark::RegisterBenchmark((std::string(name) + (lazy ? "/sinter" : "/cpu")).c_str(),
                                 [lazy, device, op](benchmark::State& state) {
                                   const Tensors t(device);
                                   record(state, lazy, [&] { op(t); });
                                 });
  }
}

// On n tensors: the slope is the cost of a further one.
void foreach_add_(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  std::vector<at::Tensor> a, b;
  for (size_t i = 0; i < n; ++i) {
    a.push_back(ones({4}, sinter::device()));
    b.push_back(ones({4}, sinter::device()));
  }
  record(state, true, [&] { at::_foreach_add_(a, b); });
}
BENCHMARK(foreach_add_)->Arg(1)->Arg(4)->Arg(16)->Arg(64);

void foreach_add(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  std::vector<at::Tensor> a;
  for (size_t i = 0; i < n; ++i) a.push_back(ones({4}, sinter::device()));
  record(state, true, [&] { benchmark::DoNotOptimize(at::_foreach_add(a, 1.0)); });
}
BENCHMARK(foreach_add)->Arg(1)->Arg(4)->Arg(16)->Arg(64);

}  // namespace

int main(int argc, char** argv) {
  pair("add", [](const Tensors& t) { benchmark::DoNotOptimize(at::add(t.x, t.y)); });
  pair("mm", [](const Tensors& t) { benchmark::DoNotOptimize(at::mm(t.x, t.y)); });
  pair("addmm", [](const Tensors& t) { benchmark::DoNotOptimize(at::addmm(t.bias, t.x, t.y)); });
  pair("gelu", [](const Tensors& t) { benchmark::DoNotOptimize(at::gelu(t.x)); });
  pair("sum", [](const Tensors& t) { benchmark::DoNotOptimize(at::sum(t.x)); });
  pair("native_layer_norm", [](const Tensors& t) {
    benchmark::DoNotOptimize(at::native_layer_norm(t.x, at::IntArrayRef{4}, t.weight, t.bias, 1e-5));
  });
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
