#include "runtime/timeline.h"

#include <gtest/gtest.h>

#include <thread>

namespace sinter::runtime {
namespace {

TEST(Timeline, KeepsNothingWhileOff) {
  { const Spanning span(Span::Kind::kKernel, "early", "", 0); }
  timeline().start();
  EXPECT_TRUE(timeline().recording());
  EXPECT_TRUE(timeline().stop().empty());
  EXPECT_FALSE(timeline().recording());
  { const Spanning span(Span::Kind::kKernel, "late", "", 0); }
  timeline().start();
  EXPECT_TRUE(timeline().stop().empty());
}

TEST(Timeline, NestedSpansLieInsideEachOther) {
  timeline().start();
  {
    const Spanning graph(Span::Kind::kGraph, "graph", "", 0);
    const Spanning kernel(Span::Kind::kKernel, "mm", "mm(f32[2,3])", 7);
  }
  const std::vector<Span> spans = timeline().stop();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "mm");
  EXPECT_EQ(spans[0].detail, "mm(f32[2,3])");
  EXPECT_EQ(spans[0].event, 7u);
  EXPECT_EQ(spans[1].kind, Span::Kind::kGraph);
  EXPECT_LE(spans[1].begin, spans[0].begin);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, spans[1].end);
}

TEST(Timeline, EventsBelongToTheRunAndTheThread) {
  const std::vector<uint64_t> outer{1, 2}, inner{3};
  EXPECT_EQ(Timeline::event_of(0), 0u);
  const Timeline::Run run(outer);
  {
    const Timeline::Run nested(inner);
    EXPECT_EQ(Timeline::event_of(0), 3u);
    EXPECT_EQ(Timeline::event_of(1), 0u);
  }
  EXPECT_EQ(Timeline::event_of(1), 2u);
  Timeline::event() = 5;
  std::thread([] {
    EXPECT_EQ(Timeline::event_of(0), 0u);
    EXPECT_EQ(Timeline::event(), 0u);
  }).join();
  Timeline::event() = 0;
}

TEST(Timeline, ThreadsMayAddAtOnce) {
  timeline().start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) const Spanning span(Span::Kind::kKernel, "k", "", 0);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(timeline().stop().size(), 400u);
}

}  // namespace
}  // namespace sinter::runtime
