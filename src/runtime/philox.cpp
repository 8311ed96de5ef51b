#include "runtime/philox.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

// Results are to be the same on every machine, so a product and a sum are never joined to an fma, which one vector
// extension has and another lacks. The loops are written to be vectorised: GCC does that from O3 on, and for most of
// them only with -fno-math-errno and -fno-trapping-math, which change no result and which the build gives to this file
// (they have no effect in a pragma).
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

// Everything is inlined into the versions below, each compiled for another vector extension.
#define SINTER_KEEP_LOOP _Pragma("GCC unroll 1")
#define SINTER_INLINE [[gnu::always_inline]] inline
#define SINTER_LAMBDA __attribute__((always_inline))

namespace sinter::philox {
namespace {

// Draws are made in groups of 16 counters, which fill the widest vectors.
constexpr int kCounters = 16;
template <class Draw>
constexpr int kGroup = kCounters * 16 / static_cast<int>(sizeof(Draw));

constexpr uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

template <int kRoundsLeft>
SINTER_INLINE void rounds(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t key0, uint32_t key1) {
  const uint64_t p0 = uint64_t{kMultiply0} * c0, p1 = uint64_t{kMultiply1} * c2;
  c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0;
  c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
  c1 = static_cast<uint32_t>(p1);
  c3 = static_cast<uint32_t>(p0);
  if constexpr (kRoundsLeft > 1) rounds<kRoundsLeft - 1>(c0, c1, c2, c3, key0 + kWeyl0, key1 + kWeyl1);
}

// The lanes of `kCounters` consecutive counters, in the order of the elements.
SINTER_INLINE void draw_group(uint64_t seed, uint64_t first, uint32_t* out) {
  const auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t lanes[4][kCounters];
  for (int i = 0; i < kCounters; ++i) {
    const uint64_t counter = first + static_cast<uint64_t>(i);
    auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = 0u, c3 = 0u;
    rounds<10>(c0, c1, c2, c3, key0, key1);
    lanes[0][i] = c0;
    lanes[1][i] = c1;
    lanes[2][i] = c2;
    lanes[3][i] = c3;
  }
  SINTER_KEEP_LOOP
  for (int i = 0; i < kCounters; ++i) {
    out[4 * i] = lanes[0][i];
    out[4 * i + 1] = lanes[1][i];
    out[4 * i + 2] = lanes[2][i];
    out[4 * i + 3] = lanes[3][i];
  }
}
SINTER_INLINE void draw_group(uint64_t seed, uint64_t first, uint64_t* out) {
  uint32_t words[4 * kCounters];
  draw_group(seed, first, words);
  for (int i = 0; i < kGroup<uint64_t>; ++i) out[i] = words[2 * i] | uint64_t{words[2 * i + 1]} << 32;
}

// Calls transform(draws, first, values) for each group that touches the range; `first` is the group's first element.
template <class Draw, class T, class Transform>
SINTER_INLINE void fill(T* out, int64_t begin, int64_t end, Position at, Transform transform) {
  constexpr int64_t kSize = kGroup<Draw>;
  for (int64_t first = begin / kSize * kSize; first < end; first += kSize) {
    Draw draws[kSize];
    draw_group(at.seed, at.offset + static_cast<uint64_t>(first / kSize) * kCounters, draws);
    T values[kSize];
    transform(draws, first, values);
    const int64_t from = std::max(first, begin), to = std::min(first + kSize, end);
    std::memcpy(out + (from - begin), values + (from - first), static_cast<size_t>(to - from) * sizeof(T));
  }
}

// ---- elementary functions ------------------------------------------------------------------------------------------
// For normal numbers in the ranges that occur here; within a few units in the last place.

template <class T>
SINTER_INLINE T horner(T, T sum) {
  return sum;
}
// c0 + x * (c1 + x * (...)), the coefficients given from the highest on.
template <class T, class... Rest>
SINTER_INLINE T horner(T x, T sum, T next, Rest... rest) {
  return horner(x, sum * x + next, rest...);
}

SINTER_INLINE float log(float x) {
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)), and log(m) = 2 atanh((m - 1) / (m + 1)).
  const auto shifted = std::bit_cast<uint32_t>(x) - 0x3F3504F3u;
  const auto e = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float m = std::bit_cast<float>((shifted & 0x007FFFFFu) + 0x3F3504F3u);
  const float s = (m - 1) / (m + 1), s2 = s * s;
  const float tail = s * s2 * horner(s2, 2 / 11.f, 2 / 9.f, 2 / 7.f, 2 / 5.f, 2 / 3.f);
  return e * 0.693147180559945f + (2 * s + tail);
}
SINTER_INLINE double log(double x) {
  constexpr uint64_t kRootHalf = 0x3FE6A09E667F3BCD;
  const auto shifted = std::bit_cast<uint64_t>(x) - kRootHalf;
  const auto e = static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(shifted) >> 52));
  const double m = std::bit_cast<double>((shifted & 0x000FFFFFFFFFFFFFu) + kRootHalf);
  const double s = (m - 1) / (m + 1), s2 = s * s;
  const double tail =
      s * s2 *
      horner(s2, 2 / 23., 2 / 21., 2 / 19., 2 / 17., 2 / 15., 2 / 13., 2 / 11., 2 / 9., 2 / 7., 2 / 5., 2 / 3.);
  return e * 0.6931471805599453094 + (2 * s + tail);
}

