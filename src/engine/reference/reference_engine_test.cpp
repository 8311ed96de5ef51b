// The stream with the reference engine over a plain host: ordering, failures, bounds, threads.
#include "engine/reference/reference_engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "runtime/metrics.h"
#include "runtime/stream.h"
#include "support/flags.h"

namespace sinter::runtime {
namespace {

using graph::Access;

void give_memory(Buffer& buffer) {
  if (buffer.has_memory()) return;
  void* memory = std::calloc(1, buffer.nbytes);
  buffer.attach(memory, memory, [](void* p) { std::free(p); });
}

// Ops on one float: "one" (result 1), "double" (2x), "add_" (a += b), "fail" (raises).
class PlainHost final : public Host {
 public:
  std::exception_ptr run(const LibraryCall& node) override {
    for (Buffer* buffer : node.operands) give_memory(*buffer);
    for (Buffer* buffer : node.results) give_memory(*buffer);
    const auto value = [](Buffer* buffer) -> float& { return *static_cast<float*>(buffer->data()); };
    order.push_back(node.call.name);
    if (node.call.name == "one") value(node.results[0]) = 1;
    if (node.call.name == "double") value(node.results[0]) = 2 * value(node.operands[0]);
    if (node.call.name == "add_") value(node.operands[0]) += value(node.operands[1]);
    if (node.call.name == "fail") return std::make_exception_ptr(std::runtime_error("bad index"));
    return nullptr;
  }
  std::exception_ptr explain(std::exception_ptr error, const std::string& what) override {
    return error ? error : std::make_exception_ptr(std::runtime_error(what));
  }
  std::exception_ptr give_memory(Buffer& buffer) override {
    sinter::runtime::give_memory(buffer);
    return nullptr;
  }
  void parallel_for(int64_t n, int64_t, void (*body)(void*, int64_t, int64_t), void* context) override {
    body(context, 0, n);
  }
  void memory_attached(Buffer&) override {}
  uint64_t begin_run(uint64_t) override { return 0; }
  void end_run(uint64_t) override {}

  std::vector<std::string> order;
};

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() : stream(*new Stream(host, engine::make_reference_engine())) {
    static auto* kept = new std::vector<Stream*>;  // streams are never destroyed; a leak checker still sees these
    kept->push_back(&stream);
  }
  void TearDown() override {
    (void)flags::set("MAX_GRAPH_OPS", "4096");
    (void)flags::set("ASYNC", "0");
  }

  static Ref<const graph::Call> call(const char* name, std::vector<Access> operands, size_t results) {
    static std::map<std::string, Ref<graph::Call>> known;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    Ref<graph::Call>& made = known[name];
    if (!made) {
      made = make_ref<graph::Call>();
      made->op = &ops::find_op(name, "");
      made->name = name;
      made->id = 1000 + known.size();
      for (Access access : operands) made->operands.push_back({{}, access});
      made->results.resize(results);
    }
    return made;
  }

  Ref<Buffer> make() {
    Ref<Buffer> buffer = make_ref<Buffer>(sizeof(float));
    buffer->storage_alive = true;
    return buffer;
  }

  Stream::After record(const char* name, std::vector<Access> access, std::vector<Buffer*> operands,
                       std::vector<Buffer*> results) {
    const std::vector<int64_t> offsets(operands.size(), 0);
    return stream.record({call(name, access, results.size()), operands, offsets, {}, results, 0});
  }
  Ref<Buffer> one() {
    Ref<Buffer> result = make();
    record("one", {}, {}, {result.get()});
    return result;
  }
  Ref<Buffer> twice(Buffer& of) {
    Ref<Buffer> result = make();
    record("double", {Access::kRead}, {&of}, {result.get()});
    return result;
  }
  void add(Buffer& to, Buffer& from) {
    record("add_", {Access::kReadWrite, Access::kRead}, {&to, &from}, {});
  }
  float read(Buffer& buffer) {
    EXPECT_EQ(stream.wait(buffer, "test"), nullptr);
    return *static_cast<float*>(buffer.data());
  }
  static std::string text(const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  }

