// The device's random numbers: Philox 4x32-10, and the distributions that torch draws from it.
//
// Element i (row-major) of a result depends on seed, offset and i alone: never on threads, chunks, vector width or
// machine. Philox maps a 64-bit counter under the seed as key to four 32-bit lanes:
//   32-bit draw of element i:  counter offset + i / 4, lane i % 4
//   64-bit draw of element i:  counter offset + i / 2, lanes 2 * (i % 2), the low word, and 2 * (i % 2) + 1
// float kernels take 32-bit draws, double and integer kernels 64-bit ones. counters_for() says how far an op moves
// the generator's offset. Code generation must use the same mapping, and for uniform and bernoulli the same arithmetic.
//
// The kernels fill elements [begin, end) of a result of any size: out[0] is element `begin`, so that ranges can be
// filled by several threads. They use IEEE operations in a fixed order, without contraction to fma, and functions of
// their own for log, sin, cos and exp, so results are the same to the bit on every machine. Parameters are not
// checked; torch's own checks come before.
#pragma once

#include <array>
#include <cstdint>

namespace sinter::philox {

using Block = std::array<uint32_t, 4>;

// Where an op's draws start. The offset counts counters, that is blocks of four lanes.
struct Position {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

enum class DrawBits : unsigned char { k32 = 32, k64 = 64 };

// How many counters an op with n elements reserves.
constexpr uint64_t counters_for(uint64_t n, DrawBits bits) {
  return (n / 4 + (n % 4 != 0)) * (bits == DrawBits::k64 ? 2 : 1);
}

// The generator itself, in the form of its paper (Salmon et al. 2011): 128-bit counter, 64-bit key.
Block block(Block counter, std::array<uint32_t, 2> key);

// The raw draws.
void bits(uint32_t* out, int64_t begin, int64_t end, Position at);
void bits(uint64_t* out, int64_t begin, int64_t end, Position at);

// The type that the caller converts floats to; they lie on its grid already, so that no rounding reaches `to`.
enum class Real : unsigned char { kFloat, kHalf, kBFloat16 };

// [from, to), and from where both are equal. u * (to - from) + from, each operation rounded, where u has as many bits
// as the type's significand (24, 11, 8; 53 for double): the topmost bits of the draw, scaled to [0, 1). What rounds up
// to `to` becomes the largest value below it.
void uniform(float* out, int64_t begin, int64_t end, Position at, double from, double to, Real type = Real::kFloat);
void uniform(double* out, int64_t begin, int64_t end, Position at, double from, double to);

// mean + std * z by Box-Muller: the draws of elements 2k and 2k + 1 give radius and angle of both; 2k is the cosine.
void normal(float* out, int64_t begin, int64_t end, Position at, double mean, double std);
void normal(double* out, int64_t begin, int64_t end, Position at, double mean, double std);

// 1 where the 32-bit draw is below p * 2^32. `p` of the second form holds a probability for each element of the range.
// The threshold is what a fused kernel compares with; it is 2^32 for p = 1.
constexpr uint64_t bernoulli_threshold(double p) {
  const double scaled = p * 4294967296.0;
  const auto floor = static_cast<uint64_t>(scaled);
  return floor + (static_cast<double>(floor) < scaled);
}
void bernoulli(bool* out, int64_t begin, int64_t end, Position at, double p);
void bernoulli(float* out, int64_t begin, int64_t end, Position at, double p);
void bernoulli(bool* out, int64_t begin, int64_t end, Position at, const float* p);
void bernoulli(bool* out, int64_t begin, int64_t end, Position at, const double* p);

// base + [0, range), where range 0 stands for 2^64: the high word of draw * range, so that no value is likelier than
// another by more than range / 2^64.
void integers(int64_t* out, int64_t begin, int64_t end, Position at, int64_t base, uint64_t range);

// These work in double and round at the end; the draw is the middle of its interval of (0, 1), never 0 or 1.
void exponential(float* out, int64_t begin, int64_t end, Position at, double lambda);  // never 0
void exponential(double* out, int64_t begin, int64_t end, Position at, double lambda);
void cauchy(float* out, int64_t begin, int64_t end, Position at, double median, double sigma);
void cauchy(double* out, int64_t begin, int64_t end, Position at, double median, double sigma);
void geometric(float* out, int64_t begin, int64_t end, Position at, double p);  // from 1 on
void geometric(double* out, int64_t begin, int64_t end, Position at, double p);

// exp(mean + std * z) with the z of normal().
void log_normal(float* out, int64_t begin, int64_t end, Position at, double mean, double std);
void log_normal(double* out, int64_t begin, int64_t end, Position at, double mean, double std);

// The kernels exist for several vector extensions, with the same results. The best one that the machine has is in use;
// tests choose others. False, and nothing changes, where the machine lacks it.
enum class Version : unsigned char { kBaseline, kAvx2, kAvx512 };
bool use(Version version);

}  // namespace sinter::philox
