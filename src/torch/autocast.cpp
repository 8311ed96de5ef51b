// Automatic mixed precision: which ops run in the lower precision and which in float32, exactly as CPU autocast has it.
//
// The lists are CPU autocast's, not those that PyTorch offers to other backends, which keep layer_norm, softmax, exp,
// pow and sum in float32. The test derives the CPU's from the running PyTorch and compares every op.
#include <ATen/Operators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "torch/device_state.h"
#include "torch/registration.h"

// ATen/autocast_mode.h has these, and ATen/ATen.h with them.
namespace at::autocast {
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API void set_autocast_dtype(at::DeviceType device_type, at::ScalarType dtype);
TORCH_API Tensor cached_cast(at::ScalarType to_type, const Tensor& arg, c10::DeviceType device_type);
}  // namespace at::autocast

namespace sinter::torch_device {
namespace {

using at::ScalarType;
using at::Tensor;

// ---------------------------------------------------------------- casting arguments

// Floating tensors of the device but doubles; the casts of leaves that want a gradient are kept until the outermost
// autocast ends.
Tensor cast(ScalarType to, const Tensor& tensor) { return at::autocast::cached_cast(to, tensor, kDeviceType); }
std::optional<Tensor> cast(ScalarType to, const std::optional<Tensor>& tensor) {
  return tensor ? std::optional(cast(to, *tensor)) : std::nullopt;
}
template <class List>
std::vector<Tensor> cast_all(ScalarType to, const List& list) {
  std::vector<Tensor> result;
  result.reserve(list.size());
  for (const Tensor& tensor : list) result.push_back(cast(to, tensor));
  return result;
}
std::vector<Tensor> cast(ScalarType to, const at::TensorList& list) { return cast_all(to, list); }
std::vector<Tensor> cast(ScalarType to, const at::ITensorListRef& list) { return cast_all(to, list); }
template <class T>
const T& cast(ScalarType, const T& other) {
  return other;
}

// ---------------------------------------------------------------- the widest of the arguments' types

void widen(ScalarType& widest, const Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType || !tensor.is_floating_point()) return;
  const ScalarType type = tensor.scalar_type();
  if (type == at::kDouble) return;
  if (widest == at::kFloat || type == at::kFloat)
    widest = at::kFloat;
  else
    TORCH_CHECK(type == widest, "Unexpected floating ScalarType in at::autocast::prioritize");
}
template <class List>
void widen_all(ScalarType& widest, const List& list) {
  for (const Tensor& tensor : list) widen(widest, tensor);
}
void widen(ScalarType& widest, const at::TensorList& list) { widen_all(widest, list); }
void widen(ScalarType& widest, const at::ITensorListRef& list) { widen_all(widest, list); }
template <class T>
void widen(ScalarType&, const T&) {}

// ---------------------------------------------------------------- policies

enum class Policy { kLowerPrecision, kFloat, kPromote };

template <Policy kPolicy, class Op, class Schema = typename Op::schema>
struct Autocast;

template <Policy kPolicy, class Op, class Ret, class... Args>
struct Autocast<kPolicy, Op, Ret(Args...)> {
  static Ret call(Args... args) {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::AutocastPrivateUse1);
    ScalarType to = at::kFloat;
    if constexpr (kPolicy != Policy::kFloat) to = at::autocast::get_autocast_dtype(kDeviceType);
    if constexpr (kPolicy == Policy::kPromote) (widen(to, args), ...);
    return Op::call(cast(to, args)...);
  }
};

template <Policy kPolicy, class... Ops>
void add(torch::Library& library) {
  const auto one = [&]<class Op>(std::type_identity<Op>) {
    const std::string overload = Op::overload_name;
    library.impl((Op::name + (overload.empty() ? "" : "." + overload)).c_str(),
                 TORCH_FN((Autocast<kPolicy, Op>::call)));
  };
  (one(std::type_identity<Ops>{}), ...);
}

