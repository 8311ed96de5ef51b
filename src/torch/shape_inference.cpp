#include "torch/shape_inference.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "runtime/metrics.h"
#include "support/hash.h"
#include "support/log.h"
#include "torch/kernel_scope.h"
#include "torch/library_call.h"
#include "torch/memory.h"
#include "torch/random.h"

namespace sinter::torch_device {
namespace {

// Zeros that stand-in operands share, so that a trial touches little memory. Read-only: a kernel that writes where
// its schema says it does not must be found, not obeyed.
struct Zeros {
  void* address = nullptr;
  size_t bytes = 0;
};

c10::DataPtr zeros(size_t nbytes) {
  void* mapped = mmap(nullptr, nbytes + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK_WITH(OutOfMemoryError, mapped != MAP_FAILED, "sinter: cannot map ", nbytes, " bytes");
  auto* holder = new Zeros{mapped, nbytes + 64};
  return {mapped, holder,
          [](void* p) {
            auto* zeros = static_cast<Zeros*>(p);
            munmap(zeros->address, zeros->bytes);
            delete zeros;
          },
          c10::Device(c10::kCPU)};
}

// One CPU tensor per operand; operands that share memory with a written one share it here too.
std::vector<at::Tensor> stand_ins(const TorchCall& call, const Digest& digest) {
  const size_t count = call.operands.size();
  std::vector<at::Tensor> made(count);
  std::vector<size_t> root(count);
  for (size_t i = 0; i < count; ++i) {
    root[i] = i;
    for (size_t j = 0; j < i; ++j)
      if (digest.operands[j].tensor->unsafe_storage().unsafeGetStorageImpl() ==
          digest.operands[i].tensor->unsafe_storage().unsafeGetStorageImpl()) {
        root[i] = root[j];
        break;
      }
  }
  for (size_t r = 0; r < count; ++r) {
    if (root[r] != r) continue;
    bool written = false;
    int64_t low = INT64_MAX;
    for (size_t i = r; i < count; ++i)
      if (root[i] == r) {
        written = written || call.operands[i].access != graph::Access::kRead;
        low = std::min(low, digest.operands[i].tensor->storage_offset() *
                                static_cast<int64_t>(call.operands[i].meta.element_size));
      }
    // Only written memory has to be shared; the rest may each begin at zero.
    size_t bytes = 0;
    const auto start = [&](size_t i) -> size_t {
      return written ? static_cast<size_t>(digest.operands[i].tensor->storage_offset() *
                                               static_cast<int64_t>(call.operands[i].meta.element_size) -
                                           low)
                     : 0;
    };
    for (size_t i = r; i < count; ++i)
      if (root[i] == r) bytes = std::max(bytes, start(i) + call.operands[i].meta.extent_bytes());
    auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
        bytes ? zeros(bytes) : c10::DataPtr(nullptr, c10::Device(c10::kCPU)), c10::GetCPUAllocator(), true);
    for (size_t i = r; i < count; ++i) {
      if (root[i] != r) continue;
      if (!call.same_object.empty() && call.same_object[i] != i) {
        made[i] = made[call.same_object[i]];
        continue;
      }
      const graph::TensorMeta& meta = call.operands[i].meta;
      at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
          c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
          c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(meta.dtype)));
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
          meta.sizes, meta.strides, static_cast<int64_t>(start(i) / meta.element_size));
      if (meta.conj) tensor._set_conj(true);
      if (meta.neg) tensor._set_neg(true);
      made[i] = std::move(tensor);
    }
  }
  return made;
}

class NoWarnings final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}  // the real run says it, where the user expects it
};

bool add_result(const at::Tensor& tensor, c10::ArrayRef<at::Tensor> operands,
                c10::ArrayRef<at::Tensor> earlier, bool check_memory, TorchCall& call) {
  if (!tensor.defined()) {
    graph::TensorMeta none;
    none.defined = false;
    none.sizes.clear();
    call.results.push_back(none);
    return true;
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) return false;
  if (check_memory) {
    if (tensor.storage_offset() != 0) return false;
    for (const at::Tensor& operand : operands)
      if (operand.storage().is_alias_of(tensor.storage())) return false;
    for (const at::Tensor& other : earlier)
      if (other.defined() && other.storage().is_alias_of(tensor.storage())) return false;
  }
  call.results.push_back(meta_of(tensor));
  return true;
}

