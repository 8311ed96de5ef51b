// Products of tiles and the forms that they take their factors in, for floats and for bfloat16.
//
// Both kinds have the same interface, so that forward and backward are written once:
//   left             [rows][depth], read row by row
//   right            [depth][columns]
//   right_transposed the same made from [columns][depth]
// Factors are made from a caller's memory, in room that the caller gives where they cannot be used as they lie there.
// What is behind the rows and columns of a factor is 0 where it meets something, and arbitrary where its results are
// not looked at.
#pragma once

#include <ATen/native/CPUBlas.h>

#include "torch/kernels/tiles/tile_functions.h"

namespace sinter::torch_device::attention {

using tiles::padded;
using tiles::Part;
using tiles::Real;
using tiles::Rows;

// Memory handed out piece by piece. Without memory it only counts.
class Room {
 public:
  Room() = default;
  explicit Room(char* memory) : memory_(memory) {}

  template <class T>
  T* take(int64_t count) {
    char* piece = memory_ + taken_;
    taken_ += padded(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(piece);
  }
  int64_t taken() const { return taken_; }

 private:
  char* memory_ = nullptr;
  int64_t taken_ = 0;
};

// Rows that are a power of two apart share few places of the first cache.
constexpr int64_t spread(int64_t columns) { return padded(columns) + 16; }

// ---- floats: the product is ours, and leaves out what a causal mask makes 0
struct FloatProducts {
  using Element = float;
  static constexpr bool kBFloat16 = false;

  const tiles::Functions& functions;

  struct Left {
    const float* data;
    int64_t row, depth;
  };
  struct Right {
    const float* data;
    int64_t row;
    Right from(int64_t depth, int64_t column) const { return {data + depth * row + column, row}; }
  };

  static int64_t depth(int64_t n) { return n; }
  static int64_t rows(int64_t n) { return n; }
  // Elements of room for a factor.
  static int64_t room(int64_t depth, int64_t columns) { return depth * columns; }

  Left left(Rows rows, int64_t count, int64_t depth, float* room) const {
    if (rows.type == Real::kFloat) return {static_cast<const float*>(rows.data), rows.stride, 1};
    functions.widen(rows, count, count, depth, room, spread(depth));
    return {room, spread(depth), 1};
  }
  Right right(Rows rows, int64_t count, int64_t columns, float* room) const {
    if (rows.type == Real::kFloat && columns % tiles::kColumns == 0)
      return {static_cast<const float*>(rows.data), rows.stride};
    functions.widen(rows, count, count, columns, room, padded(columns));
    return {room, padded(columns)};
  }
  Right right_transposed(Rows rows, int64_t count, int64_t depth, float* room, int64_t row, float* spare) const {
    if (rows.type != Real::kFloat) {
      functions.widen(rows, count, count, depth, spare, spread(depth));
      rows = {spare, spread(depth), Real::kFloat};
    }
    functions.transpose(static_cast<const uint32_t*>(rows.data), rows.stride, count, depth,
                        reinterpret_cast<uint32_t*>(room), row);
    return {room, row};
  }

  void multiply(int64_t m, int64_t n, int64_t k, Left left, Right right, float* result, int64_t result_row, bool add,
                Part part = Part::kAll, int64_t shift = 0) const {
    functions.multiply({m, padded(n), k, left.data, left.row, left.depth, right.data, right.row, result, result_row,
                        add, part, shift});
  }
  void release() const {}
};

// ---- bfloat16: oneDNN's, which has the processor's instructions for it. Two rows of a right factor lie interleaved,
// as these want them. It compiles code for each shape it meets, so that shapes are padded to multiples of 16.
struct BFloat16Products {
  using Element = uint16_t;
  static constexpr bool kBFloat16 = true;

  const tiles::Functions& functions;

  struct Left {
    const uint16_t* data;
    int64_t row, depth;
  };
  struct Right {
    const uint16_t* data;
    int64_t row;
    Right from(int64_t depth, int64_t column) const { return {data + depth * row + 2 * column, row}; }
  };

  static int64_t depth(int64_t n) { return padded(n, 2); }  // odd ones crash
  static int64_t rows(int64_t n) { return padded(n); }
  static int64_t room(int64_t depth, int64_t columns) { return padded(depth) * columns; }

  Left left(Rows rows, int64_t count, int64_t depth, uint16_t* room) const {
    functions.copy(rows, count, padded(count), depth, room, spread(depth));
    return {room, spread(depth), 1};
  }
  Right right(Rows rows, int64_t count, int64_t columns, uint16_t* room) const {
    functions.pair_rows(rows, count, padded(count), columns, reinterpret_cast<uint32_t*>(room), padded(columns));
    return {room, padded(columns)};
  }
  Right right_transposed(Rows rows, int64_t count, int64_t depth, uint16_t* room, int64_t row, uint16_t* spare) const {
    // Two elements of a row move together, as a word.
    if (depth % 2 != 0 || rows.stride % 2 != 0 || reinterpret_cast<uintptr_t>(rows.data) % 4 != 0) {
      functions.copy(rows, count, count, depth, spare, spread(depth));
      rows = {spare, spread(depth), Real::kBFloat16};
    }
    functions.transpose(static_cast<const uint32_t*>(rows.data), rows.stride / 2, count, padded(depth, 2) / 2,
                        reinterpret_cast<uint32_t*>(room), row);
    return {room, row};
  }

  void multiply(int64_t m, int64_t n, int64_t k, Left left, Right right, float* result, int64_t result_row, bool add,
                Part = Part::kAll, int64_t = 0) const {
    at::native::cpublas::brgemm(padded(m), padded(n), padded(k, 2), left.row, right.row, result_row, add,
                                reinterpret_cast<const at::BFloat16*>(left.data),
                                reinterpret_cast<const at::BFloat16*>(right.data), result);
  }
  // In every thread that multiplied: the next product would take over tile registers that another library reset.
  void release() const { at::native::cpublas::brgemm_release(); }
};

}  // namespace sinter::torch_device::attention
