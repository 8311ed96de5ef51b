// Images between convolutions are kept with their channels last.
//
// The library's convolutions compute in such a layout: given one with rows last they reorder operands and results, a
// fifth of a network's time. What nobody outside the graph sees may lie in memory as it likes, so a buffer changes its
// layout when every op that touches it takes either, and some convolution is among its neighbours.
//
// Only the metadata of calls changes: kernels are given the strides and follow them, and a result that comes out in
// another layout than its buffer has is copied into it. So a wrong choice costs time, never a value.
#include <array>
#include <numeric>
#include <optional>

#include "ops/lowering.h"
#include "passes/pass.h"

namespace sinter::passes {
namespace {

using graph::TensorMeta;
using Sizes = std::array<int64_t, 4>;

// Ops over images, whose kernels give results the layout of their operands. Elementwise ones do too.
constexpr std::string_view kConvolutions[] = {"aten::convolution", "aten::convolution_backward"};
constexpr std::string_view kFollow[] = {
    "aten::native_batch_norm",
    "aten::native_batch_norm_backward",
    "aten::max_pool2d_with_indices",
    "aten::max_pool2d_with_indices_backward",
    "aten::avg_pool2d",
    "aten::avg_pool2d_backward",
    "aten::_adaptive_avg_pool2d",
    "aten::_adaptive_avg_pool2d_backward",
    "aten::mean.dim",
};

template <size_t n>
bool is_one_of(const std::string_view (&names)[n], std::string_view name) {
  for (const std::string_view known : names)
    if (known == name) return true;
  return false;
}

bool is_convolution(const graph::Node& node) { return is_one_of(kConvolutions, node.call->name); }

bool takes_any_layout(const graph::Node& node) {
  return is_convolution(node) || is_one_of(kFollow, node.call->name) || !ops::lowerings_of(node.call->name).empty();
}

// The sizes of a whole image batch with rows last, in which the two layouts differ.
std::optional<Sizes> image(const TensorMeta& meta, int64_t offset) {
  if (!meta.defined || meta.sizes.size() != 4 || offset != 0 || meta.conj || meta.neg) return std::nullopt;
  const auto& s = meta.sizes;
  if (s[1] == 1 || s[2] * s[3] == 1 || meta.numel() == 0) return std::nullopt;
  if (meta.strides != std::vector<int64_t>{s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}) return std::nullopt;
  return Sizes{s[0], s[1], s[2], s[3]};
}

void put_channels_last(TensorMeta& meta) {
  const auto& s = meta.sizes;
  meta.strides = {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]};
}

// f(buffer, meta, offset) for everything that a node touches.
template <typename F>
void visit(const graph::Node& node, F&& f) {
  for (size_t k = 0; k < node.uses.size(); ++k)
    f(node.uses[k].value.buffer, node.call->operands[k].meta, node.uses[k].offset);
  size_t next = 0;
  for (const TensorMeta& meta : node.call->results)
    if (meta.defined) f(node.results[next++], meta, int64_t{0});
}

class Regions {
 public:
  explicit Regions(size_t buffers) : parent_(buffers), has_convolution_(buffers) {
    std::iota(parent_.begin(), parent_.end(), 0u);
  }
  uint32_t find(uint32_t b) {
    while (parent_[b] != b) b = parent_[b] = parent_[parent_[b]];
    return b;
  }
  void join(uint32_t a, uint32_t b) {
    a = find(a), b = find(b);
    has_convolution_[a] = has_convolution_[a] || has_convolution_[b];
    parent_[b] = a;
  }
  void mark(uint32_t b) { has_convolution_[find(b)] = true; }
  bool has_convolution(uint32_t b) { return has_convolution_[find(b)]; }

 private:
  std::vector<uint32_t> parent_;
  std::vector<bool> has_convolution_;
};

}  // namespace

size_t choose_layouts(graph::Graph& graph) {
  bool any = false;
  for (const graph::Node& node : graph.nodes) any = any || is_convolution(node);
  if (!any) return 0;

  const size_t buffers = graph.buffers.size();
  std::vector<std::optional<Sizes>> sizes(buffers);
  std::vector<bool> may_change(buffers);
  for (size_t b = 0; b < buffers; ++b)
    may_change[b] = graph.buffers[b].origin == graph::Origin::kResult && !graph.buffers[b].live;
  for (const graph::Node& node : graph.nodes) {
    const bool free = takes_any_layout(node);
    visit(node, [&](uint32_t b, const TensorMeta& meta, int64_t offset) {
      if (!may_change[b]) return;
      const std::optional<Sizes> found = free ? image(meta, offset) : std::nullopt;
      if (!sizes[b]) sizes[b] = found;
      may_change[b] = found && sizes[b] == found;
    });
  }

  Regions regions(buffers);
  for (const graph::Node& node : graph.nodes) {
    std::optional<uint32_t> first;
    visit(node, [&](uint32_t b, const TensorMeta&, int64_t) {
      if (!may_change[b]) return;
      if (first) regions.join(*first, b);
      first = b;
    });
    if (first && is_convolution(node)) regions.mark(*first);
  }

  size_t changed = 0;
  for (graph::Node& node : graph.nodes) {
    std::vector<TensorMeta> operands, results = node.call->results;
    for (const graph::Operand& operand : node.call->operands) operands.push_back(operand.meta);
    bool differs = false;
    const auto relay = [&](uint32_t b, TensorMeta& meta) {
      if (!may_change[b] || !regions.has_convolution(b)) return;
      put_channels_last(meta);
      differs = true;
    };
    for (size_t k = 0; k < operands.size(); ++k) relay(node.uses[k].value.buffer, operands[k]);
    size_t next = 0;
    for (TensorMeta& meta : results)
      if (meta.defined) relay(node.results[next++], meta);
    if (!differs) continue;
    node.call = node.call->relaid(std::move(operands), std::move(results));
    ++changed;
  }
  return changed;
}

}  // namespace sinter::passes
