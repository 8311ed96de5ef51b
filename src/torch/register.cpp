// Fills the dispatcher when the library is loaded.
#include <c10/core/DeviceType.h>
#include <pthread.h>
#include <torch/library.h>

#include <optional>
#include <unordered_set>

#include "engine/native/native_engine.h"
#include "engine/reference/reference_engine.h"
#include "torch/device_state.h"
#include "torch/kernel_scope.h"
#include "torch/library_call.h"
#include "torch/recorder.h"
#include "torch/registration.h"
#include "runtime/caching_allocator.h"
#include "support/flags.h"

namespace sinter::torch_device {
namespace {

using c10::DispatchKey;

// Ops left to PyTorch's composite kernels: they make views or factories of their own, or are copies that reach us
// through _copy_from.
const std::unordered_set<std::string>& left_to_composites() {
  static const std::unordered_set<std::string> names = {
      "aten::copy_",          "aten::_to_copy",          "aten::clone",           "aten::empty_like",
      "aten::lift",           "aten::lift_fresh",        "aten::lift_fresh_copy", "aten::is_pinned",
      "aten::_pin_memory",    "aten::new_empty",         "aten::new_empty_strided", "aten::new_full",
      "aten::new_zeros",      "aten::new_ones",          "aten::full_like",       "aten::zeros_like",
      "aten::ones_like",      "aten::rand_like",         "aten::randn_like",      "aten::randint_like",
      "aten::resize",         "aten::resize_as_",        "aten::_unsafe_view",    "aten::unsafe_split",
      "aten::unsafe_split_with_sizes", "aten::unsafe_chunk", "aten::_has_same_storage_numel",
      "aten::_resize_output", "aten::_resize_output_",   "aten::set_data",        "aten::_fw_primal",
      "aten::_make_dual",     "aten::_to_dense",         "aten::to_dense",        "aten::sparse_dim",
      "aten::dense_dim",      "aten::_lazy_clone",       "aten::_conj_physical",  "aten::_assert_tensor_metadata",
      // They call ops that autocast casts, so eager's autocast reaches into them.
      "aten::_trilinear",     "aten::linalg_pinv",
  };
  return names;
}

// These three have a composite kernel that autograd would differentiate through and a CPU kernel of their own, which
// eager uses.
const std::unordered_set<std::string>& composites_with_cpu_kernel() {
  static const std::unordered_set<std::string> names = {"aten::silu_backward", "aten::mish_backward",
                                                        "aten::native_channel_shuffle"};
  return names;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& ret : schema.returns())
    if (ret.alias_info() && !ret.alias_info()->isWrite()) return true;
  return false;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const OpInfo& info = op_info(op);
  if (returns_view(op.schema()) && info.aten)
    TORCH_CHECK_NOT_IMPLEMENTED(false, "sinter: the view ", info.name, " is not supported on this device");
  call_op(info, *stack);
}

void unsupported_layout(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "sinter: ", op.schema().name(),
                              ": sparse and quantized tensors are not supported on this device; it holds "
                              "strided tensors. Keep them on the CPU.");
}

// Libraries must outlive the process.
torch::Library& aten_library() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  return *library;
}

torch::Library& autograd_library() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kAutogradKey, __FILE__, __LINE__);
  return *library;
}

void around_fork() {
  // Handlers run in reverse order before the fork: the worker is waited for while it can still allocate.
  caching_allocator();
  pthread_atfork([] { stream().before_fork(); }, [] { stream().after_fork(false); },
                 [] {
                   stream().after_fork(true);
                   note_forked_child();
                 });
}

struct Registration {
  Registration() {
    c10::register_privateuse1_backend("sinter");
    register_device();
    torch::Library& library = aten_library();
    register_views(library);
    register_copies(library);
    register_rnn(library);
    register_rnn(autograd_library());
    register_recorder(library);
    register_attention();
    register_distributed();
    install_kernel_allocator();
    stream();
    around_fork();
  }
};

const Registration registration;

// The engine that SINTER_ENGINE names. Looked up by the first graph: the stream is made while the library loads, before
// flags have been read.
class ChosenEngine final : public runtime::Engine {
 public:
  std::string_view name() const override { return engine().name(); }
  bool exact() const override { return engine().exact(); }
  Result<std::unique_ptr<runtime::Executable>> compile(graph::Graph graph, plan::Plan plan) override {
    return engine().compile(std::move(graph), std::move(plan));
  }

 private:
  static runtime::Engine& engine() {
    static runtime::Engine& chosen = *(flags::engine() == "native" ? engine::make_native_engine()
                                                                   : engine::make_reference_engine()).release();
    return chosen;
  }
};

}  // namespace

runtime::Stream& stream() {
  static auto* made = new runtime::Stream(*new TorchHost, std::make_unique<ChosenEngine>());
  return *made;
}

void register_recorder(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(kKey)) continue;
    if (left_to_composites().count(name.name)) continue;
    if (op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
        !composites_with_cpu_kernel().count(name.name))
      continue;
    const bool explicit_composite =
        op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
    if (!explicit_composite && !op->hasKernelForDispatchKey(DispatchKey::CPU)) continue;
    // These end in the in-place ops that draw.
    if (explicit_composite && op->hasTag(at::Tag::nondeterministic_seeded)) continue;
    if (returns_view(op->schema()) || op->hasTag(at::Tag::inplace_view)) continue;
    const OpInfo& info = op_info(*op);
    if (!info.has_tensor_argument && explicit_composite) continue;  // a factory: it ends in empty and fill_
    std::string local = name.name.substr(6);
    if (!name.overload_name.empty()) local += "." + name.overload_name;
    library.impl(local.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RecordingKernel>(info)));
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&unsupported_layout>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&unsupported_layout>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&unsupported_layout>());
}

}  // namespace sinter::torch_device