// For |x| <= pi/4.
SINTER_INLINE float sin_small(float x) {
  const float x2 = x * x;
  return x + x * x2 * horner(x2, 1 / 362880.f, -1 / 5040.f, 1 / 120.f, -1 / 6.f);
}
SINTER_INLINE float cos_small(float x) {
  const float x2 = x * x;
  return 1 + x2 * horner(x2, -1 / 3628800.f, 1 / 40320.f, -1 / 720.f, 1 / 24.f, -1 / 2.f);
}
SINTER_INLINE double sin_small(double x) {
  const double x2 = x * x;
  return x + x * x2 *
                 horner(x2, 1 / 355687428096000., -1 / 1307674368000., 1 / 6227020800., -1 / 39916800., 1 / 362880.,
                        -1 / 5040., 1 / 120., -1 / 6.);
}
SINTER_INLINE double cos_small(double x) {
  const double x2 = x * x;
  return 1 + x2 * horner(x2, 1 / 20922789888000., -1 / 87178291200., 1 / 479001600., -1 / 3628800., 1 / 40320.,
                         -1 / 720., 1 / 24., -1 / 2.);
}

// Cosine and sine of (quarters + part) right angles, |part| <= 1/2, where angle = part * pi/2.
template <class T, class Int>
SINTER_INLINE void turn(Int quarters, T angle, T& cosine, T& sine) {
  const T s = sin_small(angle), c = cos_small(angle);
  const T x = quarters & 1 ? -s : c, y = quarters & 1 ? c : s;
  cosine = quarters & 2 ? -x : x;
  sine = quarters & 2 ? -y : y;
}

double exp(double x) {
  if (!(x < 710)) return x > 0 ? std::numeric_limits<double>::infinity() : x;
  if (x < -746) return 0;
  const double k = std::nearbyint(x * 1.4426950408889634074);
  // ln 2 in two parts, the first with zeros enough for an exact product.
  const double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  const double y = horner(r, 1 / 6227020800., 1 / 479001600., 1 / 39916800., 1 / 3628800., 1 / 362880., 1 / 40320.,
                          1 / 5040., 1 / 720., 1 / 120., 1 / 24., 1 / 6., 1 / 2., 1., 1.);
  return std::ldexp(y, static_cast<int>(k));
}

// ---- transforms ----------------------------------------------------------------------------------------------------

// The middle of the draw's interval in (0, 1). Of a 64-bit draw 52 bits, so that the half is exact.
SINTER_INLINE double open_unit(uint32_t draw) { return (static_cast<double>(draw) + 0.5) * 0x1p-32; }
SINTER_INLINE double open_unit(uint64_t draw) {
  return (static_cast<double>(static_cast<int64_t>(draw >> 12)) + 0.5) * 0x1p-52;
}

