#include "torch/recorder.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <span>
#include <unordered_map>

#include "runtime/metrics.h"
#include "runtime/timeline.h"
#include "support/flags.h"
#include "torch/call_cache.h"
#include "torch/call_key.h"
#include "torch/copy.h"
#include "torch/decompose.h"
#include "torch/device_state.h"
#include "torch/kernel_scope.h"
#include "torch/kernels/kernel_table.h"
#include "torch/library_call.h"
#include "torch/lines.h"
#include "torch/memory.h"
#include "torch/random.h"
#include "torch/shape_inference.h"
#include "torch/torch_call.h"

namespace sinter::torch_device {
namespace {

using runtime::Stream;

CallCache& call_cache() {
  static auto* cache = new CallCache;
  return *cache;
}

uint64_t next_call_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

void fill_random(const OpInfo& info, TorchCall& call) {
  if (!info.row.has(ops::kRandom)) return;
  call.random = true;
  call.seed_scalar = static_cast<uint32_t>(call.scalars.size());
  call.scalars.push_back(graph::ScalarKind::kInt);
  call.scalars.push_back(graph::ScalarKind::kInt);
  const auto& schema = info.handle.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    const auto& type = schema[i].type();
    const bool generator = type->kind() == c10::TypeKind::GeneratorType ||
                           (type->kind() == c10::TypeKind::OptionalType &&
                            type->containedType(0)->kind() == c10::TypeKind::GeneratorType);
    if (generator) call.arguments[i].kind = ArgumentSlot::Kind::kGenerator;
  }
}

std::vector<uint32_t> same_objects(const Digest& digest) {
  std::unordered_map<const c10::TensorImpl*, uint32_t> first;
  std::vector<uint32_t> same(digest.operands.size());
  bool any = false;
  for (uint32_t k = 0; k < same.size(); ++k) {
    same[k] = first.emplace(digest.operands[k].tensor, k).first->second;
    any = any || same[k] != k;
  }
  if (!any) same.clear();
  return same;
}

// Eager's kernels for lists of tensors count a change of each; the schema-driven layer above us does so for single
// tensors only.
void bump_versions_of_lists(const OpInfo& info, const torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  for (size_t i = 0; i < info.arguments.size(); ++i)
    if (info.arguments[i].writes && stack[base + i].isTensorList())
      for (const c10::IValue& element : stack[base + i].toListRef()) {
        c10::TensorImpl* tensor = element.unsafeToTensorImpl();
        if (!tensor->is_inference()) tensor->bump_version();
      }
}

Ref<TorchCall> make_call(const OpInfo& info, const torch::jit::Stack& stack, Digest& digest) {
  metrics().add(Counter::kShapeCacheMisses);
  Ref<TorchCall> call = make_ref<TorchCall>(info.handle);
  call->op = &info.row;
  call->name = info.name;
  call->id = next_call_id();
  call->own_kernel = own_kernel(info.name);
  call->decompose = decomposition(info.name);
  fill_call(info, stack, *call);
  fill_random(info, *call);
  call->grad_mode = at::GradMode::is_enabled();
  if (info.writes_any) call->same_object = same_objects(digest);
  if (!infer(info, stack, digest, *call)) return nullptr;
  if (call->random) call->draws = draws_of(*call);
  return call_cache().insert(digest.key, call);
}

// Gives written operands the sizes that the op will give them, before it is recorded. Memory that must grow for it
// keeps what it holds: other tensors may look at it.
void apply_resizes(const TorchCall& call, const Digest& digest) {
  for (size_t k = 0; k < call.operands.size(); ++k) {
    const graph::TensorMeta& to = call.resized_to[k];
    if (!to.defined) continue;
    const auto tensor = at::Tensor(
        c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(digest.operands[k].tensor));
    resize_tensor(tensor, to.sizes, to.strides);
  }
}

struct Results {
  c10::SmallVector<at::Tensor, 4> tensors;  // one per result, undefined where there is none
  c10::SmallVector<runtime::Buffer*, 4> buffers;
};

void make_results(const TorchCall& call, Results& out) {
  for (const graph::TensorMeta& meta : call.results) {
    if (!meta.defined) {
      out.tensors.emplace_back();
      continue;
    }
    out.tensors.push_back(make_tensor(meta));
    out.buffers.push_back(&buffer_of(out.tensors.back()));
  }
}

void replace_arguments(const OpInfo& info, const TorchCall& call, Results& results,
                       torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  if (call.returns.size() == 1 && call.returns[0].kind == ReturnSlot::Kind::kResult && base + 1 <= stack.size()) {
    stack.resize(base + 1);
    stack[base] = std::move(results.tensors[0]);
    return;
  }
  c10::SmallVector<c10::IValue, 4> returns;
  for (const ReturnSlot& slot : call.returns) switch (slot.kind) {
      case ReturnSlot::Kind::kArgument:
        returns.push_back(stack[base + slot.index]);
        break;
      case ReturnSlot::Kind::kResult:
        returns.emplace_back(std::move(results.tensors[slot.index]));
        break;
      case ReturnSlot::Kind::kList: {
        c10::List<at::Tensor> list;
        list.reserve(slot.count);
        for (uint32_t k = 0; k < slot.count; ++k) list.push_back(std::move(results.tensors[slot.index + k]));
        returns.emplace_back(std::move(list));
        break;
      }
    }
  stack.resize(base);
  for (c10::IValue& value : returns) stack.push_back(std::move(value));
}

void end_graph_if_settings_changed(uint64_t settings) {
  if (stream().settings_differ(settings)) check(stream().end_graph("settings changed"));
}

bool has_device_result(const OpInfo& info) { return info.recordable && info.has_tensor_argument; }

}  // namespace

