// How fast one core draws.
//   g++ -std=c++20 -O2 -Isrc src/runtime/philox{,_bench}.cpp -lbenchmark
#include <benchmark/benchmark.h>

#include "runtime/philox.h"

namespace {

using namespace sinter::philox;

constexpr int64_t kCount = 1 << 16;

template <class T, class Kernel>
void measure(benchmark::State& state, Kernel kernel) {
  static T out[kCount];
  for (auto _ : state) {
    kernel(out);
    benchmark::ClobberMemory();
  }
  state.counters["ns_each"] = benchmark::Counter(static_cast<double>(kCount * state.iterations()) * 1e-9,
                                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
constexpr Position kAt{42, 7};

void bits32(benchmark::State& s) {
  measure<uint32_t>(s, [](uint32_t* out) { bits(out, 0, kCount, kAt); });
}
void uniform_float(benchmark::State& s) {
  measure<float>(s, [](float* out) { uniform(out, 0, kCount, kAt, -1, 1); });
}
void uniform_half(benchmark::State& s) {
  measure<float>(s, [](float* out) { uniform(out, 0, kCount, kAt, -1, 1, Real::kHalf); });
}
void uniform_double(benchmark::State& s) {
  measure<double>(s, [](double* out) { uniform(out, 0, kCount, kAt, -1, 1); });
}
void normal_float(benchmark::State& s) {
  measure<float>(s, [](float* out) { normal(out, 0, kCount, kAt, 0, 1); });
}
void normal_double(benchmark::State& s) {
  measure<double>(s, [](double* out) { normal(out, 0, kCount, kAt, 0, 1); });
}
void bernoulli_bool(benchmark::State& s) {
  measure<bool>(s, [](bool* out) { bernoulli(out, 0, kCount, kAt, 0.1); });
}
void integers64(benchmark::State& s) {
  measure<int64_t>(s, [](int64_t* out) { integers(out, 0, kCount, kAt, 0, 1000); });
}
void exponential_float(benchmark::State& s) {
  measure<float>(s, [](float* out) { exponential(out, 0, kCount, kAt, 1); });
}
void cauchy_float(benchmark::State& s) {
  measure<float>(s, [](float* out) { cauchy(out, 0, kCount, kAt, 0, 1); });
}
void log_normal_float(benchmark::State& s) {
  measure<float>(s, [](float* out) { log_normal(out, 0, kCount, kAt, 0, 1); });
}
void geometric_float(benchmark::State& s) {
  measure<float>(s, [](float* out) { geometric(out, 0, kCount, kAt, 0.1); });
}
BENCHMARK(bits32);
BENCHMARK(uniform_float);
BENCHMARK(uniform_half);
BENCHMARK(uniform_double);
BENCHMARK(normal_float);
BENCHMARK(normal_double);
BENCHMARK(bernoulli_bool);
BENCHMARK(integers64);
BENCHMARK(exponential_float);
BENCHMARK(cauchy_float);
BENCHMARK(log_normal_float);
BENCHMARK(geometric_float);

}  // namespace

BENCHMARK_MAIN();
