// Tests of the small headers of src/support: intrusive_ptr, hash, result, json, log.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "support/flags.h"
#include "support/hash.h"
#include "support/intrusive_ptr.h"
#include "support/json.h"
#include "support/log.h"
#include "support/result.h"

namespace sinter {
namespace {

struct Counted : RefCounted {
  explicit Counted(std::atomic<int>& alive) : alive(alive) { ++alive; }
  ~Counted() override { --alive; }
  std::atomic<int>& alive;
};
struct Derived : Counted {
  using Counted::Counted;
};

TEST(IntrusivePtr, CountsOwners) {
  std::atomic<int> alive{0};
  {
    Ref<Counted> a = make_ref<Derived>(alive);
    EXPECT_EQ(a->use_count(), 1u);
    Ref<Counted> b = a;
    EXPECT_EQ(a->use_count(), 2u);
    EXPECT_EQ(a, b);
    Ref<Counted> c = std::move(b);
    EXPECT_FALSE(b);
    EXPECT_EQ(c->use_count(), 2u);
    a = nullptr;
    EXPECT_EQ(alive, 1);
    c = c;  // NOLINT: self-assignment must be harmless
    EXPECT_EQ(c->use_count(), 1u);
    Counted* raw = c.detach();
    EXPECT_FALSE(c);
    EXPECT_EQ(alive, 1);
    c = Ref<Counted>::adopt(raw);
    EXPECT_EQ(c->use_count(), 1u);
  }
  EXPECT_EQ(alive, 0);
}

TEST(IntrusivePtr, ManyThreads) {
  std::atomic<int> alive{0};
  {
    Ref<Counted> shared = make_ref<Counted>(alive);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([mine = shared] {
        for (int i = 0; i < 20000; ++i) Ref<Counted> copy = mine;
      });
    }
    shared = nullptr;
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(alive, 0);
}

TEST(Hash, OrderCountAndZerosMatter) {
  std::unordered_set<uint64_t> seen;
  for (size_t n = 0; n < 64; ++n) seen.insert(hash_words(std::vector<uint64_t>(n, 0)));
  for (size_t n = 0; n < 64; ++n) {
    Hasher hasher;
    for (size_t i = 0; i < n; ++i) hasher.add(uint64_t{0});
    seen.insert(hasher.finish());
  }
  EXPECT_EQ(seen.size(), 128u);
  EXPECT_NE(hash_words(std::vector<uint64_t>{1, 2}), hash_words(std::vector<uint64_t>{2, 1}));
  EXPECT_NE(hash_bytes("a"), hash_bytes(std::string_view("a\0", 2)));
  EXPECT_NE(hash_bytes(""), hash_bytes(std::string_view("\0", 1)));
  EXPECT_NE(Hasher(1).add(uint64_t{5}).finish(), Hasher(2).add(uint64_t{5}).finish());
}

TEST(Hash, SmallIntegersDoNotCollide) {
  std::unordered_set<uint64_t> seen, low;
  for (uint64_t a = 0; a < 512; ++a) {
    for (uint64_t b = 0; b < 512; ++b) {
      const uint64_t h = hash_words(std::vector<uint64_t>{a, b});
      seen.insert(h);
      low.insert(h & 0xFFFFFFFF);
    }
  }
  EXPECT_EQ(seen.size(), 512u * 512u);
  EXPECT_LT(512u * 512u - low.size(), 40u);  // 8 expected of 32 random bits
}

// Every input bit flips every output bit with a probability near one half, for both ways of hashing.
template <class F>
void expect_avalanche(F hash) {
  std::mt19937_64 random(7);
  constexpr int kWords = 5, kTrials = 1500;
  for (int bit = 0; bit < kWords * 64; ++bit) {
    int flips[64] = {};
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<uint64_t> words(kWords);
      // Half of the trials with small values, as keys are made of.
      for (auto& w : words) w = trial % 2 ? random() : random() % 1024;
      const uint64_t before = hash(words);
      words[bit / 64] ^= uint64_t{1} << bit % 64;
      const uint64_t changed = before ^ hash(words);
      for (int i = 0; i < 64; ++i) flips[i] += changed >> i & 1;
    }
    for (int i = 0; i < 64; ++i) {
      // 6.5 standard deviations of a fair coin.
      EXPECT_NEAR(flips[i], kTrials / 2, 6.5 * std::sqrt(kTrials) / 2) << "in " << bit << " out " << i;
    }
  }
}
TEST(Hash, Avalanche) {
  expect_avalanche([](const std::vector<uint64_t>& words) { return hash_words(words); });
  expect_avalanche([](const std::vector<uint64_t>& words) {
    Hasher hasher;
    for (uint64_t w : words) hasher.add(w);
    return hasher.finish();
  });
}

Result<int> half(int n) {
  if (n % 2 != 0) return user_error(std::to_string(n) + " is odd");
  return n / 2;
}
Result<std::string> quarter(int n) {
  SINTER_ASSIGN_OR_RETURN(int h, half(n));
  SINTER_ASSIGN_OR_RETURN(h, half(h));
  return std::to_string(h);
}
Status check(int n) {
  SINTER_RETURN_IF_ERROR(half(n));
  return {};
}

TEST(ResultTest, ValuesAndErrorsTravel) {
  ASSERT_TRUE(quarter(8).ok());
  EXPECT_EQ(*quarter(8), "2");
  EXPECT_EQ(quarter(6).message(), "3 is odd");
  EXPECT_EQ(quarter(6).kind(), ErrorKind::kUserError);
  EXPECT_TRUE(check(2).ok());
  EXPECT_EQ(check(3).message(), "3 is odd");
  EXPECT_EQ(check(3).error().within("while testing").message, "while testing: 3 is odd");
  EXPECT_EQ(quarter(5).status().kind(), ErrorKind::kUserError);
  EXPECT_EQ(name_of(ErrorKind::kOutOfMemory), "out_of_memory");
  Result<std::unique_ptr<int>> moved = std::make_unique<int>(3);
  EXPECT_EQ(**moved, 3);
  std::unique_ptr<int> taken = *std::move(moved);
  EXPECT_EQ(*taken, 3);
  // A result whose value is a message is told from one that failed.
  Result<std::string> text = std::string("fine");
  EXPECT_TRUE(text.ok());
}

TEST(Json, NestsAndEscapes) {
  JsonWriter json;
  json.begin_object()
      .field("a", 1)
      .field("b", -2.5)
      .field("c", true)
      .field("text", "q\" b\\ n\n t\t \x01 \xC3\xA9")
      .key("list")
      .begin_array()
      .value(uint64_t{18446744073709551615u})
      .value(int64_t{-9223372036854775807 - 1})
      .begin_object()
      .end_object()
      .begin_array()
      .end_array()
      .null()
      .end_array()
      .field("nan", std::nan(""))
      .end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":-2.5,"c":true,"text":"q\" b\\ n\n t\t \u0001 )"
                         "\xC3\xA9"
                         R"(","list":[18446744073709551615,-9223372036854775808,{},[],null],"nan":null})");
}

