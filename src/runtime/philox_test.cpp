#include "runtime/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

namespace sinter::philox {
namespace {

constexpr int64_t kMany = 400'000;
constexpr Position kAt{0x123456789ABCDEF0u, 77};

// std::vector<bool> has no pointer to its elements.
template <class T>
struct Values {
  explicit Values(int64_t n) : size(n), data(new T[static_cast<size_t>(n)]) {}
  int64_t size;
  std::unique_ptr<T[]> data;
  T* begin() const { return data.get(); }
  T* end() const { return begin() + size; }
  T& operator[](int64_t i) const { return data[static_cast<size_t>(i)]; }
};

TEST(Philox, KnownAnswers) {
  // From the published test vectors of the generator.
  EXPECT_EQ(block({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(block({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, CountersReserved) {
  EXPECT_EQ(counters_for(0, DrawBits::k32), 0u);
  EXPECT_EQ(counters_for(1, DrawBits::k32), 1u);
  EXPECT_EQ(counters_for(4, DrawBits::k32), 1u);
  EXPECT_EQ(counters_for(5, DrawBits::k32), 2u);
  EXPECT_EQ(counters_for(5, DrawBits::k64), 4u);
  EXPECT_EQ(counters_for(~uint64_t{0}, DrawBits::k32), uint64_t{1} << 62);
}

// The draw of element i, as the rule says it.
uint32_t draw32(Position at, uint64_t i) {
  const uint64_t counter = at.offset + i / 4;
  return block({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
               {static_cast<uint32_t>(at.seed), static_cast<uint32_t>(at.seed >> 32)})[i % 4];
}
uint64_t draw64(Position at, uint64_t i) {
  const uint64_t counter = at.offset + i / 2;
  const Block lanes = block({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                            {static_cast<uint32_t>(at.seed), static_cast<uint32_t>(at.seed >> 32)});
  return lanes[2 * (i % 2)] | uint64_t{lanes[2 * (i % 2) + 1]} << 32;
}

// Each of the following runs for every vector extension that the machine has.
class PhiloxKernels : public testing::TestWithParam<Version> {
 protected:
  void SetUp() override {
    if (!use(GetParam())) GTEST_SKIP() << "the machine lacks this vector extension";
  }
  void TearDown() override { (void)(use(Version::kAvx512) || use(Version::kAvx2) || use(Version::kBaseline)); }
};
INSTANTIATE_TEST_SUITE_P(All, PhiloxKernels, testing::Values(Version::kBaseline, Version::kAvx2, Version::kAvx512));

TEST_P(PhiloxKernels, DrawsFollowTheRule) {
  // Near a carry into the counter's upper word, and into nothing.
  for (Position at : {Position{5, 0}, Position{~uint64_t{0} - 3, 0xFFFFFFF8}, Position{1, ~uint64_t{0} - 5}}) {
    Values<uint32_t> a(300);
    bits(a.begin(), 0, 300, at);
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(a[i], draw32(at, static_cast<uint64_t>(i))) << i;
    Values<uint64_t> b(300);
    bits(b.begin(), 0, 300, at);
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(b[i], draw64(at, static_cast<uint64_t>(i))) << i;
  }
}

template <class T>
void expect_chunks_agree(const std::function<void(T*, int64_t, int64_t)>& fill_range) {
  constexpr int64_t kSize = 1000;
  Values<T> whole(kSize), parts(kSize);
  fill_range(whole.begin(), 0, kSize);
  for (int64_t step : {1, 2, 3, 7, 64, 65, 333}) {
    for (int64_t i = 0; i < kSize; i += step) fill_range(parts.begin() + i, i, std::min(i + step, kSize));
    for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(whole[i], parts[i]) << step << " " << i;
  }
  T untouched = T(1);
  fill_range(&untouched, 5, 5);
  EXPECT_EQ(untouched, T(1));
}

TEST_P(PhiloxKernels, ChunksDoNotMatter) {
  auto both = [](auto kernel) {
    expect_chunks_agree<float>([&](float* out, int64_t b, int64_t e) { kernel(out, b, e); });
    expect_chunks_agree<double>([&](double* out, int64_t b, int64_t e) { kernel(out, b, e); });
  };
  both([](auto* out, int64_t b, int64_t e) { uniform(out, b, e, kAt, -1, 3); });
  both([](auto* out, int64_t b, int64_t e) { normal(out, b, e, kAt, 1, 2); });
  both([](auto* out, int64_t b, int64_t e) { exponential(out, b, e, kAt, 2); });
  both([](auto* out, int64_t b, int64_t e) { cauchy(out, b, e, kAt, 0, 1); });
  both([](auto* out, int64_t b, int64_t e) { geometric(out, b, e, kAt, 0.2); });
  both([](auto* out, int64_t b, int64_t e) { log_normal(out, b, e, kAt, 0, 1); });
  expect_chunks_agree<int64_t>([](int64_t* out, int64_t b, int64_t e) { integers(out, b, e, kAt, -5, 1000); });
  expect_chunks_agree<bool>([](bool* out, int64_t b, int64_t e) { bernoulli(out, b, e, kAt, 0.3); });
  std::vector<float> p(1000);
  for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i) / 1000;
  expect_chunks_agree<bool>([&](bool* out, int64_t b, int64_t e) { bernoulli(out, b, e, kAt, p.data() + b); });
}

// A change of these bits is a change of every seeded result: only on purpose. They are the same for all versions.
void fingerprint(const void* data, size_t bytes, uint64_t& hash) {
  // FNV-1a, which does not change when our own hash does.
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3u;
}
template <class T>
uint64_t fingerprint_of_all() {
  uint64_t hash = 0xCBF29CE484222325u;
  Values<T> v(10007);
  auto add = [&] { fingerprint(v.begin(), static_cast<size_t>(v.size) * sizeof(T), hash); };
  uniform(v.begin(), 0, v.size, kAt, -1.5, 2.25), add();
  normal(v.begin(), 0, v.size, kAt, 0.5, 1.5), add();
  exponential(v.begin(), 0, v.size, kAt, 1.5), add();
  cauchy(v.begin(), 0, v.size, kAt, 0.5, 1.5), add();
  log_normal(v.begin(), 0, v.size, kAt, 0.5, 1.5), add();
  geometric(v.begin(), 0, v.size, kAt, 0.3), add();
  return hash;
}
TEST_P(PhiloxKernels, BitsStayWhatTheyAre) {
  EXPECT_EQ(fingerprint_of_all<float>(), 3298916421706232018u);
  EXPECT_EQ(fingerprint_of_all<double>(), 7144479640668303520u);
}

TEST_P(PhiloxKernels, UniformFollowsTheRule) {
  Values<float> f(1000);
  uniform(f.begin(), 0, f.size, kAt, 0, 1);
  for (int64_t i = 0; i < f.size; ++i) {
    ASSERT_EQ(f[i], static_cast<float>(draw32(kAt, static_cast<uint64_t>(i)) >> 8) * 0x1p-24f);
  }
  Values<double> d(1000);
  uniform(d.begin(), 0, d.size, kAt, 0, 1);
  for (int64_t i = 0; i < d.size; ++i) {
    ASSERT_EQ(d[i], static_cast<double>(draw64(kAt, static_cast<uint64_t>(i)) >> 11) * 0x1p-53);
  }
}

// Rounds by way of the definition, slowly.
bool on_grid(float x, int digits, int least) {
  if (x == 0) return true;
  const float scaled = std::ldexp(x, digits - 1 - std::max(std::ilogb(x), least));
  return scaled == std::nearbyint(scaled);
}

TEST_P(PhiloxKernels, UniformNeverGivesItsEnd) {
  const std::pair<float, float> ranges[] = {{0, 1}, {1, 2},     {-1, 0},         {-2, -1},  {0, 1e-6f},
                                            {3, 3}, {100, 101}, {-0.75f, 1.25f}, {0, 4096}, {-6e-8f, 6e-8f}};
  for (auto [from, to] : ranges) {
    for (Real type : {Real::kFloat, Real::kHalf, Real::kBFloat16}) {
      const int digits = type == Real::kFloat ? 24 : type == Real::kHalf ? 11 : 8;
      const int least = type == Real::kHalf ? -14 : -126;
      Values<float> v(kMany);
      uniform(v.begin(), 0, v.size, kAt, from, to, type);
      // The ends count as the type has them.
      const float slack =
          type == Real::kFloat ? 0 : std::ldexp(std::max(std::abs(from), std::abs(to)), -digits) + 6e-8f;
      float low = v[0], high = v[0];
      for (float x : v) {
        low = std::min(low, x);
        high = std::max(high, x);
        if (type != Real::kFloat) {
          ASSERT_TRUE(on_grid(x, digits, least)) << x;
        }
      }
      EXPECT_GE(low, from - slack);
      if (type == Real::kFloat && from != to) {
        EXPECT_LT(high, to) << from;
      }
      if (on_grid(to, digits, least) && on_grid(from, digits, least) && from != to) {
        EXPECT_LT(high, to) << from << " " << static_cast<int>(type);
        EXPECT_GE(low, from);
      }
      if (from == to) {
        EXPECT_EQ(high, to);
        EXPECT_EQ(low, from);
      }
    }
  }
}

// Largest distance between the empirical distribution and `cdf`, times sqrt(n): above 1.95 once in a thousand.
template <class T>
double kolmogorov_smirnov(const Values<T>& values, const std::function<double(double)>& cdf) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  double worst = 0;
  const auto n = static_cast<double>(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double f = cdf(sorted[i]);
    worst = std::max({worst, std::abs(f - static_cast<double>(i) / n), std::abs(f - static_cast<double>(i + 1) / n)});
  }
  return worst * std::sqrt(n);
}

template <class T>
void expect_distributions() {
  Values<T> v(kMany);
  uniform(v.begin(), 0, v.size, kAt, -2, 6);
  EXPECT_LT(kolmogorov_smirnov(v, [](double x) { return (x + 2) / 8; }), 1.95);

  normal(v.begin(), 0, v.size, kAt, 3, 2);
  auto normal_cdf = [](double x) { return 0.5 * std::erfc(-(x - 3) / 2 / std::sqrt(2.)); };
  EXPECT_LT(kolmogorov_smirnov(v, normal_cdf), 1.95);
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, pairs = 0;
  for (int64_t i = 0; i < v.size; ++i) {
    const double z = (static_cast<double>(v[i]) - 3) / 2;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    if (i % 2) neighbours += z * (static_cast<double>(v[i - 1]) - 3) / 2, ++pairs;
  }
  const double n = static_cast<double>(v.size), sigma = 4 / std::sqrt(n);
  EXPECT_NEAR(sum / n, 0, sigma);
  EXPECT_NEAR(squares / n, 1, sigma * std::sqrt(2.));
  EXPECT_NEAR(fourth / n, 3, sigma * std::sqrt(96.));
  EXPECT_NEAR(neighbours / pairs, 0, 4 / std::sqrt(pairs));

  exponential(v.begin(), 0, v.size, kAt, 0.5);
  EXPECT_LT(kolmogorov_smirnov(v, [](double x) { return -std::expm1(-0.5 * x); }), 1.95);
  EXPECT_GT(*std::min_element(v.begin(), v.end()), 0);

  cauchy(v.begin(), 0, v.size, kAt, 1, 3);
  EXPECT_LT(kolmogorov_smirnov(v, [](double x) { return std::atan((x - 1) / 3) / M_PI + 0.5; }), 1.95);

  log_normal(v.begin(), 0, v.size, kAt, 0.3, 0.7);
  auto log_normal_cdf = [](double x) { return 0.5 * std::erfc(-(std::log(x) - 0.3) / 0.7 / std::sqrt(2.)); };
  EXPECT_LT(kolmogorov_smirnov(v, log_normal_cdf), 1.95);

  geometric(v.begin(), 0, v.size, kAt, 0.25);
  double counts[6] = {};
  for (T x : v) {
    ASSERT_GE(x, 1);
    ASSERT_EQ(x, std::floor(x));
    if (x < 6) counts[static_cast<int>(x)] += 1;
  }
  double expected = 0.25;
  for (int k = 1; k < 6; ++k, expected *= 0.75) {
    EXPECT_NEAR(counts[k] / n, expected, 4 * std::sqrt(expected / n)) << k;
  }
}
TEST_P(PhiloxKernels, FloatDistributions) { expect_distributions<float>(); }
TEST_P(PhiloxKernels, DoubleDistributions) { expect_distributions<double>(); }

TEST_P(PhiloxKernels, NormalIsBoxMullerToTheLastPlaces) {
  Values<float> f(2000);
  normal(f.begin(), 0, f.size, kAt, 0, 1);
  for (int64_t i = 0; i < f.size; i += 2) {
    const double u = (static_cast<double>(draw32(kAt, static_cast<uint64_t>(i))) + 1) * 0x1p-32;
    const double angle = static_cast<double>(draw32(kAt, static_cast<uint64_t>(i) + 1)) * 0x1p-31 * M_PI;
    const double radius = std::sqrt(-2 * std::log(u));
    // Near u = 1 the 24 bits of u are what limits the radius.
    const double tolerance = 1e-6 + 6e-8 / radius;
    ASSERT_NEAR(f[i], radius * std::cos(angle), tolerance) << i;
    ASSERT_NEAR(f[i + 1], radius * std::sin(angle), tolerance) << i;
  }
  Values<double> d(2000);
  normal(d.begin(), 0, d.size, kAt, 0, 1);
  for (int64_t i = 0; i < d.size; i += 2) {
    const double u = (static_cast<double>(draw64(kAt, static_cast<uint64_t>(i)) >> 11) + 1) * 0x1p-53;
    const double angle = static_cast<double>(draw64(kAt, static_cast<uint64_t>(i) + 1)) * 0x1p-63 * M_PI;
    const double radius = std::sqrt(-2 * std::log(u));
    ASSERT_NEAR(d[i], radius * std::cos(angle), 4e-15) << i;
    ASSERT_NEAR(d[i + 1], radius * std::sin(angle), 4e-15) << i;
  }
}

TEST_P(PhiloxKernels, ExponentialAndLogNormalAgreeWithTheLibrarys) {
  Values<double> v(2000), z(2000);
  exponential(v.begin(), 0, v.size, kAt, 2);
  for (int64_t i = 0; i < v.size; ++i) {
    const double u = (static_cast<double>(draw64(kAt, static_cast<uint64_t>(i)) >> 12) + 0.5) * 0x1p-52;
    ASSERT_NEAR(v[i], -std::log(u) / 2, 4e-16 * std::max(1., -std::log(u)));
  }
  normal(z.begin(), 0, z.size, kAt, 0, 1);
  log_normal(v.begin(), 0, v.size, kAt, -1, 30);
  for (int64_t i = 0; i < v.size; ++i) {
    // The exponent, up to 100, is rounded, and here perhaps otherwise than there.
    ASSERT_NEAR(v[i] / std::exp(z[i] * 30 - 1), 1, 3e-14);
  }
  Values<float> f(2000);
  log_normal(f.begin(), 0, f.size, kAt, 0, 1000);
  for (float x : f) ASSERT_FALSE(std::isnan(x));
}

TEST_P(PhiloxKernels, Bernoulli) {
  Values<bool> v(kMany);
  for (double p : {0.0, 1e-3, 0.1, 0.5, 0.9, 1.0}) {
    bernoulli(v.begin(), 0, v.size, kAt, p);
    const auto ones = static_cast<double>(std::count(v.begin(), v.end(), true));
    EXPECT_NEAR(ones / kMany, p, 4 * std::sqrt(p * (1 - p) / kMany)) << p;
    Values<float> f(kMany);
    bernoulli(f.begin(), 0, f.size, kAt, p);
    Values<bool> each(kMany), each_float(kMany);
    const std::vector<double> probabilities(kMany, p);
    const std::vector<float> float_probabilities(kMany, static_cast<float>(p));
    bernoulli(each.begin(), 0, each.size, kAt, probabilities.data());
    bernoulli(each_float.begin(), 0, each.size, kAt, float_probabilities.data());
    for (int64_t i = 0; i < kMany; ++i) {
      ASSERT_EQ(f[i], v[i] ? 1.f : 0.f);
      ASSERT_EQ(each[i], v[i]);
      if (static_cast<double>(static_cast<float>(p)) == p) {
        ASSERT_EQ(each_float[i], v[i]);
      }
      ASSERT_EQ(v[i], draw32(kAt, static_cast<uint64_t>(i)) < bernoulli_threshold(p));
    }
  }
  EXPECT_EQ(bernoulli_threshold(1), uint64_t{1} << 32);
  EXPECT_EQ(bernoulli_threshold(0.5), uint64_t{1} << 31);
  EXPECT_EQ(bernoulli_threshold(1e-12), 1u);
}

TEST_P(PhiloxKernels, Integers) {
  Values<int64_t> v(kMany);
  integers(v.begin(), 0, v.size, kAt, -3, 7);
  double counts[7] = {};
  for (int64_t x : v) {
    ASSERT_GE(x, -3);
    ASSERT_LT(x, 4);
    counts[x + 3] += 1;
  }
  double chi2 = 0;
  for (double c : counts) chi2 += (c - kMany / 7.) * (c - kMany / 7.) / (kMany / 7.);
  EXPECT_LT(chi2, 22.5);  // once in a thousand at 6 degrees of freedom

  integers(v.begin(), 0, v.size, kAt, std::numeric_limits<int64_t>::min(), 0);
  EXPECT_LT(kolmogorov_smirnov(v, [](double x) { return x * 0x1p-64 + 0.5; }), 1.95);
  integers(v.begin(), 0, v.size, kAt, 0, uint64_t{1} << 63);  // random_() of int64
  EXPECT_GE(*std::min_element(v.begin(), v.end()), 0);
  EXPECT_LT(kolmogorov_smirnov(v, [](double x) { return x * 0x1p-63; }), 1.95);
  integers(v.begin(), 0, v.size, kAt, std::numeric_limits<int64_t>::max() - 1, 2);
  EXPECT_EQ(*std::max_element(v.begin(), v.end()), std::numeric_limits<int64_t>::max());
  integers(v.begin(), 0, v.size, kAt, 9, 1);
  EXPECT_EQ(*std::max_element(v.begin(), v.end()), 9);
}

TEST_P(PhiloxKernels, SeedsAndOffsetsDiffer) {
  Values<uint32_t> a(1000), b(1000), c(1000);
  bits(a.begin(), 0, 1000, {1, 0});
  bits(b.begin(), 0, 1000, {2, 0});
  bits(c.begin(), 0, 900, {1, 25});
  int same = 0;
  for (int64_t i = 0; i < 1000; ++i) same += a[i] == b[i];
  EXPECT_EQ(same, 0);
  // An offset of 25 counters is a shift by 100 draws.
  for (int64_t i = 0; i < 900; ++i) ASSERT_EQ(c[i], a[i + 100]);
}

}  // namespace
}  // namespace sinter::philox
