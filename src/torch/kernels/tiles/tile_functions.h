// Vector loops over tiles: small matrices in cache that attention and matrix products are computed on.
//
// Each function exists once for each vector extension (tile_functions.inc); the table of the widest one that the
// processor has is chosen at the first use. The same table gives the same bits whatever the number of threads. Pure
// functions: they allocate nothing and change no state of process or thread.
//
// Conventions: a tile is row-major, its columns are padded to a multiple of kColumns, which functions may read and
// write. Strides and leading dimensions count elements.
#pragma once

#include <cstdint>

namespace sinter::torch_device::tiles {

constexpr int64_t kColumns = 16;
constexpr int64_t padded(int64_t n, int64_t to = kColumns) { return (n + to - 1) / to * to; }

enum class Real : uint8_t { kFloat, kBFloat16, kHalf };

// Rows of numbers in memory of somebody else: their last dimension is dense.
struct Rows {
  const void* data = nullptr;
  int64_t stride = 0;
  Real type = Real::kFloat;

  Rows from(int64_t row) const {
    const int64_t size = type == Real::kFloat ? 4 : 2;
    return {static_cast<const char*>(data) + row * stride * size, stride, type};
  }
};

// Which part of a product is wanted, where one factor or the result is a triangle: element (row, column) of the result
// for Columns*, the summand k of a row for Depth*. What is not wanted may be left out, none of it has to be.
enum class Part : uint8_t {
  kAll,
  kColumnsFrom,  // column >= row + shift
  kColumnsTo,    // column <= row + shift
  kDepthFrom,    // k >= row + shift
  kDepthTo,      // k <= row + shift
};

// result[m][n] (+)= sum over k of left[m][k] * right[k][n]. The left factor has any strides, one of which is 1.
struct Product {
  int64_t m, n, k;  // n is padded
  const float* left;
  int64_t left_row, left_depth;
  const float* right;
  int64_t right_row;
  float* result;
  int64_t result_row;
  bool add = false;
  Part part = Part::kAll;
  int64_t shift = 0;
};

// One step of a softmax whose columns come in tiles. Row r has the columns below min(columns, r + first_width); what
// is right of them in the tile becomes 0.
struct SoftmaxStep {
  float* scores;  // in: products; out, where `weights` is null: exp(scale * score - maximum)
  int64_t row_stride;
  uint16_t* weights;  // the same rounded to bfloat16, with the same row stride
  int64_t rows, columns, first_width;
  float scale;
  float* maximum;  // so far, a row
  float* sum;      // so far, a row
  float* shrink;   // out: what a row's earlier sums are to be multiplied by
};

// Weights and the gradient of scores, transposed: a row for each key, a column for each query. Row r has the columns
// from r + first_query; what is left of them and right of `queries` becomes 0, and so do the rows from `keys` to
// `all_keys` (an even number where results are bfloat16).
struct SoftmaxBackward {
  float* scores;   // in: products; out, where `weights` is null: the weights
  float* weights_gradient;  // in; out, where `gradient` is null: the gradient of the scores without their scale
  int64_t row_stride;
  uint16_t* weights;   // bfloat16 results with the same row stride
  uint16_t* gradient;
  uint32_t* pairs;     // and the gradient of two rows in a word, the earlier one in the lower half
  int64_t keys, all_keys, queries, first_query;
  float scale;
  const float* logsumexp;  // a column
  const float* dots;       // a column: output times its gradient
};

// Sums over the rows of a tile, a sum each for every column (a multiple of kColumns).
struct ColumnSums {
  Rows x, gradient;    // without a gradient the deviations stand for it
  int64_t rows, columns;
  const float* shift;  // a column: x counts from it
  float* sums;         // of the gradient, or of the deviations x - shift
  float* products;     // of the gradient times the deviations
};

// out = slope * (x - shift) + factor * gradient + constant, with a number each for every column.
struct ColumnScale {
  Rows x, gradient;  // the gradient may be missing
  int64_t rows, columns;
  const float *shift, *slope, *factor, *constant;
  Rows out;
};

struct Functions {
  void (*multiply)(const Product& product);
  // to[c][r] = from[r][c]
  void (*transpose)(const uint32_t* from, int64_t from_stride, int64_t rows, int64_t columns, uint32_t* to,
                    int64_t to_stride);
  // Rows as floats; columns up to padded(columns) and rows up to `all_rows` become 0.
  void (*widen)(Rows from, int64_t rows, int64_t all_rows, int64_t columns, float* to, int64_t to_stride);
  // The same for 16-bit numbers that stay what they are.
  void (*copy)(Rows from, int64_t rows, int64_t all_rows, int64_t columns, uint16_t* to, int64_t to_stride);
  // Two rows of 16-bit numbers become one of words, the earlier in the lower half; padded like the others.
  void (*pair_rows)(Rows from, int64_t rows, int64_t all_rows, int64_t columns, uint32_t* to, int64_t to_stride);
  // scores = scale * scores + mask
  void (*add_mask)(float* scores, int64_t row_stride, int64_t rows, int64_t columns, float scale, const float* mask,
                   int64_t mask_stride);
  void (*softmax_step)(const SoftmaxStep& step);
  void (*softmax_backward)(const SoftmaxBackward& step);
  // tile[r][c] *= factor[r]
  void (*scale_rows)(float* tile, int64_t row_stride, int64_t rows, int64_t columns, const float* factor);
  // Rounds factor * tile[r][c] to the type of the rows; a factor a row where `factors` is given.
  void (*store)(const float* tile, int64_t row_stride, int64_t rows, int64_t columns, float factor,
                const float* factors, Rows to);
  // out[r] = sum over c of a[r][c] * b[r][c]
  void (*dots)(Rows a, Rows b, int64_t rows, int64_t columns, float* out);
  void (*column_sums)(const ColumnSums& step);
  void (*column_scale)(const ColumnScale& step);
};

// Null where the processor has no vector extension that a table was made for.
const Functions* functions();

}  // namespace sinter::torch_device::tiles