bool try_on_stand_ins(const OpInfo& info, const Digest& digest, TorchCall& call) {
  if (log::enabled(log::Level::kDebug)) log::debug("shape trial: " + describe(call));
  metrics().add(Counter::kShapeProbes);
  NoWarnings quiet;
  c10::WarningUtils::WarningHandlerGuard warnings(&quiet);
  ThreadPolicy threads;
  try {
    c10::impl::ForceDispatchKeyGuard keys(kernel_dispatch_keys());
    std::vector<at::Tensor> operands = stand_ins(call, digest);
    std::vector<graph::TensorMeta> before;
    for (const at::Tensor& operand : operands) before.push_back(meta_of(operand));
    torch::jit::Stack stack;
    std::vector<graph::Scalar> scalars(digest.scalars.begin(), digest.scalars.end());
    scalars.resize(call.scalars.size());
    push_arguments(call, scalars, [&](uint32_t k) { return operands[k]; }, stack);
    // Dropout has no generator argument: PyTorch's kernel would draw from the CPU's default one.
    if (info.name != "aten::native_dropout" || !run_random(call, scalars, stack))
      call.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    bool resized = false;
    call.resized_to.assign(operands.size(), [] { graph::TensorMeta m; m.defined = false; return m; }());
    for (size_t k = 0; k < operands.size(); ++k) {
      const graph::TensorMeta after = meta_of(operands[k]);
      if (after == before[k]) continue;
      if (call.operands[k].access == graph::Access::kRead || operands[k].storage_offset() != 0) return false;
      if (after.conj != before[k].conj || after.neg != before[k].neg) return false;  // only the real run sets those
      call.resized_to[k] = after;
      resized = true;
    }
    if (!describe_results(info, stack, operands, /*check_memory=*/true, call)) {
      call.mode = TorchCall::Mode::kRunNow;
      return true;
    }
    if (resized) call.mode = TorchCall::Mode::kResize;
    return true;
  } catch (...) {
    // Zeros may be bad input where the real values are good; the real run decides, and raises in PyTorch's words.
    call.results.clear();
    call.returns.clear();
    call.resized_to.clear();
    return false;
  }
}

// Whether the kernel runs on stand-ins of the call's own sizes; what is known of the results stays as it is.
bool full_trial_passes(const OpInfo& info, const Digest& digest, TorchCall& call) {
  std::vector<graph::TensorMeta> results = call.results;
  std::vector<ReturnSlot> returns = call.returns;
  const bool passed = try_on_stand_ins(info, digest, call) && call.mode == TorchCall::Mode::kRecord;
  call.mode = TorchCall::Mode::kRecord;
  call.results = std::move(results);
  call.returns = std::move(returns);
  call.resized_to.clear();
  return passed;
}

// Meta functions do not know which types the CPU kernel takes. The first call of an op with given types is tried on
// operands of one element, and only an answer "not implemented for" counts.
bool types_implemented(const OpInfo& info, const Digest& digest, TorchCall& call) {
  static std::mutex mutex;
  static auto* known = new std::unordered_set<uint64_t>;
  Hasher types;
  types.add(info.id);
  for (const graph::Operand& operand : call.operands) types.add(static_cast<uint64_t>(operand.meta.dtype));
  for (graph::ScalarKind kind : call.scalars) types.add(static_cast<uint64_t>(kind));
  types.add(std::string_view(call.attributes));  // names that only the kernel checks ("tanh")
  {
    const std::lock_guard lock(mutex);
    if (!known->insert(types.finish()).second) return true;
  }
  bool implemented = true;
  try {
    NoWarnings quiet;
    c10::WarningUtils::WarningHandlerGuard warnings(&quiet);
    ThreadPolicy threads;
    c10::impl::ForceDispatchKeyGuard keys(kernel_dispatch_keys());
    torch::jit::Stack stack;
    std::vector<graph::Scalar> scalars(digest.scalars.begin(), digest.scalars.end());
    scalars.resize(call.scalars.size());
    push_arguments(
        call, scalars,
        [&](uint32_t k) {
          const graph::TensorMeta& meta = call.operands[k].meta;
          return at::zeros(std::vector<int64_t>(meta.sizes.size(), 1),
                           at::TensorOptions().dtype(static_cast<c10::ScalarType>(meta.dtype)).device(at::kCPU));
        },
        stack);
    call.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const std::exception& error) {
    // One element may be too few for the op (a pooling window): then the sizes at hand decide.
    implemented = std::string_view(error.what()).find("not implemented for") == std::string_view::npos &&
                  full_trial_passes(info, digest, call);
  }
  if (!implemented) {
    const std::lock_guard lock(mutex);
    known->erase(types.finish());
  }
  return implemented;
}

bool run_meta(const OpInfo& info, const c10::KernelFunction& function, const torch::jit::Stack& stack,
              TorchCall& call) {
  try {
    c10::impl::ForceDispatchKeyGuard keys(kernel_dispatch_keys());
    torch::jit::Stack copy(stack.end() - static_cast<ptrdiff_t>(info.arguments.size()), stack.end());
    function.callBoxed(info.handle, c10::DispatchKeySet(c10::DispatchKey::Meta), &copy);
    return describe_results(info, copy, {}, /*check_memory=*/false, call);
  } catch (const c10::Error&) {
    // Wrong arguments, or a meta function that cannot cope with device tensors: the trial tells.
    call.results.clear();
    call.returns.clear();
    return false;
  }
}

