// Scaled dot-product attention in tiles: what the forward and the backward file get from the op's arguments.
#pragma once

#include <algorithm>
#include <cstdint>

#include "torch/kernels/tiles/tile_functions.h"

namespace sinter::torch_device::attention {

using tiles::Real;
using tiles::Rows;

// [batch, heads, rows, depth], of which the last is dense.
struct Heads {
  const void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides
  Real type = Real::kFloat;

  Rows of(int64_t b, int64_t h) const {
    const int64_t size = type == Real::kFloat ? 4 : 2;
    return {static_cast<const char*>(data) + (b * batch + h * head) * size, row, type};
  }
};

// Added to the scores; a stride of 0 repeats.
struct Mask {
  Heads rows;
  int64_t column = 0;  // stride, 0 or 1
  explicit operator bool() const { return rows.data != nullptr; }

  // As floats, padded with 0.
  void load(const tiles::Functions& functions, int64_t b, int64_t h, int64_t query, int64_t queries, int64_t key,
            int64_t keys, float* to, int64_t to_stride) const;
};

struct Problem {
  int64_t batch, heads, queries, keys, depth;
  int64_t group;  // heads of queries that share one head of keys and values
  bool causal;  // query i has the keys up to i
  float scale;
  Heads query, key, value, out;
  // [batch, heads, queries] of floats
  float* logsumexp;
  int64_t logsumexp_batch, logsumexp_head, logsumexp_row;
  Mask mask;
};

struct Gradients {
  Heads out;  // given
  Heads query, key, value;
};

// With products of bfloat16, summed as floats, where `bfloat16`; the arguments must be so. Else all is float inside.
void forward(const Problem& problem, bool bfloat16);
void backward(const Problem& problem, const Gradients& gradients, bool bfloat16);

}  // namespace sinter::torch_device::attention
