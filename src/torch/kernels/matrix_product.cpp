// 32-bit matrix products through oneDNN where it is faster than MKL.
//
// PyTorch sends them to MKL. On Intel's processors nothing is faster; on others MKL reaches about three quarters of
// what oneDNN's kernels do, but for operands that oneDNN has to transpose first, and for small ones, where its setup
// (about 5 us) shows. `python bench/products.py` prints the table this rule was read from.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstring>

#include "torch/kernels/kernel_table.h"

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

constexpr int64_t kLeastWork = 32 << 20;  // multiplications

}  // namespace

bool matrix_product(const TorchCall&, torch::jit::Stack& stack) {
  static const bool use = !is_intel();
  if (!use) return false;
  const at::Tensor& a = stack[stack.size() - 2].toTensor();
  const at::Tensor& b = stack[stack.size() - 1].toTensor();
  if (a.scalar_type() != at::kFloat || a.size(0) * a.size(1) * b.size(1) < kLeastWork) return false;
  // Other strides it would transpose, or send to plain loops.
  if (!a.is_contiguous() || !(b.is_contiguous() || b.t().is_contiguous())) return false;
  const at::Context& context = at::globalContext();
  if (!context.userEnabledMkldnn() || context.float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST)
    return false;
  // The op takes weights as [out, in], transposed or not.
  static const auto linear = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                                 .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                                   c10::string_view, c10::List<std::optional<at::Scalar>>,
                                                   std::optional<c10::string_view>)>();
  at::Tensor product = linear.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), a, b.t(), std::nullopt, "none",
                                         c10::List<std::optional<at::Scalar>>(), "");
  stack.resize(stack.size() - 2);
  stack.emplace_back(std::move(product));
  return true;
}

}  // namespace sinter::torch_device
