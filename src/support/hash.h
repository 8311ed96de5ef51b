// A fast 64-bit hash over 64-bit words, for keys of caches in memory.
//
// The step is multiply-and-fold: state = fold((state ^ word) * odd constant), where fold joins the two halves of the
// 128-bit product by xor. The multiplier is a constant, never data, so that no input can zero the state for good.
// Each word costs one multiplication: about 1.5 ns when hashed one after the other in a Hasher (latency bound), and
// half of that in hash_words, which runs two chains. Not for adversaries, and not stable across versions or machines of
// another byte order: never write it to a file. Order and number of words matter.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sinter {

namespace hash_internal {
// Bits of the golden ratio and of sqrt(2), sqrt(3), made odd: irregular, with nothing up the sleeve.
inline constexpr uint64_t kSeed = 0x9E3779B97F4A7C15;
inline constexpr uint64_t kStep = 0xB504F333F9DE6485;
inline constexpr uint64_t kFinish = 0xDDB3D742C265539D;

constexpr uint64_t fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
}  // namespace hash_internal

class Hasher {
 public:
  constexpr Hasher() = default;
  constexpr explicit Hasher(uint64_t seed) : state_(hash_internal::kSeed ^ seed) {}

  constexpr Hasher& add(uint64_t word) {
    state_ = hash_internal::fold(state_ ^ word, hash_internal::kStep);
    ++count_;
    return *this;
  }
  Hasher& add(double value) { return add(std::bit_cast<uint64_t>(value)); }
  inline Hasher& add(std::span<const uint64_t> words);
  inline Hasher& add(std::string_view bytes);

  // May be called at any time; adding goes on afterwards.
  constexpr uint64_t finish() const {
    using namespace hash_internal;
    return fold(fold(state_ ^ count_, kFinish), kStep);
  }

 private:
  uint64_t state_ = hash_internal::kSeed;
  uint64_t count_ = 0;
};

inline uint64_t hash_words(std::span<const uint64_t> words, uint64_t seed = 0) {
  using namespace hash_internal;
  uint64_t a = kSeed ^ seed, b = kFinish ^ seed;
  size_t i = 0;
  for (; i + 2 <= words.size(); i += 2) {
    a = fold(a ^ words[i], kStep);
    b = fold(b ^ words[i + 1], kFinish);
  }
  if (i < words.size()) a = fold(a ^ words[i], kStep);
  return fold(fold(a ^ words.size(), kFinish) ^ std::rotl(b, 32), kStep);
}

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0) {
  Hasher hasher(seed);
  size_t left = bytes.size();
  const char* p = bytes.data();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hasher.add(word);
  }
  uint64_t last = 0;
  if (left != 0) std::memcpy(&last, p, left);
  // The size tells "a" from "a\0".
  return hasher.add(last).add(uint64_t{bytes.size()}).finish();
}

Hasher& Hasher::add(std::span<const uint64_t> words) { return add(hash_words(words)); }
Hasher& Hasher::add(std::string_view bytes) { return add(hash_bytes(bytes)); }

}  // namespace sinter
