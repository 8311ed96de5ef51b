// 32-bit matrix products in tiles, where that is faster than MKL.
//
// PyTorch sends them to MKL. On Intel's processors nothing is faster; on others it reaches about three quarters of what
// the processor can do. `python bench/products.py` prints the table that the rule was read from.
//
// The blocking is Goto and van de Geijn's (Anatomy of high-performance matrix multiplication, 2008): a block of the
// right factor is packed into panels that stay in the second cache, rows of the left one pass by. Each thread packs
// for itself what it needs, because reading what another core has just written costs more than packing it again. Every
// element is summed in one order, whatever the number of threads.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

#include "torch/kernels/kernel_table.h"
#include "torch/kernels/tiles/tile_functions.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sinter::torch_device {
namespace {

bool is_intel() {
#if defined(__x86_64__)
  unsigned eax = 0, words[3] = {0, 0, 0};
  if (!__get_cpuid(0, &eax, &words[0], &words[2], &words[1])) return true;
  return std::memcmp(words, "GenuineIntel", 12) == 0;
#else
  return true;  // PyTorch has no MKL there
#endif
}

constexpr int64_t kDepth = 256;     // summands of a block
constexpr int64_t kPanel = 64;      // columns of a panel: what the tile function takes at once
constexpr int64_t kColumns = 512;   // of a block of the right factor: half a megabyte
constexpr int64_t kRows = 192;      // of a block of the left factor
constexpr int64_t kWorthAThread = 1 << 20;  // multiplications

struct Matrix {
  const float* data;
  int64_t row, column;  // strides, one of which is 1
};

// Off a multiple of 4096 bytes, at which rows would share places of the first cache.
constexpr int64_t kLeftRow = kDepth + 16;

class Product {
 public:
  Product(const tiles::Functions& functions, Matrix a, Matrix b, float* c, int64_t k, int64_t c_row)
      : functions_(functions), a_(a), b_(b), c_(c), k_(k), c_row_(c_row) {}

  static constexpr int64_t kRoom = kDepth * kColumns + kRows * kLeftRow;

  // Rows [m0, m1) and columns [n0, n1) of the result.
  void run(int64_t m0, int64_t m1, int64_t n0, int64_t n1, float* room) const {
    float* right = room;
    float* left = room + kDepth * kColumns;
    for (int64_t n = n0; n < n1; n += kColumns) {
      const int64_t columns = std::min(kColumns, n1 - n);
      for (int64_t k = 0; k < k_; k += kDepth) {
        const int64_t depth = std::min(kDepth, k_ - k);
        pack_right(k, depth, n, columns, right);
        for (int64_t m = m0; m < m1; m += kRows) run_block(m, std::min(kRows, m1 - m), k, depth, n, columns, left, right);
      }
    }
  }

 private:
  void run_block(int64_t m, int64_t rows, int64_t k, int64_t depth, int64_t n, int64_t columns, float* left,
                 const float* right) const {
    tiles::Product p{};
    p.m = rows, p.k = depth;
    p.left = a_.data + m * a_.row + k * a_.column, p.left_row = a_.row, p.left_depth = a_.column;
    if (a_.column != 1) {
      for (int64_t i = 0; i < depth; ++i)
        std::memcpy(left + i * kRows, p.left + i * a_.column, static_cast<size_t>(rows) * sizeof(float));
      p.left = left, p.left_row = 1, p.left_depth = kRows;
    } else if (a_.row % 512 == 0) {
      for (int64_t i = 0; i < rows; ++i)
        std::memcpy(left + i * kLeftRow, p.left + i * a_.row, static_cast<size_t>(depth) * sizeof(float));
      p.left = left, p.left_row = kLeftRow;
    }
    p.result_row = c_row_;
    p.add = k > 0;
    for (int64_t panel = 0; panel < columns; panel += kPanel) {
      p.n = std::min(kPanel, columns - panel);
      p.right = right + panel * depth, p.right_row = p.n;
      p.result = c_ + m * c_row_ + n + panel;
      functions_.multiply(p);
    }
  }

  void pack_right(int64_t k, int64_t depth, int64_t n, int64_t columns, float* to) const {
    for (int64_t panel = 0; panel < columns; panel += kPanel) {
      const int64_t width = std::min(kPanel, columns - panel);
      const float* from = b_.data + k * b_.row + (n + panel) * b_.column;
      float* packed = to + panel * depth;
      if (b_.column == 1)
        for (int64_t i = 0; i < depth; ++i)
          std::memcpy(packed + i * width, from + i * b_.row, static_cast<size_t>(width) * sizeof(float));
      else
        functions_.transpose(reinterpret_cast<const uint32_t*>(from), b_.column, width, depth,
                             reinterpret_cast<uint32_t*>(packed), width);
    }
  }

  const tiles::Functions& functions_;
  const Matrix a_, b_;
  float* const c_;
  const int64_t k_, c_row_;
};

}  // namespace

bool matrix_product(const TorchCall& call, torch::jit::Stack& stack) {
  static const bool use = !is_intel() && tiles::functions();
  if (!use) return false;
  const at::Tensor& a = stack[stack.size() - 2].toTensor();
  const at::Tensor& b = stack[stack.size() - 1].toTensor();
  if (a.scalar_type() != at::kFloat) return false;
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1), work = m * n * k;
  // Columns are computed a vector at a time; a matrix and a vector, or a few of either, there is nothing to gain at.
  if (n % tiles::kColumns != 0 || work < kWorthAThread || m < 16 || n < 32 || k < 16) return false;
  for (const at::Tensor* t : {&a, &b})
    if ((t->stride(0) != 1 || t->stride(1) < t->size(0)) && (t->stride(1) != 1 || t->stride(0) < t->size(1)))
      return false;
  if (call.results[0].strides != std::vector<int64_t>{n, 1}) return false;
  if (at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST) return false;

  at::Tensor result = at::empty({m, n}, a.options());
  const Product product(*tiles::functions(), {a.const_data_ptr<float>(), a.stride(0), a.stride(1)},
                        {b.const_data_ptr<float>(), b.stride(0), b.stride(1)}, result.mutable_data_ptr<float>(), k, n);
  // The longer side is split, in whole groups of rows or panels: the other factor is packed by each thread.
  const bool by_rows = m >= n;
  const int64_t unit = by_rows ? 16 : kPanel, units = ((by_rows ? m : n) + unit - 1) / unit;
  const int64_t grain = std::max<int64_t>(1, units * kWorthAThread / work);
  at::parallel_for(0, units, grain, [&](int64_t begin, int64_t end) {
    const auto memory = c10::GetCPUAllocator()->allocate(Product::kRoom * sizeof(float));
    auto* room = static_cast<float*>(memory.get());
    if (by_rows)
      product.run(begin * unit, std::min(m, end * unit), 0, n, room);
    else
      product.run(0, m, begin * unit, std::min(n, end * unit), room);
  });
  stack.resize(stack.size() - 2);
  stack.emplace_back(std::move(result));
  return true;
}

}  // namespace sinter::torch_device
