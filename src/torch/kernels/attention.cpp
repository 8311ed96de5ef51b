// Attention in tiles of our own, for floats, bfloat16 and halves.
//
// PyTorch's kernel calls a library for each small product, which costs more than the products where sequences are short
// or numbers are bfloat16, and it computes what a causal mask hides. `python bench/attention.py` prints the table that
// the rule below was read from.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "torch/kernels/attention/attention.h"
#include "torch/kernels/kernel_table.h"

namespace sinter::torch_device {
namespace {

using attention::Gradients;
using attention::Heads;
using attention::Problem;
using tiles::Real;

std::optional<Real> real_of(c10::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Real::kFloat;
    case at::kBFloat16:
      return Real::kBFloat16;
    case at::kHalf:
      return Real::kHalf;
    default:
      return std::nullopt;
  }
}

Heads heads_of(const at::Tensor& t, bool written = false) {
  return {written ? t.mutable_data_ptr() : t.const_data_ptr(), t.stride(0), t.stride(1), t.stride(2),
          *real_of(t.scalar_type())};
}

// Whether oneDNN's products of bfloat16 run on instructions made for it; without them floats are faster.
bool has_bfloat16() {
#if defined(__x86_64__)
  static const bool has = [] {
    if (!__builtin_cpu_supports("avx512bf16")) return false;
    alignas(64) at::BFloat16 a[16 * 16] = {}, b[16 * 16] = {};
    alignas(64) float c[16 * 16];
    try {  // oneDNN can be kept to fewer instructions than there are
      at::native::cpublas::brgemm(16, 16, 16, 16, 16, 16, false, a, b, c);
      at::native::cpublas::brgemm_release();
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }();
  return has && at::globalContext().userEnabledMkldnn();
#else
  return false;
#endif
}

// Whether the processor multiplies halves, which PyTorch's forward then does in tiles. Its backward never does.
bool multiplies_halves() {
#if defined(__x86_64__)
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx >> 23 & 1) != 0;  // AVX512_FP16
  }();
  return has;
#else
  return false;
#endif
}

// The arguments that both ops have, from position `at` of the stack; `rest` is where dropout_p is.
bool read(const torch::jit::Stack& stack, size_t at, size_t rest, Problem& p) {
  const at::Tensor &query = stack[at].toTensor(), &key = stack[at + 1].toTensor(), &value = stack[at + 2].toTensor();
  if (!tiles::functions() || stack[rest].toDouble() != 0) return false;
  const auto type = real_of(query.scalar_type());
  if (!type) return false;
  for (const at::Tensor* t : {&query, &key, &value})
    if (t->dim() != 4 || t->numel() == 0 || t->scalar_type() != query.scalar_type() ||
        (t->stride(3) != 1 && t->size(3) != 1) || t->size(0) != query.size(0) || t->size(3) != query.size(3))
      return false;
  if (key.size(2) != value.size(2) || key.size(1) != value.size(1) || query.size(1) % key.size(1) != 0) return false;
  p.batch = query.size(0), p.heads = query.size(1), p.queries = query.size(2), p.depth = query.size(3);
  p.keys = key.size(2);
  p.group = query.size(1) / key.size(1);
  p.causal = stack[rest + 1].toBool();
  p.scale = stack[rest + 3].isNone() ? static_cast<float>(1 / std::sqrt(static_cast<double>(p.depth)))
                                     : static_cast<float>(stack[rest + 3].toDouble());
  // PyTorch multiplies what its causal mask put in by the scale, and gets infinity or NaN from these.
  if (p.causal && !(p.scale > 0)) return false;
  p.query = heads_of(query), p.key = heads_of(key), p.value = heads_of(value);

  if (stack[rest + 2].isNone() || !stack[rest + 2].toTensor().defined()) return true;
  const at::Tensor& mask = stack[rest + 2].toTensor();
  if (mask.scalar_type() != at::kFloat && mask.scalar_type() != query.scalar_type()) return false;
  if ((mask.dim() != 2 && mask.dim() != 4) || mask.numel() == 0) return false;
  const int64_t sizes[] = {p.batch, p.heads, p.queries, p.keys};
  int64_t strides[4] = {};
  for (int64_t d = 0; d < mask.dim(); ++d) {
    const int64_t from = d + 4 - mask.dim();
    if (mask.size(d) == 1) continue;
    if (mask.size(d) != sizes[from]) return false;
    strides[from] = mask.stride(d);
  }
  if (strides[3] != 0 && strides[3] != 1) return false;
  p.mask.rows = {mask.const_data_ptr(), strides[0], strides[1], strides[2], *real_of(mask.scalar_type())};
  p.mask.column = strides[3];
  return true;
}

