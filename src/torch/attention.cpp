// Which attention kernel scaled_dot_product_attention takes: the one eager takes on the CPU.
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include "torch/registration.h"

namespace at::native {
namespace {

int64_t choose_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& mask, double dropout, bool causal,
                         std::optional<double> scale, bool grouped_query) {
  return _fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, grouped_query);
}

}  // namespace

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose_attention)

}  // namespace at::native

namespace sinter::torch_device {
void register_attention() {}
}  // namespace sinter::torch_device
