// What an allocation costs beside malloc, what huge pages save, and what the colouring of mappings gives.
//   g++ -std=c++20 -O2 -march=native -Isrc src/support/{flags,log}.cpp src/runtime/caching_allocator{,_bench}.cpp
//   -lbenchmark
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/caching_allocator.h"

namespace {

using sinter::CachingAllocator;

long page_faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void hit(benchmark::State& state) {
  static CachingAllocator allocator;
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* p = allocator.allocate(bytes);
    benchmark::DoNotOptimize(p);
    allocator.free(p);
  }
}
BENCHMARK(hit)->Arg(64)->Arg(4096)->Arg(1 << 16)->Arg(1 << 20)->Arg(1 << 24)->Threads(1)->Threads(2);

void malloc_hit(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* p = nullptr;
    if (posix_memalign(&p, 64, bytes) != 0) std::abort();
    benchmark::DoNotOptimize(p);
    std::free(p);
  }
}
BENCHMARK(malloc_hit)->Arg(64)->Arg(4096)->Arg(1 << 16)->Arg(1 << 20)->Arg(1 << 24)->Threads(1)->Threads(2);

// Sixty blocks in use at a time, of mixed sizes: the lists and headers are not always in the first cache.
void mixed(benchmark::State& state) {
  static CachingAllocator allocator;
  std::vector<void*> blocks(60);
  size_t i = 0;
  unsigned random = 1;
  for (auto _ : state) {
    random = random * 1664525 + 1013904223;
    void*& p = blocks[i = (i + 1) % blocks.size()];
    allocator.free(p);
    p = allocator.allocate(size_t{1} << (6 + (random >> 24) % 16));
  }
  for (void* p : blocks) allocator.free(p);
}
BENCHMARK(mixed);

// First use of fresh memory: map, write every page, give back.
void fresh(benchmark::State& state) {
  CachingAllocator::Options options;
  options.huge_pages = state.range(1) != 0;
  CachingAllocator allocator(options);
  const auto bytes = static_cast<size_t>(state.range(0));
  const long before = page_faults();
  for (auto _ : state) {
    void* p = allocator.allocate(bytes);
    std::memset(p, 1, bytes);
    allocator.free(p);
    allocator.empty_cache();
  }
  state.counters["faults"] = static_cast<double>(page_faults() - before) / static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<int64_t>(bytes * state.iterations()));
}
BENCHMARK(fresh)->ArgsProduct({{1 << 21, 3 << 20, 1 << 24, 1 << 27}, {0, 1}});

// A kernel over several streams, as an optimizer's is: coloured blocks, or all at the same offset of a page.
void streams(benchmark::State& state) {
  static CachingAllocator allocator;
  const bool coloured = state.range(0) != 0;
  const auto inputs = static_cast<size_t>(state.range(1));
  const auto n = static_cast<size_t>(state.range(2));
  std::vector<void*> blocks;
  std::vector<float*> in;
  for (size_t i = 0; i <= inputs; ++i) {
    void* p = allocator.allocate(n * 4 + 8192);
    std::memset(p, 0, n * 4 + 8192);
    blocks.push_back(p);
    auto address = reinterpret_cast<uintptr_t>(p);
    if (!coloured) address = (address + 4095) / 4096 * 4096 + 64;
    in.push_back(reinterpret_cast<float*>(address));
  }
  float* out = in.back();
  for (auto _ : state) {
    for (size_t k = 0; k < n; k += 16) {
      float sum[16] = {};
      for (size_t i = 0; i < inputs; ++i) {
        for (size_t lane = 0; lane < 16; ++lane) sum[lane] += in[i][k + lane];
      }
      for (size_t lane = 0; lane < 16; ++lane) out[k + lane] = sum[lane];
    }
    benchmark::ClobberMemory();
  }
  for (void* p : blocks) allocator.free(p);
  state.SetBytesProcessed(static_cast<int64_t>((inputs + 1) * n * 4 * state.iterations()));
}
BENCHMARK(streams)->ArgsProduct({{0, 1}, {2, 5, 10, 20}, {4096, 1 << 16, 1 << 20}});

}  // namespace

BENCHMARK_MAIN();