void take_logsumexp(Problem& p, const at::Tensor& logsumexp) {
  p.logsumexp = static_cast<float*>(const_cast<void*>(logsumexp.const_data_ptr()));
  p.logsumexp_batch = logsumexp.stride(0), p.logsumexp_head = logsumexp.stride(1);
  p.logsumexp_row = logsumexp.stride(2);
}

// Few queries are a product of a matrix and a vector, which there is nothing to gain at, and preparing the keys costs
// more than it.
bool pays(const Problem& p, int64_t least_queries) {
  return p.queries >= least_queries || (p.query.type == Real::kBFloat16 && p.keys >= 64 && !p.causal);
}

bool use_bfloat16(const Problem& p) { return p.query.type == Real::kBFloat16 && has_bfloat16(); }

}  // namespace

bool attention_forward(const TorchCall&, torch::jit::Stack& stack) {
  const size_t at = stack.size() - 7;
  Problem p{};
  if (!read(stack, at, at + 3, p) || !pays(p, 4)) return false;
  const at::Tensor& query = stack[at].toTensor();
  if (query.scalar_type() == at::kHalf && multiplies_halves()) return false;
  at::Tensor out = at::empty_like(query);
  at::Tensor logsumexp = at::empty({p.batch, p.queries, p.heads}, query.options().dtype(at::kFloat)).transpose(1, 2);
  p.out = heads_of(out, true);
  take_logsumexp(p, logsumexp);
  attention::forward(p, use_bfloat16(p));
  stack.resize(at);
  stack.emplace_back(std::move(out));
  stack.emplace_back(std::move(logsumexp));
  return true;
}

bool attention_backward(const TorchCall&, torch::jit::Stack& stack) {
  const size_t at = stack.size() - 10;
  Problem p{};
  at::Tensor grad_out = stack[at].toTensor();
  if (!grad_out.defined() || !read(stack, at + 1, at + 6, p) || !pays(p, 8)) return false;
  const at::Tensor &query = stack[at + 1].toTensor(), &out = stack[at + 4].toTensor();
  const at::Tensor& logsumexp = stack[at + 5].toTensor();
  if (grad_out.sizes() != query.sizes() || out.sizes() != query.sizes() ||
      grad_out.scalar_type() != query.scalar_type() || out.scalar_type() != query.scalar_type() ||
      (out.stride(3) != 1 && p.depth != 1) || logsumexp.scalar_type() != at::kFloat || logsumexp.dim() != 3 ||
      logsumexp.sizes() != query.sizes().slice(0, 3))
    return false;
  if (grad_out.stride(3) != 1 && p.depth != 1) grad_out = grad_out.contiguous();
  p.out = heads_of(out);
  take_logsumexp(p, logsumexp);
  const auto gradient = [&](int64_t heads, int64_t rows) {
    return at::empty({p.batch, rows, heads, p.depth}, query.options()).transpose(1, 2);
  };
  at::Tensor query_gradient = gradient(p.heads, p.queries), key_gradient = gradient(p.heads / p.group, p.keys),
             value_gradient = gradient(p.heads / p.group, p.keys);
  const Gradients gradients{heads_of(grad_out), heads_of(query_gradient, true), heads_of(key_gradient, true),
                            heads_of(value_gradient, true)};
  attention::backward(p, gradients, use_bfloat16(p));
  stack.resize(at);
  stack.emplace_back(std::move(query_gradient));
  stack.emplace_back(std::move(key_gradient));
  stack.emplace_back(std::move(value_gradient));
  return true;
}

}  // namespace sinter::torch_device
