// Attention, forward: for a block of queries the keys in blocks, with a softmax that is corrected as it goes.
//
// A thread takes a run of query blocks and keeps the keys and values of the head at hand in the form that products
// want. Which block a thread takes changes no result.
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <cmath>
#include <limits>

#include "torch/kernels/attention/attention.h"
#include "torch/kernels/attention/tile_products.h"

namespace sinter::torch_device::attention {
namespace {

constexpr int64_t kQueries = 64;  // at most
constexpr int64_t kKeys = 256;

template <class Products>
class Forward {
  using Element = typename Products::Element;

 public:
  Forward(const Problem& problem, int64_t block, const tiles::Functions& functions, Room& room)
      : p_(problem),
        functions_(functions),
        products_{functions},
        columns_(padded(problem.depth)),
        keys_row_(padded(std::min(kKeys, problem.keys)) + 16),
        queries_(block) {
    const int64_t depth = Products::depth(p_.depth), blocks = (p_.keys + kKeys - 1) / kKeys;
    keys_size_ = Products::room(depth, keys_row_);
    values_size_ = Products::room(std::min(kKeys, padded(p_.keys)), columns_);
    keys_ = room.take<Element>(blocks * keys_size_);
    values_ = room.take<Element>(blocks * values_size_);
    value_factors_ = room.take<typename Products::Right>(blocks);
    spare_ = room.take<Element>(kKeys * spread(p_.depth));
    query_ = room.take<Element>(kQueries * spread(p_.depth));
    scores_ = room.take<float>(kQueries * keys_row_);
    weights_ = room.take<Element>(Products::kBFloat16 ? kQueries * keys_row_ : 0);
    mask_ = room.take<float>(p_.mask ? kQueries * keys_row_ : 0);
    sums_ = room.take<float>(kQueries * columns_);
    maximum_ = room.take<float>(kQueries);
    sum_ = room.take<float>(kQueries);
    shrink_ = room.take<float>(kQueries);
  }

  void begin_head(int64_t b, int64_t h) {
    b_ = b, h_ = h;
    ready_ = 0;
  }

  void run(int64_t first) {
    const int64_t count = std::min(queries_, p_.queries - first);
    const int64_t keys = p_.causal ? std::min(p_.keys, first + count) : p_.keys;
    const auto query = products_.left(p_.query.of(b_, h_).from(first), count, p_.depth, query_);
    std::fill_n(maximum_, count, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, count, 0.f);
    for (int64_t key = 0; key < keys; key += kKeys) {
      if (key / kKeys == ready_) prepare(ready_++);
      add_keys(first, count, query, key, std::min(kKeys, keys - key));
    }
    finish(first, count);
  }

  void release() const { products_.release(); }

 private:
  void prepare(int64_t block) {
    const int64_t key = block * kKeys, count = std::min(kKeys, p_.keys - key);
    products_.right_transposed(p_.key.of(b_, h_ / p_.group).from(key), count, p_.depth, keys_ + block * keys_size_, keys_row_,
                               spare_);
    value_factors_[block] =
        products_.right(p_.value.of(b_, h_ / p_.group).from(key), count, p_.depth, values_ + block * values_size_);
  }

  void add_keys(int64_t first, int64_t count, typename Products::Left query, int64_t key, int64_t keys) {
    const int64_t block = key / kKeys, diagonal = first - key;
    // The last key of the first query may lie in this block: from there on the scores are a triangle.
    const bool triangle = p_.causal && diagonal < keys - 1;
    products_.multiply(count, padded(keys), Products::depth(p_.depth), query,
                       typename Products::Right{keys_ + block * keys_size_, keys_row_}, scores_, keys_row_, false,
                       triangle && !p_.mask ? Part::kColumnsTo : Part::kAll, diagonal);
    float scale = p_.scale;
    if (p_.mask) {
      p_.mask.load(functions_, b_, h_, first, count, key, keys, mask_, keys_row_);
      functions_.add_mask(scores_, keys_row_, count, keys, scale, mask_, keys_row_);
      scale = 1;
    }
    tiles::SoftmaxStep step{};
    step.scores = scores_;
    step.row_stride = keys_row_;
    if constexpr (Products::kBFloat16) step.weights = weights_;
    step.rows = count, step.columns = keys;
    step.first_width = p_.causal ? diagonal + 1 : keys;
    step.scale = scale;
    step.maximum = maximum_, step.sum = sum_, step.shrink = shrink_;
    functions_.softmax_step(step);
    if (key > 0) functions_.scale_rows(sums_, columns_, count, columns_, shrink_);
    products_.multiply(count, columns_, Products::rows(keys), weights(), value_factors_[block], sums_, columns_,
                       key > 0, triangle ? Part::kDepthTo : Part::kAll, diagonal);
  }