void after_record(Stream::After after, bool exported) {
  if (flags::trace_lines()) stream().note_line(line_of_recorded_op());
  if (runtime::timeline().recording()) stream().note_event(runtime::Timeline::event());
  if (after == Stream::After::kCutGraph)
    check(stream().cut_graph());
  else if (after == Stream::After::kEndGraph || exported)
    check(stream().synchronize(exported ? "exported memory" : "SINTER_BLOCKING"));
}

void call_op(const OpInfo& info, torch::jit::Stack& stack) {
  if (info.data_dependent) return run_now(info, stack, "result depends on contents");
  if (!info.aten) return run_now(info, stack, "operator of another library");
  if (!has_device_result(info)) return run_now(info, stack, "not a function of tensors");

  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kTimedOneIn = 16;  // reading the clock each time would cost a twentieth of what it measures
  static thread_local uint64_t calls = 0;
  const bool timed = ++calls % kTimedOneIn == 0;
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point{};
  Clock::duration missed{};

  Digest digest;
  torch_device::digest(info, stack, digest);
  if (digest.unkeyable) return run_now(info, stack, "argument without a value");
  if (digest.operands.empty() && !info.row.has(ops::kRandom))
    return run_now(info, stack, "no device tensor among the arguments");
  if (digest.has_mask_index && info.row.has(ops::kDataDependentWithMask))
    return run_now(info, stack, "index by mask");

  if (info.row.has(ops::kReadsGradMode)) digest.key.push_back(at::GradMode::is_enabled());

  Ref<TorchCall> call = call_cache().find(digest.key);
  if (call)
    metrics().add(Counter::kShapeCacheHits);
  else {
    // Rare and long, so timed each time and kept out of what stands for others.
    const Clock::time_point asked = Clock::now();
    call = make_call(info, stack, digest);
    missed = Clock::now() - asked;
    metrics().add(Timer::kRecord, missed);
    if (!call) return run_now(info, stack, "shape not known without running");
  }
  if (call->mode == TorchCall::Mode::kRunNow) return run_now(info, stack, "result shares memory");
  if (call->mode == TorchCall::Mode::kResize) {
    apply_resizes(*call, digest);
    return call_op(info, stack);
  }

  if (call->decompose && call->decompose(*call, stack)) return;

  if (call->random) check_random_scalars(*call, std::span(digest.scalars.data(), digest.scalars.size()));
  Results results;
  make_results(*call, results);
  if (call->random) {
    const RandomRange range = reserve(digest.generator, call->draws);
    digest.scalars.push_back({{range.seed, 0}});
    digest.scalars.push_back({{range.offset, 0}});
  }
  c10::SmallVector<runtime::Buffer*, 16> buffers;
  c10::SmallVector<int64_t, 16> offsets;
  bool exported = false;
  for (const DigestedOperand& operand : digest.operands) {
    c10::StorageImpl* storage = operand.tensor->unsafe_storage().unsafeGetStorageImpl();
    runtime::Buffer& buffer = buffer_of(storage);
    buffers.push_back(&buffer);
    offsets.push_back(operand.tensor->storage_offset());
    exported = exported || buffer.exported.load(std::memory_order_relaxed) ||
               buffer.lent.load(std::memory_order_relaxed) != 0;
    arm(storage);
  }
  if (info.counts_list_writes) bump_versions_of_lists(info, stack);
  const uint64_t settings = current_settings();
  end_graph_if_settings_changed(settings);
  const Stream::After after = stream().record(
      {call, std::span(buffers.data(), buffers.size()), std::span(offsets.data(), offsets.size()),
       std::span(digest.scalars.data(), digest.scalars.size()),
       std::span(results.buffers.data(), results.buffers.size()), settings});
  replace_arguments(info, *call, results, stack);
  if (timed) metrics().add(Timer::kRecord, Clock::now() - start - missed, kTimedOneIn);
  if (after != Stream::After::kNothing || exported || flags::trace_lines() || runtime::timeline().recording())
    after_record(after, exported);
}