template <class T>
using DrawOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// The float nearest to x, ties to even, among those with `digits` bits of significand and exponents from `least` on.
float round_to(float x, int digits, int least) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), least) - (digits - 1);
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}
// The largest such number below x.
float below(float x, int digits, int least) {
  if (digits == 24) return std::nextafter(x, -std::numeric_limits<float>::infinity());
  const int exponent = x == 0 ? least : std::max(std::ilogb(x), least);
  // Just under a power of two the numbers lie twice as close.
  const bool power = x > 0 && std::ldexp(1.f, exponent) == x && exponent > least;
  return x - std::ldexp(1.f, exponent - (digits - 1) - power);
}

// Rounding to the shorter types by integers, for the loop.
SINTER_INLINE float round_bfloat16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((u + 0x7FFFu + (u >> 16 & 1)) & 0xFFFF0000u);
}
SINTER_INLINE float round_half(float x) {
  // Adding and taking away 2^13 times the last place's size rounds to it; the last place of subnormals is 2^-24.
  const auto exponent = std::max(std::bit_cast<uint32_t>(x) & 0x7F800000u, uint32_t{113} << 23);
  const float magic = std::bit_cast<float>(exponent + (uint32_t{13} << 23)) * 1.5f;
  return (x + magic) - magic;
}

template <Real kType>
SINTER_INLINE void uniform_kernel(float* out, int64_t begin, int64_t end, Position at, float from, float to,
                                  float top) {
  constexpr int kDigits = kType == Real::kFloat ? 24 : kType == Real::kHalf ? 11 : 8;
  const float scale = 1.f / static_cast<float>(1 << kDigits), span = to - from;
  fill<uint32_t>(out, begin, end, at, [&](const uint32_t* draws, int64_t, float* values) SINTER_LAMBDA {
    for (int i = 0; i < kGroup<uint32_t>; ++i) {
      const float u = static_cast<float>(static_cast<int32_t>(draws[i] >> (32 - kDigits))) * scale;
      float x = u * span + from;
      if constexpr (kType == Real::kHalf) x = round_half(x);
      if constexpr (kType == Real::kBFloat16) x = round_bfloat16(x);
      values[i] = x >= to ? top : x;
    }
  });
}
SINTER_INLINE void uniform_kernel(double* out, int64_t begin, int64_t end, Position at, double from, double to,
                                  double top) {
  const double span = to - from;
  fill<uint64_t>(out, begin, end, at, [&](const uint64_t* draws, int64_t, double* values) SINTER_LAMBDA {
    for (int i = 0; i < kGroup<uint64_t>; ++i) {
      const double u = static_cast<double>(static_cast<int64_t>(draws[i] >> 11)) * 0x1p-53;
      const double x = u * span + from;
      values[i] = x >= to ? top : x;
    }
  });
}

// A pair of draws to a pair of standard normal numbers.
SINTER_INLINE void box_muller(uint32_t first, uint32_t second, float& even, float& odd) {
  // (draw + 1) / 2^32, in (0, 1]; the two halves make one exactly rounded sum on machines without unsigned conversion.
  const float whole = static_cast<float>(static_cast<int32_t>(first >> 16)) * 65536.f +
                      static_cast<float>(static_cast<int32_t>(first & 0xFFFF) + 1);
  const float radius = std::sqrt(-2 * log(whole * 0x1p-32f));
  const auto quarters = (second + 0x20000000u) >> 30;
  const auto part = static_cast<int32_t>(second << 2) >> 2;  // the rest, signed, in units of 2^-30 quarters
  float cosine, sine;
  turn(quarters, static_cast<float>(part) * 1.46291807926715968e-9f, cosine, sine);
  even = radius * cosine;
  odd = radius * sine;
}
SINTER_INLINE void box_muller(uint64_t first, uint64_t second, double& even, double& odd) {
  const double unit = static_cast<double>(static_cast<int64_t>((first >> 11) + 1)) * 0x1p-53;
  const double radius = std::sqrt(-2 * log(unit));
  const auto quarters = (second + 0x2000000000000000u) >> 62;
  const auto part = static_cast<int64_t>(second << 2) >> 2;
  double cosine, sine;
  turn(quarters, static_cast<double>(part) * (1.57079632679489661923 * 0x1p-62), cosine, sine);
  even = radius * cosine;
  odd = radius * sine;
}

