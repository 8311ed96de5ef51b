// Which images change their layout.
#include <gtest/gtest.h>

#include "passes/pass.h"

namespace sinter::passes {
namespace {

using graph::Access;
using graph::TensorMeta;

const std::vector<int64_t> kRowsLast{512, 64, 8, 1}, kChannelsLast{512, 1, 64, 8};

TensorMeta image() {
  TensorMeta meta;
  meta.sizes = {2, 8, 8, 8};
  meta.strides = kRowsLast;
  return meta;
}

// convolution -> op -> convolution, over buffers 0 (the input), 1, 2, 3.
graph::Graph chain(const char* op, TensorMeta met_as = image()) {
  graph::Graph graph;
  graph.buffers.resize(4);
  for (auto& buffer : graph.buffers) buffer = {graph::Origin::kResult, false, 1};
  graph.buffers[0] = {graph::Origin::kContents, true, 1};
  graph.buffers[3].live = true;
  const auto add = [&](const char* name, uint32_t from, const TensorMeta& meta) {
    auto call = make_ref<graph::Call>();
    call->op = &ops::find_op("aten::none", "");
    call->name = name;
    call->operands.push_back({meta, Access::kRead});
    call->results.push_back(image());
    graph::Node node;
    node.call = call;
    node.uses.push_back({{from, 0}, 0});
    node.results.push_back(from + 1);
    graph.nodes.push_back(std::move(node));
  };
  add("aten::convolution", 0, image());
  add(op, 1, met_as);
  add("aten::convolution", 2, image());
  return graph;
}

const std::vector<int64_t>& result_of(const graph::Graph& graph, size_t node) {
  return graph.nodes[node].call->results[0].strides;
}

TEST(ChooseLayouts, WhatNobodySeesBetweenConvolutions) {
  for (const char* op : {"aten::relu", "aten::native_batch_norm", "aten::max_pool2d_with_indices"}) {
    graph::Graph graph = chain(op);
    EXPECT_EQ(choose_layouts(graph), 3u) << op;
    EXPECT_EQ(result_of(graph, 0), kChannelsLast);
    EXPECT_EQ(graph.nodes[1].call->operands[0].meta.strides, kChannelsLast);
    EXPECT_EQ(result_of(graph, 1), kChannelsLast);
    EXPECT_EQ(result_of(graph, 2), kRowsLast) << "it is live";
    EXPECT_EQ(graph.nodes[0].call->operands[0].meta.strides, kRowsLast) << "it was there before";
  }
}

TEST(ChooseLayouts, NotWhatAnOpMeetsThatMightMind) {
  graph::Graph graph = chain("aten::unknown");
  EXPECT_EQ(choose_layouts(graph), 0u);
}

TEST(ChooseLayouts, NotWhatIsMetInAnotherShape) {
  TensorMeta flat;
  flat.sizes = {2, 512};
  flat.strides = {512, 1};
  graph::Graph graph = chain("aten::relu", flat);
  choose_layouts(graph);
  EXPECT_EQ(result_of(graph, 0), kRowsLast);
}

TEST(ChooseLayouts, NotWithoutAConvolution) {
  graph::Graph graph = chain("aten::relu");
  graph.nodes.erase(graph.nodes.begin());
  graph.nodes.pop_back();
  EXPECT_EQ(choose_layouts(graph), 0u);
}

}  // namespace
}  // namespace sinter::passes