// ---------------------------------------------------------------- running at once

namespace {

// What a device tensor was turned into for the CPU kernel.
struct Twin {
  at::Tensor device;
  at::Tensor cpu;
  graph::TensorMeta before;
  bool written;
};

class Substitution {
 public:
  explicit Substitution(const OpInfo& info) : info_(info) {}

  c10::IValue to_cpu(const c10::IValue& value, bool written, const char* cause) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!is_device_tensor(tensor)) return value;
      return twin(tensor, written, cause);
    }
    if (value.isDevice() && value.toDevice().type() == kDeviceType) return c10::Device(c10::kCPU);
    if (value.isGenerator() && value.toGenerator().device().type() == kDeviceType)
      return generator(value.toGenerator().unsafeGetGeneratorImpl());
    if (value.isList()) {
      bool any = false;
      for (const c10::IValue& element : value.toListRef())
        any = any || (element.isTensor() && is_device_tensor(element.toTensor()));
      if (!any) return value;
      c10::List<c10::IValue> list(value.toList().elementType());
      for (const c10::IValue& element : value.toListRef()) list.push_back(to_cpu(element, written, cause));
      return list;
    }
    return value;
  }

  c10::IValue generator(const c10::GeneratorImpl* impl) {
    const RandomRange range = reserve(impl, 1u << 16);
    return seeded_generator(range.seed, range.offset);
  }

  // Device tensors for what the kernel returned: the argument itself, a view of one, or a new tensor.
  c10::IValue to_device(c10::IValue value) {
    if (value.isTensor()) return wrap(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(wrap(tensor));
      return list;
    }
    if (value.isTuple() || value.isList()) return value;
    return value;
  }

  // In-place and out= kernels may have given their arguments other sizes, more memory, or a lazy conjugation.
  void reconcile() {
    for (Twin& twin : twins_) {
      if (!twin.written) continue;
      runtime::Buffer& buffer = buffer_of(twin.device);
      buffer.contents = true;
      buffer.failure = nullptr;
      c10::StorageImpl* cpu = twin.cpu.storage().unsafeGetStorageImpl();
      c10::StorageImpl* storage = twin.device.storage().unsafeGetStorageImpl();
      if (cpu == buffer.owner() &&
          (cpu->nbytes() != buffer.nbytes || cpu->data() != buffer.data())) {
        Ref<runtime::Buffer> fresh = make_ref<runtime::Buffer>(cpu->nbytes());
        fresh->contents = true;
        adopt(*fresh, twin.cpu);
        swap_buffer(storage, std::move(fresh));
        install_address(buffer_of(storage));
      }
      const graph::TensorMeta after = meta_of(twin.cpu);
      if (after.sizes != twin.before.sizes || after.strides != twin.before.strides ||
          twin.cpu.storage_offset() != twin.device.storage_offset())
        twin.device.unsafeGetTensorImpl()->set_sizes_and_strides(twin.cpu.sizes(), twin.cpu.strides(),
                                                                 twin.cpu.storage_offset());
      // linalg_lu_solve.out marks its result as conjugated instead of conjugating it.
      if (after.conj != twin.before.conj) twin.device._set_conj(after.conj);
      if (after.neg != twin.before.neg) twin.device._set_neg(after.neg);
    }
  }

 private:
  at::Tensor twin(const at::Tensor& tensor, bool written, const char* cause) {
    for (Twin& known : twins_)
      if (known.device.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) {
        known.written = known.written || written;
        return known.cpu;
      }
    at::Tensor cpu = writable_cpu_view(tensor, cause);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) cpu.unsafeGetTensorImpl()->set_wrapped_number(true);
    twins_.push_back({tensor, cpu, meta_of(cpu), written});
    return cpu;
  }

  at::Tensor wrap(const at::Tensor& result) {
    if (!result.defined() || !result.device().is_cpu()) return result;
    if (info_.row.has(ops::kReturnsHostTensors)) return wrap_first_only(result);
    return wrap_always(result);
  }

  // Packed sequences: the data is the device's, the lengths stay on the host.
  at::Tensor wrap_first_only(const at::Tensor& result) {
    if (wrapped_one_) return result;
    wrapped_one_ = true;
    return wrap_always(result);
  }

  at::Tensor wrap_always(const at::Tensor& result) {
    for (Twin& twin : twins_)
      if (twin.cpu.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) return twin.device;
    if (result.layout() != at::kStrided)
      TORCH_CHECK_NOT_IMPLEMENTED(false, "sinter: ", info_.name, " returned a ", result.layout(),
                                  " tensor; the device holds strided tensors only. Compute this on the CPU.");
    for (Twin& twin : twins_)
      if (twin.cpu.has_storage() && twin.cpu.storage().is_alias_of(result.storage()))
        return finish(make_tensor(twin.device.storage(), result.scalar_type(), result.sizes(),
                                  result.strides(), result.storage_offset()),
                      result);
    for (auto& [cpu, device] : fresh_)
      if (cpu.storage().is_alias_of(result.storage()))
        return finish(make_tensor(device.storage(), result.scalar_type(), result.sizes(), result.strides(),
                                  result.storage_offset()),
                      result);
    c10::Storage storage = make_storage(result.storage().nbytes());
    runtime::Buffer& buffer = buffer_of(storage.unsafeGetStorageImpl());
    adopt(buffer, result);
    buffer.contents = true;
    at::Tensor device = make_tensor(storage, result.scalar_type(), result.sizes(), result.strides(),
                                    result.storage_offset());
    fresh_.emplace_back(result, device);
    return finish(device, result);
  }

  static at::Tensor finish(at::Tensor device, const at::Tensor& cpu) {
    if (cpu.is_conj()) device._set_conj(true);
    if (cpu.is_neg()) device._set_neg(true);
    if (cpu.unsafeGetTensorImpl()->is_wrapped_number())
      device.unsafeGetTensorImpl()->set_wrapped_number(true);
    return device;
  }

  const OpInfo& info_;
  std::vector<Twin> twins_;
  std::vector<std::pair<at::Tensor, at::Tensor>> fresh_;
  bool wrapped_one_ = false;
};

}  // namespace