template <class T>
SINTER_INLINE void normal_kernel(T* out, int64_t begin, int64_t end, Position at, T mean, T std) {
  using Draw = DrawOf<T>;
  fill<Draw>(out, begin, end, at, [&](const Draw* draws, int64_t, T* values) SINTER_LAMBDA {
    for (int i = 0; i < kGroup<Draw> / 2; ++i) {
      T even, odd;
      box_muller(draws[2 * i], draws[2 * i + 1], even, odd);
      values[2 * i] = even * std + mean;
      values[2 * i + 1] = odd * std + mean;
    }
  });
}

template <class T>
SINTER_INLINE void bernoulli_kernel(T* out, int64_t begin, int64_t end, Position at, uint64_t threshold) {
  if (threshold == 0 || threshold > 0xFFFFFFFFu) {
    std::fill(out, out + (end - begin), T(threshold != 0));
    return;
  }
  const auto most = static_cast<uint32_t>(threshold - 1);
  fill<uint32_t>(out, begin, end, at, [&](const uint32_t* draws, int64_t, T* values) SINTER_LAMBDA {
    for (int i = 0; i < kGroup<uint32_t>; ++i) values[i] = draws[i] <= most ? T(1) : T(0);
  });
}

SINTER_INLINE void bits_kernel(uint32_t* out, int64_t begin, int64_t end, Position at) {
  fill<uint32_t>(out, begin, end, at, [](const uint32_t* draws, int64_t, uint32_t* values) SINTER_LAMBDA {
    std::copy_n(draws, kGroup<uint32_t>, values);
  });
}
SINTER_INLINE void bits_kernel(uint64_t* out, int64_t begin, int64_t end, Position at) {
  fill<uint64_t>(out, begin, end, at, [](const uint64_t* draws, int64_t, uint64_t* values) SINTER_LAMBDA {
    std::copy_n(draws, kGroup<uint64_t>, values);
  });
}

template <class T>
SINTER_INLINE void exponential_kernel(T* out, int64_t begin, int64_t end, Position at, double scale) {
  using Draw = DrawOf<T>;
  fill<Draw>(out, begin, end, at, [&](const Draw* draws, int64_t, T* values) SINTER_LAMBDA {
    for (int i = 0; i < kGroup<Draw>; ++i) values[i] = static_cast<T>(log(open_unit(draws[i])) * scale);
  });
}

template <class T>
SINTER_INLINE void cauchy_kernel(T* out, int64_t begin, int64_t end, Position at, double median, double sigma) {
  using Draw = DrawOf<T>;
  fill<Draw>(out, begin, end, at, [&](const Draw* draws, int64_t, T* values) SINTER_LAMBDA {
    for (int i = 0; i < kGroup<Draw>; ++i) {
      // tan of x right angles, x in (-1, 1).
      const double x = 2 * open_unit(draws[i]) - 1;
      const int64_t quarters = x > 0.5 ? 1 : x < -0.5 ? -1 : 0;
      double cosine, sine;
      turn(quarters, (x - static_cast<double>(quarters)) * 1.57079632679489661923, cosine, sine);
      values[i] = static_cast<T>(sine / cosine * sigma + median);
    }
  });
}

template <class T>
SINTER_INLINE void geometric_kernel(T* out, int64_t begin, int64_t end, Position at, double scale) {
  using Draw = DrawOf<T>;
  fill<Draw>(out, begin, end, at, [&](const Draw* draws, int64_t, T* values) SINTER_LAMBDA {
    for (int i = 0; i < kGroup<Draw>; ++i) {
      values[i] = static_cast<T>(std::max(std::ceil(log(open_unit(draws[i])) * scale), 1.0));
    }
  });
}

// ---- the choice of vector extension --------------------------------------------------------------------------------
// Each kernel is compiled for several; no ifunc, whose resolvers run before a sanitizer is ready.

#if defined(__x86_64__) && defined(__GNUC__)
#define SINTER_VECTOR_VERSIONS 1