  typename Products::Left weights() const {
    if constexpr (Products::kBFloat16)
      return {weights_, keys_row_, 1};
    else
      return {scores_, keys_row_, 1};
  }

  void finish(int64_t first, int64_t count) {
    float* logsumexp =
        p_.logsumexp + b_ * p_.logsumexp_batch + h_ * p_.logsumexp_head + first * p_.logsumexp_row;
    for (int64_t r = 0; r < count; ++r) {
      // A row without keys: 0 everywhere, and a logsumexp of 0.
      if (maximum_[r] == -std::numeric_limits<float>::infinity()) maximum_[r] = 0;
      if (sum_[r] == 0) sum_[r] = 1;
      logsumexp[r * p_.logsumexp_row] = maximum_[r] + std::log(sum_[r]);
      shrink_[r] = 1 / sum_[r];
    }
    functions_.store(sums_, columns_, count, p_.depth, 0, shrink_, p_.out.of(b_, h_).from(first));
  }

  const Problem& p_;
  const tiles::Functions& functions_;
  const Products products_;
  const int64_t columns_, keys_row_, queries_;
  int64_t keys_size_, values_size_;
  Element *keys_, *values_, *spare_, *query_, *weights_;
  typename Products::Right* value_factors_;
  float *scores_, *mask_, *sums_, *maximum_, *sum_, *shrink_;
  int64_t b_ = 0, h_ = 0;
  int64_t ready_ = 0;  // blocks of keys prepared for the head at hand
};

// Long and short blocks of a triangle in turns, so that runs of equal length are equal work.
int64_t in_turns(int64_t i, int64_t n) { return i % 2 == 0 ? i / 2 : n - 1 - i / 2; }

template <class Products>
void run(const Problem& p) {
  const tiles::Functions& functions = *tiles::functions();
  // Shorter blocks where there would be fewer than threads; no result depends on it.
  int64_t queries = kQueries;
  const auto count = [&] { return (p.queries + queries - 1) / queries; };
  while (queries > 16 && p.batch * p.heads * count() < at::get_num_threads()) queries /= 2;
  const int64_t blocks = count();
  const int64_t block_work = std::min(queries, p.queries) * p.keys * p.depth;
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(1, block_work));
  at::parallel_for(0, p.batch * p.heads * blocks, grain, [&](int64_t begin, int64_t end) {
    Room size;
    Forward<Products>(p, queries, functions, size);
    const auto memory = c10::GetCPUAllocator()->allocate(static_cast<size_t>(size.taken()));
    Room room(static_cast<char*>(memory.get()));
    Forward<Products> forward(p, queries, functions, room);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / blocks, block = i % blocks;
      if (i == begin || block == 0) forward.begin_head(head / p.heads, head % p.heads);
      forward.run(queries * (p.causal ? in_turns(block, blocks) : block));
    }
    forward.release();
  });
}

}  // namespace

void Mask::load(const tiles::Functions& functions, int64_t b, int64_t h, int64_t query, int64_t queries, int64_t key,
                int64_t keys, float* to, int64_t to_stride) const {
  Rows from = rows.of(b, h).from(query);
  if (column != 0) {
    from.data = Rows{from.data, 1, from.type}.from(key).data;
    return functions.widen(from, queries, queries, keys, to, to_stride);
  }
  for (int64_t r = 0; r < queries; ++r) {
    functions.widen(from.from(r), 1, 1, 1, to + r * to_stride, to_stride);
    std::fill_n(to + r * to_stride, padded(keys), to[r * to_stride]);
  }
}

void forward(const Problem& problem, bool bfloat16) {
  if (bfloat16)
    run<BFloat16Products>(problem);
  else
    run<FloatProducts>(problem);
}

}  // namespace sinter::torch_device::attention