void run_now(const OpInfo& info, torch::jit::Stack& stack, const char* reason) {
  metrics().add(Counter::kOpsRunNow);
  metrics().add_fallback(info.name, reason);
  const size_t count = info.arguments.size();
  const size_t base = stack.size() - count;
  Substitution substitution(info);
  const std::string cause = info.name + ": " + reason;
  torch::jit::Stack inner;
  inner.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    c10::IValue value = substitution.to_cpu(stack[base + i], info.arguments[i].writes, cause.c_str());
    if (value.isNone() && info.row.has(ops::kRandom) &&
        info.handle.schema().arguments()[i].type()->annotation_str() == "Optional[Generator]")
      value = substitution.generator(nullptr);
    inner.push_back(std::move(value));
  }
  {
    ThreadPolicy threads;
    std::optional<KernelScope> scope;
    if (info.aten) scope.emplace();
    std::optional<runtime::Spanning> span;
    if (runtime::timeline().recording())
      span.emplace(runtime::Span::Kind::kKernel, info.name, "", runtime::Timeline::event());
    if (info.aten) {
      info.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &inner);
    } else {
      // Another library's operator may call anything, Python included: only autograd, which has been here already,
      // is kept out.
      c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
      KernelMemoryScope memory;
      info.handle.callBoxed(&inner);
    }
    metrics().add(Counter::kLibraryCalls);
  }
  substitution.reconcile();
  for (c10::IValue& value : inner) value = substitution.to_device(std::move(value));
  stack.resize(base);
  for (c10::IValue& value : inner) stack.push_back(std::move(value));
}

// ---------------------------------------------------------------- copies and sizes

void record_copy(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  static const OpInfo& info = op_info(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  torch::jit::Stack stack{destination, source, non_blocking};
  call_op(info, stack);
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const size_t old_bytes = impl->nbytes();
  Ref<runtime::Buffer> old = swap_buffer(impl, make_ref<runtime::Buffer>(nbytes));
  const auto common = static_cast<int64_t>(std::min(old_bytes, nbytes));
  if (common == 0) return;
  // The old buffer lives on in a storage of its own for as long as the recorded copy needs it.
  c10::Storage previous = make_storage(0);
  swap_buffer(previous.unsafeGetStorageImpl(), old);
  const at::Tensor from = make_tensor(previous, c10::ScalarType::Byte, {common}, {1});
  const at::Tensor to = make_tensor(storage, c10::ScalarType::Byte, {common}, {1});
  record_copy(to, from, false);
}

void resize_tensor(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  graph::TensorMeta meta = meta_of(tensor);
  meta.sizes.assign(sizes.begin(), sizes.end());
  meta.strides.assign(strides.begin(), strides.end());
  const size_t extent = meta.extent_bytes();
  const size_t needed =
      extent ? extent + static_cast<size_t>(impl->storage_offset()) * meta.element_size : 0;
  if (needed > impl->unsafe_storage().nbytes()) resize_storage(impl->unsafe_storage(), needed);
  impl->set_sizes_and_strides(sizes, strides);
}

}  // namespace sinter::torch_device