namespace ops = at::_ops;

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  add<Policy::kLowerPrecision, ops::_addmm_activation, ops::_convolution_deprecated, ops::_native_multi_head_attention,
      ops::addbmm, ops::addmm, ops::baddbmm, ops::bmm, ops::conv1d, ops::conv1d_padding, ops::conv2d,
      ops::conv2d_padding, ops::conv3d, ops::conv3d_padding, ops::conv_tbc, ops::conv_transpose1d,
      ops::conv_transpose2d_input, ops::conv_transpose3d_input, ops::linalg_vecdot, ops::linear, ops::matmul,
      ops::mkldnn_rnn_layer, ops::mm, ops::prelu, ops::scaled_dot_product_attention>(m);
  add<Policy::kFloat, ops::_grid_sampler_2d_cpu_fallback, ops::_lu_with_info, ops::adaptive_avg_pool3d,
      ops::adaptive_max_pool3d, ops::avg_pool3d, ops::binary_cross_entropy, ops::binary_cross_entropy_with_logits,
      ops::cdist, ops::cholesky, ops::cholesky_inverse, ops::cholesky_solve, ops::cosine_embedding_loss,
      ops::cross_entropy_loss, ops::ctc_loss_IntList, ops::ctc_loss_Tensor, ops::fake_quantize_per_tensor_affine,
      ops::fft_fft, ops::fft_fft2, ops::fft_fftn, ops::fft_hfft, ops::fft_ifft, ops::fft_ifft2, ops::fft_ifftn,
      ops::fft_ihfft, ops::fft_irfft, ops::fft_irfft2, ops::fft_irfftn, ops::fft_rfft, ops::fft_rfft2, ops::fft_rfftn,
      ops::fractional_max_pool2d, ops::fractional_max_pool3d, ops::geqrf, ops::grid_sampler, ops::grid_sampler_2d,
      ops::grid_sampler_3d, ops::hinge_embedding_loss, ops::huber_loss, ops::inverse, ops::kl_div, ops::l1_loss,
      ops::linalg_cholesky, ops::linalg_cholesky_ex, ops::linalg_cond, ops::linalg_cond_p_str, ops::linalg_eig,
      ops::linalg_eigh, ops::linalg_eigvals, ops::linalg_eigvalsh, ops::linalg_householder_product, ops::linalg_inv,
      ops::linalg_inv_ex, ops::linalg_lstsq, ops::linalg_matrix_rank, ops::linalg_matrix_rank_atol_rtol_float,
      ops::linalg_matrix_rank_atol_rtol_tensor, ops::linalg_matrix_rank_tol_tensor, ops::linalg_qr, ops::linalg_solve,
      ops::linalg_svd, ops::linalg_svdvals, ops::linalg_tensorinv, ops::linalg_tensorsolve, ops::lu_solve,
      ops::margin_ranking_loss, ops::max_pool3d, ops::max_unpool2d, ops::max_unpool3d, ops::mse_loss,
      ops::multi_margin_loss, ops::multilabel_margin_loss, ops::multilabel_margin_loss_forward, ops::nanquantile,
      ops::nanquantile_scalar, ops::nll_loss, ops::nll_loss2d, ops::orgqr, ops::ormqr, ops::pinverse,
      ops::poisson_nll_loss, ops::polar, ops::prod, ops::prod_dim_int, ops::qr, ops::quantile, ops::quantile_scalar,
      ops::reflection_pad1d, ops::reflection_pad2d, ops::replication_pad1d, ops::replication_pad2d,
      ops::replication_pad3d, ops::smooth_l1_loss, ops::soft_margin_loss, ops::stft, ops::stft_center, ops::svd,
      ops::trace, ops::triangular_solve, ops::triplet_margin_loss, ops::view_as_complex>(m);
  add<Policy::kPromote, ops::cat, ops::index_copy, ops::stack>(m);
}

}  // namespace
}  // namespace sinter::torch_device