bool apply_rule(const OpInfo& info, ShapeRule rule, const torch::jit::Stack& stack, const Digest& digest,
                TorchCall& call) {
  std::vector<graph::TensorMeta> results;
  const auto arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - info.arguments.size());
  if (!rule({info, arguments, digest}, results)) return false;
  call.results = std::move(results);
  uint32_t next = 0;
  for (const ReturnInfo& ret : info.returns) {
    if (ret.alias_of >= 0) {
      call.returns.push_back({ReturnSlot::Kind::kArgument, static_cast<uint32_t>(ret.alias_of), 0});
    } else if (ret.tensor_list) {  // such ops return one list
      call.returns.push_back({ReturnSlot::Kind::kList, next, static_cast<uint32_t>(call.results.size())});
      next = static_cast<uint32_t>(call.results.size());
    } else {
      call.returns.push_back({ReturnSlot::Kind::kResult, next++, 1});
    }
  }
  return next == call.results.size();
}

// An in-place op is its functional form whose result fits the argument; anything out of the ordinary is tried.
bool in_place_by_functional(const OpInfo& info, const torch::jit::Stack& stack, const Digest& digest,
                            TorchCall& call) {
  if (digest.shares_memory || info.returns.size() != 1 || info.returns[0].alias_of != 0) return false;
  const std::string& op = info.handle.operator_name().name;
  if (op.back() != '_') return false;
  const std::string& overload = info.handle.operator_name().overload_name;
  const c10::KernelFunction* function =
      meta_function(op.substr(0, op.size() - 1) + (overload.empty() ? "" : "." + overload));
  if (!function) return false;
  const auto arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - info.arguments.size());
  const at::Tensor& self = arguments[0].toTensor();
  if (at::has_internal_overlap(self) != at::MemOverlap::No) return false;
  try {
    c10::impl::ForceDispatchKeyGuard keys(kernel_dispatch_keys());
    torch::jit::Stack copy(arguments.begin(), arguments.end());
    function->callBoxed(info.handle, c10::DispatchKeySet(c10::DispatchKey::Meta), &copy);
    const at::Tensor result = copy[0].toTensor();
    if (result.sizes() != self.sizes() || !c10::canCast(result.scalar_type(), self.scalar_type())) return false;
  } catch (const c10::Error&) {
    return false;
  }
  call.returns.push_back({ReturnSlot::Kind::kArgument, 0, 0});
  return types_implemented(info, digest, call);
}

// On the CPU, operands of other types than the common one are converted before strides are decided, and the copy of one
// with holes or overlaps has none: what the meta function sees is not what the kernel will.
bool strides_follow_converted_copies(const TorchCall& call) {
  bool mixed = false, holes = false;
  const graph::TensorMeta* first = nullptr;
  for (const graph::Operand& operand : call.operands) {
    if (operand.meta.sizes.empty()) continue;
    if (!first) first = &operand.meta;
    mixed = mixed || operand.meta.dtype != first->dtype;
    holes = holes || !operand.meta.dense();
  }
  return mixed && holes;
}

}  // namespace

bool describe_results(const OpInfo& info, c10::ArrayRef<c10::IValue> outputs,
                      c10::ArrayRef<at::Tensor> operands, bool check_memory, TorchCall& call) {
  std::vector<at::Tensor> earlier;
  for (size_t i = 0; i < info.returns.size(); ++i) {
    const ReturnInfo& ret = info.returns[i];
    const c10::IValue& value = outputs[i];
    if (ret.alias_of >= 0) {
      call.returns.push_back({ReturnSlot::Kind::kArgument, static_cast<uint32_t>(ret.alias_of), 0});
      continue;
    }
    const auto first = static_cast<uint32_t>(call.results.size());
    if (value.isTensor()) {
      if (!add_result(value.toTensor(), operands, earlier, check_memory, call)) return false;
      earlier.push_back(value.toTensor());
      call.returns.push_back({ReturnSlot::Kind::kResult, first, 1});
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (!add_result(tensor, operands, earlier, check_memory, call)) return false;
        earlier.push_back(tensor);
      }
      call.returns.push_back({ReturnSlot::Kind::kList, first, static_cast<uint32_t>(call.results.size()) - first});
    } else {
      return false;
    }
  }
  return true;
}

bool infer(const OpInfo& info, const torch::jit::Stack& stack, const Digest& digest, TorchCall& call) {
  if (call.random && infer_random(info, stack, call)) return true;
  // An op that only overwrites its arguments returns nothing new, but its errors must be seen here: it is tried.
  if (!info.writes_any && !info.row.has(ops::kMetaIncomplete) && !strides_follow_converted_copies(call)) {
    if (const c10::KernelFunction* function = meta_function(info.name))
      if (run_meta(info, *function, stack, call)) {
        if (types_implemented(info, digest, call)) return true;
        return false;
      }
  }
  if (info.writes_any && in_place_by_functional(info, stack, digest, call)) return true;
  if (ShapeRule rule = shape_rule(info)) {
    call.results.clear();
    call.returns.clear();
    if (apply_rule(info, rule, stack, digest, call)) return true;
  }
  call.results.clear();
  call.returns.clear();
  if (info.row.has(ops::kNoShapeProbe)) return false;
  return try_on_stand_ins(info, digest, call);
}

}  // namespace sinter::torch_device