bool has(Version version) {
  switch (version) {
    case Version::kBaseline:
      return true;
    case Version::kAvx2:
      return __builtin_cpu_supports("avx2");
    case Version::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
}
std::atomic<Version> version_in_use{has(Version::kAvx512) ? Version::kAvx512
                                    : has(Version::kAvx2) ? Version::kAvx2
                                                          : Version::kBaseline};
#else
bool has(Version version) { return version == Version::kBaseline; }
std::atomic<Version> version_in_use{Version::kBaseline};
#endif

// Defines run_<kernel>(arguments of the kernel ...).
#if defined(SINTER_VECTOR_VERSIONS) && defined(__clang__)
#define SINTER_AVX512 "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define SINTER_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif
#ifdef SINTER_VECTOR_VERSIONS
#define SINTER_VERSIONS(kernel)                                    \
  template <class... Args>                                         \
  [[gnu::target(SINTER_AVX512)]] void kernel##_avx512(Args... a) { \
    kernel(a...);                                                  \
  }                                                                \
  template <class... Args>                                         \
  [[gnu::target("avx2")]] void kernel##_avx2(Args... a) {          \
    kernel(a...);                                                  \
  }                                                                \
  template <class... Args>                                         \
  void kernel##_baseline(Args... a) {                              \
    kernel(a...);                                                  \
  }                                                                \
  template <class... Args>                                         \
  void run_##kernel(Args... a) {                                   \
    switch (version_in_use.load(std::memory_order_relaxed)) {      \
      case Version::kAvx512:                                       \
        return kernel##_avx512(a...);                              \
      case Version::kAvx2:                                         \
        return kernel##_avx2(a...);                                \
      case Version::kBaseline:                                     \
        return kernel##_baseline(a...);                            \
    }                                                              \
  }
#else
#define SINTER_VERSIONS(kernel)  \
  template <class... Args>       \
  void run_##kernel(Args... a) { \
    kernel(a...);                \
  }
#endif

template <class T>
SINTER_INLINE void bernoulli_each_kernel(bool* out, int64_t begin, int64_t end, Position at, const T* p) {
  fill<uint32_t>(out, begin, end, at, [&](const uint32_t* draws, int64_t first, bool* values) SINTER_LAMBDA {
    const int64_t from = std::max(first, begin), to = std::min(first + kGroup<uint32_t>, end);
    for (int64_t i = from; i < to; ++i) {
      values[i - first] = static_cast<double>(draws[i - first]) < static_cast<double>(p[i - begin]) * 4294967296.0;
    }
  });
}

SINTER_VERSIONS(bits_kernel)
SINTER_VERSIONS(normal_kernel)
SINTER_VERSIONS(bernoulli_kernel)
SINTER_VERSIONS(exponential_kernel)
SINTER_VERSIONS(cauchy_kernel)
SINTER_VERSIONS(geometric_kernel)

SINTER_INLINE void any_uniform_kernel(float* out, int64_t begin, int64_t end, Position at, float from, float to,
                                      float top, Real type) {
  switch (type) {
    case Real::kFloat:
      return uniform_kernel<Real::kFloat>(out, begin, end, at, from, to, top);
    case Real::kHalf:
      return uniform_kernel<Real::kHalf>(out, begin, end, at, from, to, top);
    case Real::kBFloat16:
      return uniform_kernel<Real::kBFloat16>(out, begin, end, at, from, to, top);
  }
}
SINTER_INLINE void any_uniform_kernel(double* out, int64_t begin, int64_t end, Position at, double from, double to,
                                      double top) {
  uniform_kernel(out, begin, end, at, from, to, top);
}
SINTER_VERSIONS(any_uniform_kernel)

}  // namespace

bool use(Version version) {
  if (!has(version)) return false;
  version_in_use.store(version, std::memory_order_relaxed);
  return true;
}

Block block(Block c, std::array<uint32_t, 2> key) {
  rounds<10>(c[0], c[1], c[2], c[3], key[0], key[1]);
  return c;
}

