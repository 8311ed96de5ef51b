// torch.distributed: collectives of device tensors are the CPU's, on the same memory.
//
// One boxed kernel stands in for PyTorch's at our key for every c10d op. It runs what the arguments wait for, passes
// CPU tensors over their memory to the CPU's kernel, and hands back the caller's tensors. So whatever serves the CPU
// serves the device (gloo, MPI), and all that is built on these ops: DDP, DTensor, FSDP2, checkpoints.
//
// The collective goes on while the caller records: its memory is lent until it has ended, and an op that touches lent
// memory runs at once, as on the CPU, where the memory is not to be touched before wait() either.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "torch/device_state.h"
#include "torch/memory.h"
#include "torch/registration.h"

namespace c10d {
namespace {

// DistributedDataParallel's own statistics; without a timer for the device it warns.
class SinterTimer final : public Timer {
 public:
  explicit SinterTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t from = getTimeRef(start), to = getTimeRef(end);
    if (from == kUnsetTime || to == kUnsetTime || to < from) return std::nullopt;
    return to - from;
  }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, SinterTimer)

}  // namespace
}  // namespace c10d

namespace sinter::torch_device {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- lending memory

// Somebody outside may read or write the memory of a buffer until this ends.
class Loan {
 public:
  explicit Loan(Buffer& buffer) : buffer_(&buffer) { buffer.lent.fetch_add(1, std::memory_order_relaxed); }
  ~Loan() { end(); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  void end() {
    if (open_.exchange(false)) buffer_->lent.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  Ref<Buffer> buffer_;
  std::atomic<bool> open_{true};
};

// The CPU tensors that a collective gets, and whose they are.
class Aliases {
 public:
  Tensor to_cpu(const Tensor& tensor) {
    if (!is_device_tensor(tensor)) return tensor;
    for (const auto& [alias, owner] : pairs_)
      if (owner.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) return alias;
    const Tensor view = writable_cpu_view(tensor, "collective");
    Buffer& buffer = buffer_of(tensor);
    buffer.contents = true;
    buffer.failure = nullptr;
    auto loan = std::make_shared<Loan>(buffer);
    // A storage of its own, which ends the loan when the collective lets go of it.
    auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(buffer.nbytes),
        c10::DataPtr(
            buffer.data(), new std::shared_ptr<Loan>(loan),
            [](void* p) { delete static_cast<std::shared_ptr<Loan>*>(p); }, c10::Device(c10::kCPU)),
        nullptr, /*resizable=*/false);
    Tensor alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                            c10::DispatchKeySet(c10::DispatchKey::CPU), view.dtype());
    alias.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
    loans_.push_back(std::move(loan));
    pairs_.emplace_back(alias, tensor);
    return alias;
  }

  Tensor to_device(const Tensor& tensor) const {
    for (const auto& [alias, owner] : pairs_)
      if (alias.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) return owner;
    return tensor;
  }

  // Tensors of any nesting; other values as they are.
  template <class Map>
  static c10::IValue map(const c10::IValue& value, const Map& each) {
    if (value.isTensor()) return each(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(each(tensor));
      return list;
    }
    if (value.isList()) {
      c10::List<c10::IValue> list(value.toList().elementType());
      for (const c10::IValue& element : value.toListRef()) list.push_back(map(element, each));
      return list;
    }
    return value;
  }
  c10::IValue to_cpu(const c10::IValue& value) {
    return map(value, [this](const Tensor& tensor) { return to_cpu(tensor); });
  }
  c10::IValue to_device(const c10::IValue& value) const {
    return map(value, [this](const Tensor& tensor) { return to_device(tensor); });
  }

  void end_loans() {
    for (const std::shared_ptr<Loan>& loan : loans_) loan->end();
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> pairs_;  // CPU, device
  std::vector<std::shared_ptr<Loan>> loans_;
};

// ---------------------------------------------------------------- the handle that the caller gets

// The CPU's, but its results are the caller's tensors.
class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Aliases> aliases)
      : Work(-1, inner->retrieveOpType()), inner_(std::move(inner)), aliases_(std::move(aliases)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<Tensor> result() override {
    std::vector<Tensor> results = inner_->result();
    for (Tensor& result : results) result = aliases_->to_device(result);
    return results;
  }
  void synchronize() override { inner_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner_->wait(timeout);
    if (done) aliases_->end_loans();
    return done;
  }
  void blockCurrentStream() override { wait(kNoTimeout); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const auto future = inner_->getFuture();
    return future->then(
        [aliases = aliases_](c10::ivalue::Future& done) {
          c10::IValue value = aliases->to_device(done.value());
          aliases->end_loans();
          return value;
        },
        future->elementType());
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return inner_->getFutureResult(); }
  float getDuration() const override { return inner_->getDuration(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  const c10::intrusive_ptr<c10d::Work> inner_;
  const std::shared_ptr<Aliases> aliases_;
};

// ---------------------------------------------------------------- the kernel

void collective(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size(), base = stack->size() - count;
  const auto aliases = std::make_shared<Aliases>();
  torch::jit::Stack inner;
  inner.reserve(count);
  for (size_t i = 0; i < count; ++i) inner.push_back(aliases->to_cpu((*stack)[base + i]));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &inner);
  stack->resize(base);
  for (c10::IValue& value : inner) {
    if (value.isCustomClass())
      stack->emplace_back(
          c10::intrusive_ptr<c10d::Work>(c10::make_intrusive<DeviceWork>(value.toCustomClass<c10d::Work>(), aliases)));
    else
      stack->push_back(aliases->to_device(value));
  }
}

class NoWarnings final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

void register_distributed() {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (!dispatcher.findSchema({"c10d::allreduce_", ""})) return;  // PyTorch without torch.distributed
  static auto* library = new torch::Library(torch::Library::IMPL, "c10d", kKey, __FILE__, __LINE__);
  // PyTorch has kernels for this key, which ask for a process group of the device's own. It warns when they are
  // replaced.
  NoWarnings quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("c10d::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      library->impl(name.name.c_str() + 6, torch::CppFunction::makeFromBoxedFunction<&collective>());
  }
}

}  // namespace sinter::torch_device
