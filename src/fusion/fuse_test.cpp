// Which ops of small graphs run together.
#include "fusion/fuse.h"

#include <gtest/gtest.h>

#include "fusion/point.h"

namespace sinter::fusion {
namespace {

using graph::Access;
using graph::Formal;
using graph::TensorMeta;

TensorMeta packed(std::vector<int64_t> sizes) {
  TensorMeta meta;
  meta.strides.resize(sizes.size());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    meta.strides[i] = next;
    next *= sizes[i];
  }
  meta.sizes = std::move(sizes);
  return meta;
}

struct Tensor {
  uint32_t buffer;
  TensorMeta meta;
  int64_t offset = 0;
};

class FuseTest : public ::testing::Test {
 protected:
  Tensor input(TensorMeta meta) {
    trace.origins.push_back(graph::Origin::kContents);
    return {static_cast<uint32_t>(trace.origins.size() - 1), std::move(meta)};
  }
  Tensor add(const char* name, std::vector<std::pair<const char*, Tensor>> arguments, bool in_place = false) {
    auto call = make_ref<graph::Call>();
    call->op = &ops::find_op("aten::none", "");
    call->name = name;
    graph::TraceNode node{nullptr, static_cast<uint32_t>(trace.operands.size()),
                          static_cast<uint32_t>(trace.results.size()), 0};
    for (auto& [formal_name, tensor] : arguments) {
      Formal formal;
      formal.name = formal_name;
      formal.kind = Formal::Kind::kTensor;
      formal.first = static_cast<uint32_t>(call->operands.size());
      call->formals.push_back(formal);
      const bool written = in_place && call->operands.empty();
      call->operands.push_back({tensor.meta, written ? Access::kReadWrite : Access::kRead});
      trace.operands.push_back({tensor.buffer, tensor.offset});
    }
    Tensor result = arguments[0].second;
    if (!in_place) {
      result = input(packed(arguments[0].second.meta.sizes));
      trace.origins.back() = graph::Origin::kResult;
      call->results.push_back(result.meta);
      trace.results.push_back(result.buffer);
    }
    node.call = call;
    trace.nodes.push_back(node);
    return result;
  }
  Tensor mul(const Tensor& a, const Tensor& b) { return add("aten::mul.Tensor", {{"self", a}, {"other", b}}); }
  Tensor matmul(const Tensor& a, const Tensor& b) { return add("aten::mm", {{"self", a}, {"mat2", b}}); }

  // "L0 G(1,2) L3": library nodes and groups, in the order they run.
  std::string schedule() {
    const graph::Graph graph = build_graph(trace, std::vector<bool>(trace.origins.size(), true));
    const Schedule made = fuse(graph);
    std::string out;
    for (const Item& item : made.items) {
      if (!out.empty()) out += " ";
      if (item.kind == Item::Kind::kLibrary) {
        out += "L" + std::to_string(item.index);
        continue;
      }
      out += "G(";
      for (const Point& point : made.groups[item.index].points)
        out += (out.back() == '(' ? "" : ",") + std::to_string(point.node);
      out += ")";
    }
    return out;
  }

  graph::Trace trace;
};

TEST_F(FuseTest, AChainIsOneGroup) {
  const Tensor x = input(packed({8, 4}));
  const Tensor a = mul(x, x), b = mul(a, x);
  mul(b, a);
  EXPECT_EQ(schedule(), "G(0,1,2)");
}

TEST_F(FuseTest, OneOpAloneStaysWithTheLibrary) {
  const Tensor x = input(packed({8, 8}));
  const Tensor a = mul(x, x);
  mul(matmul(a, x), x);
  EXPECT_EQ(schedule(), "L0 L1 L2");
}

TEST_F(FuseTest, AGroupWaitsForNobodyButItsReaders) {
  const Tensor x = input(packed({8, 8}));
  const Tensor a = mul(x, x);
  matmul(x, x);  // needs nothing of the group
  mul(a, x);
  EXPECT_EQ(schedule(), "L1 G(0,2)");
}

TEST_F(FuseTest, ReshapedValuesFuse) {
  const Tensor x = input(packed({4, 6}));
  Tensor a = mul(x, x);
  a.meta = packed({2, 2, 6});
  mul(a, a);
  EXPECT_EQ(schedule(), "G(0,1)");
}

TEST_F(FuseTest, TransposedReadsOfAResultDoNot) {
  const Tensor x = input(packed({4, 4}));
  Tensor a = mul(x, x);
  std::swap(a.meta.strides[0], a.meta.strides[1]);
  mul(a, x);
  EXPECT_EQ(schedule(), "L0 L1");
}

TEST_F(FuseTest, AWriteWaitsForReadersOfTheOldValue) {
  const Tensor x = input(packed({8})), y = input(packed({8}));
  Tensor shifted = x;
  shifted.meta = packed({4});
  shifted.offset = 4;
  Tensor half = y;
  half.meta = packed({4});
  const Tensor a = mul(shifted, half);          // reads the second half of x
  mul(a, half);
  add("aten::mul_.Tensor", {{"self", x}, {"other", y}}, true);
  EXPECT_EQ(schedule(), "G(0,1) L2");
}

TEST_F(FuseTest, InPlaceOnTheSamePlacesFuses) {
  const Tensor x = input(packed({8})), y = input(packed({8}));
  const Tensor a = mul(x, y);
  add("aten::mul_.Tensor", {{"self", x}, {"other", a}}, true);
  mul(x, y);
  EXPECT_EQ(schedule(), "G(0,1,2)");
}

TEST(RefineTest, CommonRefinement) {
  std::vector<int64_t> a = {16, 256}, b = {4, 4, 8, 32};
  std::vector<int64_t> sa = {256, 1}, sb = {1024, 256, 32, 1};
  ASSERT_TRUE(refine(a, {&sa}, b, {&sb}));
  EXPECT_EQ(a, (std::vector<int64_t>{4, 4, 8, 32}));
  EXPECT_EQ(b, a);
  EXPECT_EQ(sa, (std::vector<int64_t>{1024, 256, 32, 1}));
  EXPECT_EQ(sb, sa);
  std::vector<int64_t> c = {6}, d = {4}, e = {6, 2}, f = {4, 3};
  EXPECT_FALSE(refine(c, {}, d, {}));
  EXPECT_FALSE(refine(e, {}, f, {}));
}

}  // namespace
}  // namespace sinter::fusion