void bits(uint32_t* out, int64_t begin, int64_t end, Position at) { run_bits_kernel(out, begin, end, at); }
void bits(uint64_t* out, int64_t begin, int64_t end, Position at) { run_bits_kernel(out, begin, end, at); }

void uniform(float* out, int64_t begin, int64_t end, Position at, double from, double to, Real type) {
  const int digits = type == Real::kFloat ? 24 : type == Real::kHalf ? 11 : 8;
  const int least = type == Real::kHalf ? -14 : -126;
  const float low = round_to(static_cast<float>(from), digits, least);
  const float high = round_to(static_cast<float>(to), digits, least);
  const float top = low < high ? below(high, digits, least) : low;
  run_any_uniform_kernel(out, begin, end, at, low, high, top, type);
}
void uniform(double* out, int64_t begin, int64_t end, Position at, double from, double to) {
  const double top = from < to ? std::nextafter(to, -std::numeric_limits<double>::infinity()) : from;
  run_any_uniform_kernel(out, begin, end, at, from, to, top);
}

void normal(float* out, int64_t begin, int64_t end, Position at, double mean, double std) {
  run_normal_kernel(out, begin, end, at, static_cast<float>(mean), static_cast<float>(std));
}
void normal(double* out, int64_t begin, int64_t end, Position at, double mean, double std) {
  run_normal_kernel(out, begin, end, at, mean, std);
}

void bernoulli(bool* out, int64_t begin, int64_t end, Position at, double p) {
  run_bernoulli_kernel(out, begin, end, at, bernoulli_threshold(p));
}
void bernoulli(float* out, int64_t begin, int64_t end, Position at, double p) {
  run_bernoulli_kernel(out, begin, end, at, bernoulli_threshold(p));
}
void bernoulli(bool* out, int64_t begin, int64_t end, Position at, const float* p) {
  bernoulli_each_kernel(out, begin, end, at, p);
}
void bernoulli(bool* out, int64_t begin, int64_t end, Position at, const double* p) {
  bernoulli_each_kernel(out, begin, end, at, p);
}

void integers(int64_t* out, int64_t begin, int64_t end, Position at, int64_t base, uint64_t range) {
  auto* words = reinterpret_cast<uint64_t*>(out);
  bits(words, begin, end, at);
  // Unsigned, because base + range may pass the largest int64.
  const auto low = static_cast<uint64_t>(base);
  for (int64_t i = 0; i < end - begin; ++i) {
    const uint64_t draw = words[i];
    words[i] = low + (range == 0 ? draw : static_cast<uint64_t>(static_cast<unsigned __int128>(draw) * range >> 64));
  }
}

void exponential(float* out, int64_t begin, int64_t end, Position at, double lambda) {
  run_exponential_kernel(out, begin, end, at, -1 / lambda);
}
void exponential(double* out, int64_t begin, int64_t end, Position at, double lambda) {
  run_exponential_kernel(out, begin, end, at, -1 / lambda);
}

void cauchy(float* out, int64_t begin, int64_t end, Position at, double median, double sigma) {
  run_cauchy_kernel(out, begin, end, at, median, sigma);
}
void cauchy(double* out, int64_t begin, int64_t end, Position at, double median, double sigma) {
  run_cauchy_kernel(out, begin, end, at, median, sigma);
}

void geometric(float* out, int64_t begin, int64_t end, Position at, double p) {
  run_geometric_kernel(out, begin, end, at, 1 / std::log1p(-p));
}
void geometric(double* out, int64_t begin, int64_t end, Position at, double p) {
  run_geometric_kernel(out, begin, end, at, 1 / std::log1p(-p));
}

void log_normal(float* out, int64_t begin, int64_t end, Position at, double mean, double std) {
  normal(out, begin, end, at, 0, 1);
  for (int64_t i = 0; i < end - begin; ++i) out[i] = static_cast<float>(exp(static_cast<double>(out[i]) * std + mean));
}
void log_normal(double* out, int64_t begin, int64_t end, Position at, double mean, double std) {
  normal(out, begin, end, at, 0, 1);
  for (int64_t i = 0; i < end - begin; ++i) out[i] = exp(out[i] * std + mean);
}

}  // namespace sinter::philox
