// From trace to plan: the graph builder, the verifier, dead-code elimination, releases.
#include "graph/graph.h"

#include <gtest/gtest.h>

#include "passes/pass.h"
#include "plan/plan.h"

namespace sinter::graph {
namespace {

TensorMeta f32(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  TensorMeta meta;
  meta.sizes = std::move(sizes);
  meta.strides = std::move(strides);
  return meta;
}

Ref<Call> call(const char* name, std::vector<Operand> operands, std::vector<TensorMeta> results) {
  static uint64_t next_id = 1;
  Ref<Call> made = make_ref<Call>();
  made->op = &ops::find_op(std::string_view(name).substr(0, std::string_view(name).find('.')), "");
  made->name = name;
  made->operands = std::move(operands);
  made->results = std::move(results);
  made->id = next_id++;
  return made;
}

// x = relu(a); x.add_(b); y = mm(x, a), then `unused` = exp(b).
Trace small_trace() {
  const TensorMeta m = f32({4, 4}, {4, 1});
  Trace trace;
  const auto add = [&](Ref<Call> c, std::vector<uint32_t> operands, std::vector<uint32_t> results) {
    trace.nodes.push_back({c, static_cast<uint32_t>(trace.operands.size()),
                           static_cast<uint32_t>(trace.results.size()), 0});
    for (uint32_t buffer : operands) trace.operands.push_back({buffer, 0});
    trace.results.insert(trace.results.end(), results.begin(), results.end());
  };
  add(call("aten::relu", {{m, Access::kRead}}, {m}), {0}, {1});
  add(call("aten::add_.Tensor", {{m, Access::kReadWrite}, {m, Access::kRead}}, {}), {1, 2}, {});
  add(call("aten::mm", {{m, Access::kRead}, {m, Access::kRead}}, {m}), {1, 0}, {3});
  add(call("aten::exp", {{m, Access::kRead}}, {m}), {2}, {4});
  trace.origins = {Origin::kContents, Origin::kResult, Origin::kContents, Origin::kResult, Origin::kResult};
  return trace;
}

TEST(GraphTest, NumbersVersionsInProgramOrder) {
  const Graph graph = build_graph(small_trace(), {true, false, true, true, false});
  EXPECT_TRUE(verify(graph).ok());
  EXPECT_EQ(to_text(graph),
            "graph {\n"
            "  buffer %0 contents live\n"
            "  buffer %2 contents live\n"
            "  buffer %3 result live\n"
            "  %1.0:f32[4,4] = aten::relu(%0.0:f32[4,4])\n"
            "  %1.1 = aten::add_.Tensor(%1.0:f32[4,4], %2.0:f32[4,4])\n"
            "  %3.0:f32[4,4] = aten::mm(%1.1:f32[4,4], %0.0:f32[4,4])\n"
            "  %4.0:f32[4,4] = aten::exp(%2.0:f32[4,4])\n"
            "}\n");
}

TEST(GraphTest, VerifierNamesTheBrokenNode) {
  Graph graph = build_graph(small_trace(), {});
  std::swap(graph.nodes[1], graph.nodes[2]);
  const Status status = verify(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("node 1"), std::string::npos) << status.message();

  graph = build_graph(small_trace(), {});
  graph.nodes.erase(graph.nodes.begin());  // %1.0 has no definition now
  ASSERT_FALSE(verify(graph).ok());
  EXPECT_NE(verify(graph).message().find("before it is defined"), std::string::npos);

  graph = build_graph(small_trace(), {});
  graph.nodes[2].uses.pop_back();
  EXPECT_FALSE(verify(graph).ok());
}

TEST(GraphTest, DeadCodeGoesAndWhatItsResultNeedsStays) {
  Graph graph = build_graph(small_trace(), {true, false, true, true, false});
  EXPECT_EQ(passes::remove_dead_code(graph), 1u);  // exp: nobody sees %4
  EXPECT_EQ(graph.nodes.size(), 3u);
  EXPECT_TRUE(verify(graph).ok());

  graph = build_graph(small_trace(), {true, false, true, false, false});
  // mm and exp; the in-place form has no row that calls it pure, so it stays, and with it relu, which it needs.
  EXPECT_EQ(passes::remove_dead_code(graph), 2u);
  EXPECT_EQ(graph.nodes.size(), 2u);
}

TEST(GraphTest, WritesToVisibleMemoryAndUnknownOpsStay) {
  Graph graph = build_graph(small_trace(), {true, true, true, false, false});
  EXPECT_EQ(passes::remove_dead_code(graph), 2u);  // %1 is visible: relu and add_ stay
  const TensorMeta m = f32({2}, {1});
  Trace trace;
  trace.nodes.push_back({call("aten::embedding", {{m, Access::kRead}}, {m}), 0, 0, 0});
  trace.operands = {{0, 0}};
  trace.results = {1};
  trace.origins = {Origin::kContents, Origin::kResult};
  graph = build_graph(trace, {true, false});
  EXPECT_EQ(passes::remove_dead_code(graph), 0u);  // it may raise on contents
}

TEST(PlanTest, ReleasesEachBufferAfterItsLastUse) {
  const Graph graph = build_graph(small_trace(), {});
  const plan::Plan plan = plan::make_plan(graph);
  ASSERT_EQ(plan.steps.size(), 4u);
  EXPECT_TRUE(plan.steps[0].releases.empty());
  EXPECT_TRUE(plan.steps[1].releases.empty());
  EXPECT_EQ(plan.steps[2].releases, (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(plan.steps[3].releases, (std::vector<uint32_t>{2, 4}));
  EXPECT_NE(plan::to_text(plan, graph).find("release %0 %1 %3"), std::string::npos);
}

TEST(TraceTest, SameProgramIgnoresScalarValuesOnly) {
  Trace a = small_trace();
  Trace b = a;
  b.scalars.push_back({{7, 0}});
  EXPECT_TRUE(a.same_program(b));
  EXPECT_EQ(a.hash(), b.hash());
  b.operands[2].offset = 1;
  EXPECT_FALSE(a.same_program(b));
  EXPECT_NE(a.hash(), b.hash());
  b = a;
  b.origins[0] = Origin::kEmpty;
  EXPECT_FALSE(a.same_program(b));
  b = a;
  b.settings = 1;
  EXPECT_FALSE(a.same_program(b));
}

TEST(TensorMetaTest, ExtentAndDensity) {
  EXPECT_EQ(f32({2, 3}, {3, 1}).extent_bytes(), 24u);
  EXPECT_EQ(f32({2, 3}, {8, 1}).extent_bytes(), 44u);
  EXPECT_EQ(f32({0, 3}, {3, 1}).extent_bytes(), 0u);
  EXPECT_TRUE(f32({2, 3}, {1, 2}).dense());
  EXPECT_FALSE(f32({2, 3}, {8, 1}).dense());
  EXPECT_FALSE(f32({2, 3}, {0, 1}).dense());
  EXPECT_EQ(to_text(f32({2, 3}, {1, 2})), "f32[2,3](1,2)");
  DType dtype;
  for (DType known : {DType::kFloat32, DType::kBFloat16, DType::kBool, static_cast<DType>(24)}) {
    ASSERT_TRUE(parse_dtype(dtype_name(known), &dtype));
    EXPECT_EQ(dtype, known);
  }
  EXPECT_FALSE(parse_dtype("f33", &dtype));
}

}  // namespace
}  // namespace sinter::graph
