// Attention, backward: the weights are made again from the logsumexp, transposed, a block of keys at a time.
//
// Transposed, the weights and the gradient of the scores are ready to be the left factors of the gradients of values
// and keys. All gradients are summed as floats and rounded once. A thread takes whole heads of keys, with all heads of
// queries that share them.
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include "torch/kernels/attention/attention.h"
#include "torch/kernels/attention/tile_products.h"

namespace sinter::torch_device::attention {
namespace {

constexpr int64_t kKeys = 64;
template <class Products>
constexpr int64_t kQueries = Products::kBFloat16 ? 256 : 128;

template <class Products>
class Backward {
  using Element = typename Products::Element;
  using Left = typename Products::Left;
  using Right = typename Products::Right;
  static constexpr int64_t kBlock = kQueries<Products>;

 public:
  Backward(const Problem& problem, const Gradients& gradients, const tiles::Functions& functions, Room& room)
      : p_(problem),
        g_(gradients),
        functions_(functions),
        products_{functions},
        depth_(Products::depth(problem.depth)),
        columns_(padded(problem.depth)),
        row_(padded(std::min(kBlock, problem.queries)) + 16) {
    const int64_t blocks = (p_.queries + kBlock - 1) / kBlock, all_queries = padded(p_.queries);
    transposed_size_ = Products::room(depth_, row_);
    query_transposed_ = room.take<Element>(blocks * transposed_size_);
    out_transposed_ = room.take<Element>(blocks * transposed_size_);
    query_room_ = room.take<Element>(Products::room(all_queries, columns_));
    out_room_ = room.take<Element>(Products::room(all_queries, columns_));
    spare_ = room.take<Element>(kBlock * spread(p_.depth));
    key_left_ = room.take<Element>(kKeys * spread(p_.depth));
    value_left_ = room.take<Element>(kKeys * spread(p_.depth));
    key_room_ = room.take<Element>(Products::room(kKeys, columns_));
    scores_ = room.take<float>(kKeys * row_);
    weights_gradient_ = room.take<float>(kKeys * row_);
    mask_ = room.take<float>(p_.mask ? kBlock * spread(kKeys) : 0);
    mask_transposed_ = room.take<float>(p_.mask ? kKeys * row_ : 0);
    weights_ = room.take<Element>(Products::kBFloat16 ? kKeys * row_ : 0);
    gradient_ = room.take<Element>(Products::kBFloat16 ? kKeys * row_ : 0);
    pairs_ = room.take<uint32_t>(Products::kBFloat16 ? kKeys / 2 * row_ : 0);
    gradient_by_query_ = room.take<uint32_t>(Products::kBFloat16 ? kBlock * kPairsRow : 0);
    logsumexp_ = room.take<float>(all_queries);
    dots_ = room.take<float>(all_queries);
    query_sums_ = room.take<float>(all_queries * columns_);
    // Between heads that share their keys the sums of all keys are kept.
    const int64_t summed = p_.group > 1 ? padded(p_.keys) + kKeys : kKeys;
    key_sums_ = room.take<float>(summed * columns_);
    value_sums_ = room.take<float>(summed * columns_);
  }

  void run(int64_t b, int64_t h) {
    b_ = b, h_ = h;
    prepare();
    for (int64_t key = 0; key < p_.keys; key += kKeys) run_keys(key, std::min(kKeys, p_.keys - key));
    functions_.store(query_sums_, columns_, p_.queries, p_.depth, p_.scale, nullptr, g_.query.of(b, h));
  }

  void release() const { products_.release(); }

 private:
  static constexpr int64_t kPairsRow = kKeys / 2 + 16;

