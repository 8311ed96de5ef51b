#include "runtime/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace sinter {
namespace {

TEST(MetricsTest, CountsFromManyThreads) {
  Metrics m;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        m.add(Counter::kOpsRecorded);
        m.add(Counter::kBytesToHost, 8);
        if (i % 100 == 0) m.add_sync("item", "a.py:1");
        if (i % 1000 == 0) (void)m.to_json();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(m.get(Counter::kOpsRecorded), 20000u);
  EXPECT_EQ(m.get(Counter::kBytesToHost), 160000u);
  EXPECT_EQ(m.get(Counter::kSyncs), 200u);
}

TEST(MetricsTest, JsonHasTheAgreedForm) {
  Metrics m;
  m.add(Counter::kKernelsRun, 3);
  m.add(Timer::kRun, std::chrono::milliseconds(1500));
  m.add_sync("print");
  m.add_sync("item", "train.py:12");
  m.add_sync("item", "train.py:12");
  m.add_fallback("aten::sort", "no rule");
  const std::string json = m.to_json();
  EXPECT_EQ(json.find(R"({"counters":{"ops_recorded":0,)"), 0u) << json;
  EXPECT_NE(json.find(R"("kernels_run":3)"), std::string::npos);
  EXPECT_NE(json.find(R"("run":{"count":1,"seconds":1.5})"), std::string::npos);
  EXPECT_NE(json.find(R"("syncs":[{"cause":"item","line":"train.py:12","count":2},)"
                      R"({"cause":"print","line":"","count":1}],)"
                      R"("fallbacks":[{"op":"aten::sort","reason":"no rule","count":1}]})"),
            std::string::npos)
      << json;
  m.reset();
  EXPECT_EQ(m.get(Counter::kKernelsRun), 0u);
  EXPECT_NE(m.to_json().find(R"("syncs":[],"fallbacks":[])"), std::string::npos);
}

TEST(MetricsTest, TimesABlock) {
  Metrics m;
  {
    auto timing = m.time(Timer::kPlan);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::string json = m.to_json();
  EXPECT_NE(json.find(R"("plan":{"count":1,"seconds":0.0)"), std::string::npos) << json;
}

TEST(MetricsTest, NamesAreUnique) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) names.insert(name_of(static_cast<Counter>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(Counter::kCount));
  EXPECT_EQ(name_of(Timer::kRecord), "record");
}

TEST(MetricsTest, TalliesAreBounded) {
  Metrics m;
  for (size_t i = 0; i < Metrics::kMostTallies + 50; ++i) m.add_fallback("op" + std::to_string(i), "r");
  EXPECT_NE(m.to_json().find(R"j("fallbacks":[{"op":"(others)","reason":"","count":50})j"), std::string::npos);
}

}  // namespace
}  // namespace sinter