TEST(Json, StringsEndingInBracketsKeepTheirCommas) {
  JsonWriter json;
  json.begin_array().value("[").value("{").value("x").end_array();
  EXPECT_EQ(json.take(), R"(["[","{","x"])");
}

TEST(Json, InvalidUtf8IsReplaced) {
  auto written = [](std::string_view text) {
    JsonWriter json;
    json.value(text);
    return json.take();
  };
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(written("a\xFFz"), "\"a" + bad + "z\"");
  EXPECT_EQ(written("\xC3"), "\"" + bad + "\"");
  EXPECT_EQ(written("\xC0\x80"), "\"" + bad + bad + "\"");            // overlong
  EXPECT_EQ(written("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");  // surrogate
  EXPECT_EQ(written("\xF0\x9F\x99\x82"), "\"\xF0\x9F\x99\x82\"");
}

TEST(Log, GoesToTheSinkFromTheThresholdOn) {
  std::vector<std::string> seen;
  EXPECT_FALSE(log::enabled(log::Level::kError));  // nobody listens
  log::set_sink([&](log::Level level, std::string_view text) {
    seen.push_back(std::string(log::name_of(level)) + " " + std::string(text));
  });
  log::info("not this");
  log::warning("this");
  ASSERT_TRUE(flags::set("LOG", "debug").ok());
  EXPECT_TRUE(log::enabled(log::Level::kDebug));
  log::debug("and this");
  ASSERT_TRUE(flags::set("LOG", "off").ok());
  log::error("not that");
  ASSERT_TRUE(flags::set("LOG", "").ok());
  log::set_sink(nullptr);
  log::error("nor that");
  EXPECT_EQ(seen, (std::vector<std::string>{"warning this", "debug and this"}));
}

}  // namespace
}  // namespace sinter