  void prepare() {
    const Rows query = p_.query.of(b_, h_), out = g_.out.of(b_, h_);
    for (int64_t first = 0; first < p_.queries; first += kBlock) {
      const int64_t count = std::min(kBlock, p_.queries - first), at = first / kBlock * transposed_size_;
      products_.right_transposed(query.from(first), count, p_.depth, query_transposed_ + at, row_, spare_);
      products_.right_transposed(out.from(first), count, p_.depth, out_transposed_ + at, row_, spare_);
    }
    query_right_ = products_.right(query, p_.queries, p_.depth, query_room_);
    out_right_ = products_.right(out, p_.queries, p_.depth, out_room_);
    const int64_t all = padded(p_.queries);
    const float* logsumexp = p_.logsumexp + b_ * p_.logsumexp_batch + h_ * p_.logsumexp_head;
    for (int64_t i = 0; i < p_.queries; ++i) logsumexp_[i] = logsumexp[i * p_.logsumexp_row];
    functions_.dots(out, p_.out.of(b_, h_), p_.queries, p_.depth, dots_);
    std::fill(logsumexp_ + p_.queries, logsumexp_ + all, 0.f);
    std::fill(dots_ + p_.queries, dots_ + all, 0.f);
    std::fill_n(query_sums_, all * columns_, 0.f);
  }

  void run_keys(int64_t key, int64_t keys) {
    const int64_t shared = h_ / p_.group;
    const Rows key_rows = p_.key.of(b_, shared).from(key), value_rows = p_.value.of(b_, shared).from(key);
    const Left key_left = products_.left(key_rows, keys, p_.depth, key_left_);
    const Left value_left = products_.left(value_rows, keys, p_.depth, value_left_);
    const Right key_right = products_.right(key_rows, keys, p_.depth, key_room_);
    const bool first_head = h_ % p_.group == 0, last_head = h_ % p_.group == p_.group - 1;
    const int64_t kept = p_.group > 1 ? key * columns_ : 0;
    key_sum_ = key_sums_ + kept, value_sum_ = value_sums_ + kept;
    bool add = !first_head;
    for (int64_t block = p_.causal ? key / kBlock : 0; block * kBlock < p_.queries; ++block) {
      // Queries before the first key of the block have none of its keys.
      const int64_t first = block * kBlock, skipped = p_.causal ? std::max<int64_t>(0, key - first) : 0;
      const int64_t count = std::min(kBlock, p_.queries - first) - skipped;
      if (count <= 0) continue;
      run_tile(key, keys, block, skipped, count, key_left, value_left, key_right, add);
      add = true;
    }
    if (!add) {
      std::fill_n(key_sum_, keys * columns_, 0.f);
      std::fill_n(value_sum_, keys * columns_, 0.f);
    }
    if (!last_head) return;
    functions_.store(key_sum_, columns_, keys, p_.depth, p_.scale, nullptr, g_.key.of(b_, shared).from(key));
    functions_.store(value_sum_, columns_, keys, p_.depth, 1, nullptr, g_.value.of(b_, shared).from(key));
  }

