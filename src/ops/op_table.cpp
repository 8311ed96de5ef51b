#include "ops/op_table.h"

#include <string>
#include <unordered_map>

namespace sinter::ops {
namespace {

constexpr auto kLib = OpClass::kLibrary;
constexpr auto kPoint = OpClass::kPointwise;
constexpr auto kReduce = OpClass::kReduction;
constexpr auto kContract = OpClass::kContraction;
constexpr auto kRand = OpClass::kRandom;

// A function's static: the device is registered by a static initialiser, which may run before this file's.
const std::vector<Op>& table() {
  static const std::vector<Op> rows = {
    // ---- results that depend on contents
    {"aten::nonzero", kLib, kDataDependent},
    {"aten::nonzero_numpy", kLib, kDataDependent},
    {"aten::argwhere", kLib, kDataDependent},
    {"aten::masked_select", kLib, kDataDependent},
    {"aten::_unique", kLib, kDataDependent},
    {"aten::_unique2", kLib, kDataDependent},
    {"aten::unique_dim", kLib, kDataDependent},
    {"aten::unique_consecutive", kLib, kDataDependent},
    {"aten::unique_dim_consecutive", kLib, kDataDependent},
    {"aten::bincount", kLib, kDataDependent},
    {"aten::repeat_interleave", kLib, kDataDependent},
    {"aten::equal", kLib, kDataDependent},
    {"aten::is_nonzero", kLib, kDataDependent},
    {"aten::_local_scalar_dense", kLib, kDataDependent},
    {"aten::_assert_async", kLib, kDataDependent},
    {"aten::_embedding_bag", kLib, kDataDependent},
    {"aten::_embedding_bag_forward_only", kLib, kDataDependent},
    {"aten::_ctc_loss", kLib, kDataDependent | kTakesHostTensors},
    {"aten::_ctc_loss_backward", kLib, kDataDependent | kTakesHostTensors},
    {"aten::_linalg_check_errors", kLib, kDataDependent},
    {"aten::_linalg_eigvals", kLib, kDataDependent},
    {"aten::linalg_lstsq", kLib, kDataDependent},
    {"aten::_histogramdd_bin_edges", kLib, kDataDependent},
    {"aten::histogram", kLib, kDataDependent},
    {"aten::allclose", kLib, kDataDependent},
    {"aten::_jagged_to_padded_dense_forward", kLib, kDataDependent},
    {"aten::segment_reduce", kLib, kDataDependent},
    {"aten::_segment_reduce_backward", kLib, kDataDependent},
    {"aten::tensor_split", kLib, kDataDependent | kNeedsHostTensors},
    {"aten::_pack_padded_sequence", kLib, kDataDependent | kNeedsHostTensors | kReturnsHostTensors},
    {"aten::_pad_packed_sequence", kLib, kDataDependent | kNeedsHostTensors | kReturnsHostTensors},
    {"aten::_pack_padded_sequence_backward", kLib, kDataDependent | kNeedsHostTensors},
    {"aten::index", kLib, kDataDependentWithMask | kTakesHostTensors | kChecksContents},
    {"aten::_unsafe_index", kLib, kDataDependentWithMask | kTakesHostTensors | kChecksContents},
    {"aten::index_put", kLib, kTakesHostTensors | kChecksContents},
    {"aten::index_put_", kLib, kTakesHostTensors | kChecksContents},
    {"aten::_index_put_impl_", kLib, kTakesHostTensors | kChecksContents},
    {"aten::_unsafe_index_put", kLib, kTakesHostTensors | kChecksContents},
    // ---- scalars that fix a shape
    {"aten::arange", kLib, kStaticScalars},
    {"aten::range", kLib, kStaticScalars},
    {"aten::linspace", kLib, kStaticScalars},
    {"aten::logspace", kLib, kStaticScalars},
    // ---- writes that the schema does not mark (running statistics)
    {"aten::native_batch_norm", kLib, kNone, "running_mean,running_var"},
    {"aten::batch_norm_update_stats", kLib, kNone, "running_mean,running_var"},
    {"aten::batch_norm_gather_stats", kLib, kNone, "running_mean,running_var"},
    {"aten::batch_norm_gather_stats_with_counts", kLib, kNone, "running_mean,running_var"},
    // ---- kernels that look at the calling thread
    {"aten::mkldnn_rnn_layer", kLib, kReadsGradMode},
    // ---- random numbers
    {"aten::normal_", kRand, kRandom},
    {"aten::uniform_", kRand, kRandom},
    {"aten::random_", kRand, kRandom},
    {"aten::bernoulli_", kRand, kRandom},
    {"aten::bernoulli", kRand, kRandom},
    {"aten::exponential_", kRand, kRandom},
    {"aten::geometric_", kRand, kRandom},
    {"aten::cauchy_", kRand, kRandom},
    {"aten::log_normal_", kRand, kRandom},
    {"aten::native_dropout", kRand, kRandom},
    {"aten::normal", kRand, kRandom},
    {"aten::randperm", kLib, kRandom | kStaticScalars},
    {"aten::multinomial", kLib, kRandom | kChecksContents},
    {"aten::poisson", kLib, kRandom},
    {"aten::binomial", kLib, kRandom},
    {"aten::_standard_gamma", kLib, kRandom},
    {"aten::_sample_dirichlet", kLib, kRandom},
    {"aten::rrelu_with_noise", kLib, kRandom},
    {"aten::rrelu_with_noise_", kLib, kRandom},
    {"aten::linalg_lu_solve", kLib, kMetaIncomplete},
    // ---- raises on contents
    {"aten::embedding", kLib, kChecksContents},
    {"aten::gather", kLib, kChecksContents},
    {"aten::scatter", kLib, kChecksContents},
    {"aten::index_select", kLib, kChecksContents},
    {"aten::nll_loss_forward", kLib, kChecksContents},
    {"aten::nll_loss2d_forward", kLib, kChecksContents},
    // ---- what dead-code elimination may drop, and fusion will take
    {"aten::add", kPoint},
    {"aten::sub", kPoint},
    {"aten::mul", kPoint},
    {"aten::div", kPoint},
    {"aten::neg", kPoint},
    {"aten::abs", kPoint},
    {"aten::exp", kPoint},
    {"aten::log", kPoint},
    {"aten::sqrt", kPoint},
    {"aten::rsqrt", kPoint},
    {"aten::reciprocal", kPoint},
    {"aten::pow", kPoint},
    {"aten::tanh", kPoint},
    {"aten::sigmoid", kPoint},
    {"aten::relu", kPoint},
    {"aten::gelu", kPoint},
    {"aten::silu", kPoint},
    {"aten::threshold_backward", kPoint},
    {"aten::gelu_backward", kPoint},
    {"aten::silu_backward", kPoint},
    {"aten::where", kPoint},
    {"aten::eq", kPoint},
    {"aten::ne", kPoint},
    {"aten::lt", kPoint},
    {"aten::le", kPoint},
    {"aten::gt", kPoint},
    {"aten::ge", kPoint},
    {"aten::maximum", kPoint},
    {"aten::minimum", kPoint},
    {"aten::clamp", kPoint},
    {"aten::sin", kPoint},
    {"aten::cos", kPoint},
    {"aten::erf", kPoint},
    {"aten::sum", kReduce},
    {"aten::mean", kReduce},
    {"aten::amax", kReduce},
    {"aten::amin", kReduce},
    {"aten::mm", kContract},
    {"aten::addmm", kContract},
    {"aten::bmm", kContract},
    {"aten::baddbmm", kContract},
    {"aten::convolution", kContract},
    {"aten::convolution_backward", kContract},
};
  return rows;
}

constexpr Op kDefault = {"", kLib, kNone};

const std::unordered_map<std::string_view, const Op*>& index() {
  static const auto* map = [] {
    auto* built = new std::unordered_map<std::string_view, const Op*>;
    for (const Op& op : table()) built->emplace(op.name, &op);
    return built;
  }();
  return *map;
}

}  // namespace

const Op& find_op(std::string_view qualified_name, std::string_view overload) {
  const auto& map = index();
  if (!overload.empty()) {
    std::string full(qualified_name);
    full += '.';
    full += overload;
    if (auto it = map.find(full); it != map.end()) return *it->second;
  }
  if (auto it = map.find(qualified_name); it != map.end()) return *it->second;
  return kDefault;
}

const std::vector<Op>& op_table() { return table(); }

}  // namespace sinter::ops