  PlainHost host;
  Stream& stream;
};

TEST_F(StreamTest, NothingRunsBeforeSomebodyWaits) {
  Ref<Buffer> a = one(), b = twice(*a);
  add(*a, *b);
  EXPECT_TRUE(host.order.empty());
  EXPECT_EQ(read(*b), 2);
  EXPECT_EQ(read(*a), 3);
  EXPECT_EQ(host.order, (std::vector<std::string>{"one", "double", "add_"}));
}

TEST_F(StreamTest, ARepeatedGraphIsLookedUp) {
  const uint64_t planned = metrics().get(Counter::kGraphsPlanned);
  for (int i = 0; i < 5; ++i) {
    Ref<Buffer> a = one(), b = twice(*a);
    EXPECT_EQ(read(*b), 2);
  }
  EXPECT_EQ(metrics().get(Counter::kGraphsPlanned) - planned, 1u);
  EXPECT_EQ(stream.cached_graphs(), 1u);
}

TEST_F(StreamTest, AFailurePoisonsOnlyWhatHadNoContents) {
  Ref<Buffer> weight = one();
  ASSERT_EQ(read(*weight), 1);
  Ref<Buffer> bad = make();
  record("fail", {Access::kRead}, {weight.get()}, {bad.get()});
  Ref<Buffer> after_bad = twice(*bad);
  Ref<Buffer> fresh = one();
  add(*weight, *fresh);
  Ref<Buffer> stale = twice(*weight);  // would read what was skipped
  EXPECT_EQ(text(stream.end_graph("test")), "bad index");
  EXPECT_EQ(stream.end_graph("test"), nullptr);  // once
  EXPECT_EQ(text(stream.wait(*bad, "test")), "bad index");
  EXPECT_EQ(text(stream.wait(*after_bad, "test")), "bad index");
  EXPECT_EQ(text(stream.wait(*stale, "test")), "bad index");
  EXPECT_EQ(read(*fresh), 1);   // new memory from healthy inputs
  EXPECT_EQ(read(*weight), 1);  // had contents: the write after the failure was skipped
  add(*weight, *fresh);
  EXPECT_EQ(read(*weight), 2);  // and the device goes on
}

TEST_F(StreamTest, ABoundCutsAtARepetition) {
  ASSERT_TRUE(flags::set("MAX_GRAPH_OPS", "50").ok());
  const uint64_t planned = metrics().get(Counter::kGraphsPlanned);
  std::vector<Ref<Buffer>> kept;
  for (int i = 0; i < 100; ++i) {
    Ref<Buffer> a = make();
    auto after = record("one", {}, {}, {a.get()});
    for (int k = 0; k < 6; ++k) {
      Ref<Buffer> next = make();
      const auto now = record("double", {Access::kRead}, {a.get()}, {next.get()});
      if (now != Stream::After::kNothing) after = now;
      a = next;
    }
    kept.push_back(a);
    if (after == Stream::After::kCutGraph) {
      ASSERT_EQ(stream.cut_graph(), nullptr);
    }
  }
  for (Ref<Buffer>& buffer : kept) EXPECT_EQ(read(*buffer), 64);
  EXPECT_LE(metrics().get(Counter::kGraphsPlanned) - planned, 3u);
}

TEST_F(StreamTest, ManyThreadsRecordAndRead) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Ref<Buffer> a = one(), b = twice(*a);
        add(*b, *a);
        if (stream.wait(*b, "test") || *static_cast<float*>(b->data()) != 3) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(StreamTest, TheWorkerKeepsTheOrderAndHandsErrorsOverOnce) {
  ASSERT_TRUE(flags::set("ASYNC", "1").ok());
  Ref<Buffer> sum = one();
  for (int i = 0; i < 20; ++i) {
    Ref<Buffer> a = one();
    add(*sum, *a);
    EXPECT_EQ(stream.end_graph("test"), nullptr);
  }
  EXPECT_EQ(read(*sum), 21);
  Ref<Buffer> bad = make();
  record("fail", {Access::kRead}, {sum.get()}, {bad.get()});
  EXPECT_EQ(text(stream.synchronize("test")), "bad index");
  EXPECT_EQ(stream.synchronize("test"), nullptr);
  EXPECT_EQ(read(*sum), 21);
}

}  // namespace
}  // namespace sinter::runtime