  void run_tile(int64_t key, int64_t keys, int64_t block, int64_t skipped, int64_t queries, Left key_left,
                Left value_left, Right key_right, bool add) {
    const int64_t query = block * kBlock + skipped, at = block * transposed_size_;
    const Right query_transposed = Right{query_transposed_ + at, row_}.from(0, skipped);
    const Right out_transposed = Right{out_transposed_ + at, row_}.from(0, skipped);
    // Key r of the tile has the queries from r + diagonal.
    const int64_t diagonal = key - query;
    const bool triangle = p_.causal && keys - 1 + diagonal > 0;
    const Part columns = triangle ? Part::kColumnsFrom : Part::kAll;
    const Part depth_from = triangle ? Part::kDepthFrom : Part::kAll;
    products_.multiply(keys, padded(queries), depth_, key_left, query_transposed, scores_, row_, false, columns,
                       diagonal);
    products_.multiply(keys, padded(queries), depth_, value_left, out_transposed, weights_gradient_, row_, false,
                       columns, diagonal);
    float scale = p_.scale;
    if (p_.mask) {
      p_.mask.load(functions_, b_, h_, query, queries, key, keys, mask_, spread(kKeys));
      functions_.transpose(reinterpret_cast<const uint32_t*>(mask_), spread(kKeys), queries, keys,
                           reinterpret_cast<uint32_t*>(mask_transposed_), row_);
      functions_.add_mask(scores_, row_, keys, queries, scale, mask_transposed_, row_);
      scale = 1;
    }
    tiles::SoftmaxBackward step{};
    step.scores = scores_, step.weights_gradient = weights_gradient_, step.row_stride = row_;
    if constexpr (Products::kBFloat16) step.weights = weights_, step.gradient = gradient_, step.pairs = pairs_;
    step.keys = keys, step.all_keys = Products::rows(keys), step.queries = queries;
    step.first_query = p_.causal ? diagonal : -keys;
    step.scale = scale;
    step.logsumexp = logsumexp_ + query, step.dots = dots_ + query;
    functions_.softmax_backward(step);

    const int64_t summands = Products::rows(queries);
    products_.multiply(keys, columns_, summands, weights(), out_right_.from(query, 0), value_sum_, columns_, add,
                       depth_from, diagonal);
    products_.multiply(keys, columns_, summands, gradient(), query_right_.from(query, 0), key_sum_, columns_, add,
                       depth_from, diagonal);
    products_.multiply(queries, columns_, Products::rows(keys), gradient_by_query(keys, queries), key_right,
                       query_sums_ + query * columns_, columns_, true, triangle ? Part::kDepthTo : Part::kAll,
                       -diagonal);
  }

  Left weights() const {
    if constexpr (Products::kBFloat16)
      return {weights_, row_, 1};
    else
      return {scores_, row_, 1};
  }
  Left gradient() const {
    if constexpr (Products::kBFloat16)
      return {gradient_, row_, 1};
    else
      return {weights_gradient_, row_, 1};
  }
  Left gradient_by_query(int64_t keys, int64_t queries) const {
    if constexpr (Products::kBFloat16) {
      functions_.transpose(pairs_, row_, Products::rows(keys) / 2, padded(queries), gradient_by_query_, kPairsRow);
      return {reinterpret_cast<const uint16_t*>(gradient_by_query_), 2 * kPairsRow, 1};
    } else {
      return {weights_gradient_, 1, row_};
    }
  }

  const Problem& p_;
  const Gradients& g_;
  const tiles::Functions& functions_;
  const Products products_;
  const int64_t depth_, columns_, row_;
  int64_t transposed_size_;
  Element *query_transposed_, *out_transposed_, *query_room_, *out_room_, *spare_, *key_left_, *value_left_, *key_room_;
  Element *weights_, *gradient_;
  float *scores_, *weights_gradient_, *mask_, *mask_transposed_, *logsumexp_, *dots_;
  float *query_sums_, *key_sums_, *value_sums_, *key_sum_ = nullptr, *value_sum_ = nullptr;
  uint32_t *pairs_, *gradient_by_query_;
  Right query_right_{}, out_right_{};
  int64_t b_ = 0, h_ = 0;
};

template <class Products>
void run(const Problem& p, const Gradients& g) {
  const tiles::Functions& functions = *tiles::functions();
  const int64_t work = p.group * p.queries * p.keys * p.depth;
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 17) / std::max<int64_t>(1, work));
  at::parallel_for(0, p.batch * p.heads / p.group, grain, [&](int64_t begin, int64_t end) {
    Room size;
    Backward<Products>(p, g, functions, size);
    const auto memory = c10::GetCPUAllocator()->allocate(static_cast<size_t>(size.taken()));
    Room room(static_cast<char*>(memory.get()));
    Backward<Products> backward(p, g, functions, room);
    for (int64_t i = begin * p.group; i < end * p.group; ++i) backward.run(i / p.heads, i % p.heads);
    backward.release();
  });
}

}  // namespace

void backward(const Problem& problem, const Gradients& gradients, bool bfloat16) {
  if (bfloat16)
    run<BFloat16Products>(problem, gradients);
  else
    run<FloatProducts>(problem, gradients);
}

}  // namespace sinter::torch_device::attention
