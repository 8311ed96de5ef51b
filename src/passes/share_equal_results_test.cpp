// Which computations count as one.
#include <gtest/gtest.h>

#include "passes/pass.h"

namespace sinter::passes {
namespace {

using graph::Access;
using graph::Origin;

class ShareEqualResults : public ::testing::Test {
 protected:
  ShareEqualResults() {
    copy_ = call("aten::copy_", {Access::kWrite, Access::kRead}, 0);
    mm_ = call("aten::mm", {Access::kRead, Access::kRead}, 1);
    noise_ = call("aten::bernoulli", {Access::kRead}, 1);
  }

  static Ref<const graph::Call> call(const char* name, std::vector<Access> accesses, size_t results) {
    auto made = make_ref<graph::Call>();
    made->op = &ops::find_op(name, "");
    made->name = name;
    graph::TensorMeta meta;
    meta.sizes = {4, 4};
    meta.strides = {4, 1};
    for (const Access access : accesses) made->operands.push_back({meta, access});
    made->results.assign(results, meta);
    return made;
  }

  uint32_t buffer(Origin origin, bool live = false) {
    graph_.buffers.push_back({origin, live, 1});
    return static_cast<uint32_t>(graph_.buffers.size() - 1);
  }

  uint32_t copy(uint32_t from, bool live = false) {
    const uint32_t to = buffer(Origin::kEmpty, live);
    write(copy_, to, from);
    return to;
  }

  void write(const Ref<const graph::Call>& call, uint32_t to, uint32_t from) {
    graph::Node node = start(call, {to, from});
    node.definitions.push_back({0, {to, graph_.buffers[to].versions++}, false});
    graph_.nodes.push_back(std::move(node));
  }

  uint32_t add(const Ref<const graph::Call>& call, std::vector<uint32_t> from, bool live = false) {
    graph::Node node = start(call, from);
    node.results.push_back(buffer(Origin::kResult, live));
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().results[0];
  }

  graph::Node start(const Ref<const graph::Call>& call, const std::vector<uint32_t>& from) {
    graph::Node node;
    node.call = call;
    node.trace_index = static_cast<uint32_t>(graph_.nodes.size());
    for (const uint32_t b : from) node.uses.push_back({{b, graph_.buffers[b].versions - 1}, 0});
    return node;
  }

  size_t run() {
    const size_t removed = share_equal_results(graph_);
    const Status status = verify(graph_);
    EXPECT_TRUE(status.ok()) << status.message();
    return removed;
  }

  Ref<const graph::Call> copy_, mm_, noise_;
  graph::Graph graph_;
};

TEST_F(ShareEqualResults, CastsOfOneValueAndWhatFollowsFromThem) {
  const uint32_t x = buffer(Origin::kContents, true);
  const uint32_t a = copy(x), b = copy(x);
  const uint32_t p = add(mm_, {a, a}), q = add(mm_, {b, b});
  add(mm_, {p, q}, true);
  EXPECT_EQ(run(), 2u);
  ASSERT_EQ(graph_.nodes.size(), 3u);
  EXPECT_EQ(graph_.nodes[2].uses[0].value, graph_.nodes[2].uses[1].value);
}

TEST_F(ShareEqualResults, NotAcrossAWriteOfWhatIsRead) {
  const uint32_t x = buffer(Origin::kContents, true), y = buffer(Origin::kContents, true);
  const uint32_t a = copy(x);
  write(copy_, x, y);
  const uint32_t b = copy(x);
  add(mm_, {a, b}, true);
  EXPECT_EQ(run(), 0u);
}

TEST_F(ShareEqualResults, NotWhatIsWrittenAfterwards) {
  const uint32_t x = buffer(Origin::kContents, true), y = buffer(Origin::kContents, true);
  const uint32_t a = copy(x), b = copy(x);
  write(copy_, b, y);
  add(mm_, {a, b}, true);
  EXPECT_EQ(run(), 0u);
}

TEST_F(ShareEqualResults, NotTwoThingsThatAreSeen) {
  const uint32_t x = buffer(Origin::kContents, true);
  add(mm_, {x, x}, true);
  add(mm_, {x, x}, true);
  EXPECT_EQ(run(), 0u);
}

TEST_F(ShareEqualResults, NotNoise) {
  const uint32_t x = buffer(Origin::kContents, true);
  const uint32_t a = add(noise_, {x}), b = add(noise_, {x});
  add(mm_, {a, b}, true);
  EXPECT_EQ(run(), 0u);
}

}  // namespace
}  // namespace sinter::passes
