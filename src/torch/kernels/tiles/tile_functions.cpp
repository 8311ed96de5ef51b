#include "torch/kernels/tiles/tile_functions.h"

#include <cmath>
#include <limits>
#include <utility>

// GCC vectorises nothing below O3, and the loops here are unrolled by hand where it counts.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#if defined(__x86_64__) && defined(__GNUC__)

// A vector type is split at once in a function that lacks its extension, whatever it is inlined into later. So every
// function has the attribute, and the text is compiled again for each extension.
#if defined(__clang__)
#define SINTER_TILE_TARGET gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#else
#define SINTER_TILE_TARGET gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif
#define SINTER_TILE_NAMESPACE avx512
#define SINTER_TILE_LANES 16
#define SINTER_TILE_ROWS 4
#define SINTER_TILE_VECTORS 4
#include "torch/kernels/tiles/tile_functions.inc"

#define SINTER_TILE_TARGET gnu::target("avx2,fma")
#define SINTER_TILE_NAMESPACE avx2
#define SINTER_TILE_LANES 8
#define SINTER_TILE_ROWS 6
#define SINTER_TILE_VECTORS 2
#include "torch/kernels/tiles/tile_functions.inc"

namespace sinter::torch_device::tiles {

const Functions* functions() {
  static const Functions* const table = []() -> const Functions* {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return &avx512::table;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2::table;
    return nullptr;
  }();
  return table;
}

}  // namespace sinter::torch_device::tiles

#else

namespace sinter::torch_device::tiles {
const Functions* functions() { return nullptr; }
}  // namespace sinter::torch_device::tiles

#endif
