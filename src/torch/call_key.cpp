#include "torch/call_key.h"

#include <ATen/core/Tensor.h>

#include <c10/core/DefaultDtype.h>

#include <cstring>

#include "torch/copy.h"
#include "torch/device_state.h"
#include "torch/memory.h"

namespace sinter::torch_device {
namespace {

enum Tag : uint64_t {
  kNone = 1,
  kUndefined,
  kTensor,
  kHostScalar,
  kScalar,
  kInt,
  kBool,
  kDouble,
  kComplex,
  kString,
  kDeviceTag,
  kGeneratorTag,
  kListTag,
  kAlias,
};

constexpr uint64_t word(Tag tag, uint64_t low = 0) { return (static_cast<uint64_t>(tag) << 56) | low; }

bool is_number(const c10::IValue& value) {
  return value.isDouble() || value.isInt() || value.isBool() || value.isComplexDouble();
}

// The raw bytes of a CPU tensor without dimensions.
graph::Scalar host_scalar(const at::Tensor& tensor) {
  graph::Scalar scalar;
  const at::Tensor plain = tensor.is_conj() || tensor.is_neg() ? tensor.resolve_conj().resolve_neg() : tensor;
  std::memcpy(scalar.bits, plain.const_data_ptr(), plain.element_size());
  return scalar;
}

[[noreturn]] void raise_device_mismatch(const OpInfo& info, const at::Tensor& tensor, size_t argument) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              kDevice, " and ", tensor.device(), "! (when checking argument for argument ",
              info.handle.schema().arguments()[argument].name(), " in method ", info.name, ")");
}

// For each storage the first operand that has it; linear in the number of operands, which foreach ops make large.
class SharedMemory {
 public:
  void begin(size_t count) {
    while (slots_.size() < 2 * count + 1) slots_.resize(slots_.size() * 2);
    ++epoch_;
  }
  uint32_t first_with(const void* storage, uint32_t index) {
    const size_t mask = slots_.size() - 1;
    for (size_t i = (reinterpret_cast<uintptr_t>(storage) >> 5) * 0x9E3779B97F4A7C15u >> 20 & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.epoch != epoch_) {
        slot = {storage, epoch_, index};
        return index;
      }
      if (slot.storage == storage) return slot.index;
    }
  }

 private:
  struct Slot {
    const void* storage = nullptr;
    uint64_t epoch = 0;
    uint32_t index = 0;
  };
  std::vector<Slot> slots_ = std::vector<Slot>(64);
  uint64_t epoch_ = 0;
};

SharedMemory& shared_memory() {
  thread_local SharedMemory memory;
  return memory;
}

class Digester {
 public:
  Digester(const OpInfo& info, torch::jit::Stack& stack, Digest& out)
      : info_(info), stack_(stack), out_(out), base_(stack.size() - info.arguments.size()) {}

  void run() {
    // Integer tensors divided, or numbers alone, give the default dtype.
    out_.key.push_back((info_.id << 8) | static_cast<uint8_t>(c10::get_default_dtype_as_scalartype()));
    for (size_t i = 0; i < info_.arguments.size(); ++i) {
      c10::IValue& value = stack_[base_ + i];
      argument_ = i;
      if (value.isTensor())
        tensor(value);
      else if (info_.arguments[i].number && is_number(value))
        scalar(value);
      else
        other(value);
    }
    if (info_.writes_any) alias_words();
  }

 private:
  void add(uint64_t value) { out_.key.push_back(value); }

  void tensor(c10::IValue& value) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return add(word(kUndefined));
    if (!is_device_tensor(tensor)) return host_tensor(value);
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    const c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    add(word(kTensor, (static_cast<uint64_t>(tensor.scalar_type()) << 32) | (sizes.size() << 8) |
                          (tensor.is_conj() ? 2 : 0) | (tensor.is_neg() ? 1 : 0) |
                          (impl->is_wrapped_number() ? 4 : 0)));
    for (int64_t size : sizes) add(static_cast<uint64_t>(size));
    for (int64_t stride : strides) add(static_cast<uint64_t>(stride));
    out_.operands.push_back({impl, info_.arguments[argument_].access});
  }

  void host_tensor(c10::IValue& value) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.device().is_cpu() && tensor.dim() == 0 && !info_.arguments[argument_].writes &&
        !tensor.is_sparse()) {
      add(word(kHostScalar, (static_cast<uint64_t>(tensor.scalar_type()) << 8) |
                                (tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 1 : 0)));
      out_.scalars.push_back(host_scalar(tensor));
      if (info_.row.has(ops::kStaticScalars))
        for (uint64_t bits : out_.scalars.back().bits) add(bits);
      return;
    }
    if (info_.row.has(ops::kTakesHostTensors) && tensor.device().is_cpu() &&
        !info_.arguments[argument_].writes) {
      value = upload(tensor);
      return this->tensor(value);
    }
    raise_device_mismatch(info_, tensor, argument_);
  }

  void scalar(const c10::IValue& value) {
    graph::ScalarKind kind;
    out_.scalars.push_back(scalar_of(value, &kind));
    add(word(kScalar, static_cast<uint64_t>(kind)));
    if (info_.row.has(ops::kStaticScalars))
      for (uint64_t bits : out_.scalars.back().bits) add(bits);
  }

  void other(c10::IValue& value) {
    if (value.isNone()) return add(word(kNone));
    if (value.isInt()) {
      add(word(kInt));
      return add(static_cast<uint64_t>(value.toInt()));
    }
    if (value.isBool()) return add(word(kBool, value.toBool()));
    if (value.isList()) return list(value);
    if (value.isString()) {
      const std::string& text = value.toStringRef();
      add(word(kString, text.size()));
      for (size_t i = 0; i < text.size(); i += 8) {
        uint64_t bits = 0;
        std::memcpy(&bits, text.data() + i, std::min<size_t>(8, text.size() - i));
        add(bits);
      }
      return;
    }
    if (value.isDevice()) {
      const c10::Device device = value.toDevice();
      return add(word(kDeviceTag, (static_cast<uint64_t>(static_cast<uint8_t>(device.type())) << 8) |
                                      static_cast<uint8_t>(device.index())));
    }
    if (value.isGenerator()) {
      out_.generator = value.toGenerator().unsafeGetGeneratorImpl();
      return add(word(kGeneratorTag));
    }
    if (value.isDouble()) {
      uint64_t bits;
      const double number = value.toDouble();
      std::memcpy(&bits, &number, 8);
      add(word(kDouble));
      return add(bits);
    }
    out_.unkeyable = true;
  }

  void list(c10::IValue& value) {
    const bool number = info_.arguments[argument_].number;
    const bool upload_here = info_.row.has(ops::kTakesHostTensors);
    const auto elements = value.toListRef();
    add(word(kListTag, elements.size()));
    const bool optional = !value.isTensorList() && !elements.empty();
    for (size_t i = 0; i < elements.size(); ++i) {
      const c10::IValue& element = elements[i];
      if (element.isTensor()) {
        c10::IValue held = element;
        tensor(held);
        const at::Tensor& now = held.toTensor();
        if (optional && now.defined() &&
            (now.scalar_type() == at::kBool || now.scalar_type() == at::kByte))
          out_.has_mask_index = true;
        // An uploaded element replaces the host tensor in the list; the list may be the caller's, so copy it.
        if (upload_here && !held.is(element)) {
          if (info_.row.has(ops::kChecksContents)) check_bounds(elements, i);
          value = replace(value, i, held);
          return restart_list(value);
        }
      } else if (number && is_number(element)) {
        scalar(element);
      } else {
        c10::IValue held = element;
        other(held);
      }
    }
  }

  // Indices that lie on the host are looked at now, so that a wrong one is said at its own line, as eager does.
  void check_bounds(c10::ArrayRef<c10::IValue> indices, size_t at) const {
    const at::Tensor& index = indices[at].toTensor();
    const at::Tensor& self = stack_[base_].toTensor();
    if (index.scalar_type() != at::kLong && index.scalar_type() != at::kInt) return;
    int64_t dim = 0, named = 0;  // eager's message counts index tensors, not dimensions
    for (size_t i = 0; i < at; ++i) {
      const at::Tensor before = indices[i].isTensor() ? indices[i].toTensor() : at::Tensor();
      // A mask stands for as many dimensions as it has.
      const bool mask = before.defined() && (before.scalar_type() == at::kBool || before.scalar_type() == at::kByte);
      dim += mask ? before.dim() : 1;
      if (before.defined()) named += mask ? before.dim() : 1;
    }
    if (dim >= self.dim()) return;  // too many indices: the op says so
    const int64_t size = self.size(dim);
    const at::Tensor flat = index.to(at::kLong).contiguous();
    const auto* values = flat.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < flat.numel(); ++i)
      TORCH_CHECK_INDEX(values[i] >= -size && values[i] < size, "index ", values[i],
                        " is out of bounds for dimension ", named, " with size ", size);
  }

  static c10::IValue replace(const c10::IValue& list, size_t at, const c10::IValue& element) {
    if (list.isTensorList()) {
      c10::List<at::Tensor> copy = list.toTensorList().copy();
      copy.set(at, element.toTensor());
      return copy;
    }
    c10::List<std::optional<at::Tensor>> copy;
    const auto elements = list.toListRef();
    for (size_t i = 0; i < elements.size(); ++i) {
      const c10::IValue& value = i == at ? element : elements[i];
      copy.push_back(value.isNone() ? std::nullopt : std::make_optional(value.toTensor()));
    }
    return copy;
  }

  // Begins the whole digest again: a list was replaced, so words already added may be those of the old one.
  void restart_list(c10::IValue&) {
    out_.key.clear();
    out_.operands.clear();
    out_.scalars.clear();
    out_.has_mask_index = out_.shares_memory = false;
    restarted_ = true;
  }

 public:
  bool restarted_ = false;

 private:
  // How operands share memory belongs to the key once one is written: results and errors of overlap depend on it.
  // Two operands that are one tensor object count as such too, since kernels look at identity.
  void alias_words() {
    SharedMemory& seen = shared_memory();
    seen.begin(out_.operands.size());
    for (size_t i = 0; i < out_.operands.size(); ++i) {
      const c10::TensorImpl* tensor = out_.operands[i].tensor;
      const uint32_t j = seen.first_with(tensor->unsafe_storage().unsafeGetStorageImpl(), static_cast<uint32_t>(i));
      if (j == i) continue;
      out_.shares_memory = true;
      const c10::TensorImpl* other = out_.operands[j].tensor;
      add(word(kAlias, (static_cast<uint64_t>(i) << 24) | (static_cast<uint64_t>(j) << 1) | (other == tensor)));
      add(static_cast<uint64_t>(tensor->storage_offset() - other->storage_offset()));
    }
  }

  const OpInfo& info_;
  torch::jit::Stack& stack_;
  Digest& out_;
  size_t base_;
  size_t argument_ = 0;
};

std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

class CallFiller {
 public:
  CallFiller(const OpInfo& info, TorchCall& call) : info_(info), call_(call) {}

  ArgumentSlot slot(const c10::IValue& value, const ArgumentInfo& argument, const std::string& name) {
    ArgumentSlot slot;
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined()) {
        slot.value = value;
      } else if (is_device_tensor(tensor)) {
        slot.kind = ArgumentSlot::Kind::kTensor;
        slot.index = static_cast<uint32_t>(call_.operands.size());
        slot.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
        call_.operands.push_back({meta_of(tensor), argument.access});
      } else {
        slot.kind = ArgumentSlot::Kind::kHostScalar;
        slot.index = static_cast<uint32_t>(call_.scalars.size());
        slot.dtype = tensor.scalar_type();
        slot.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
        call_.scalars.push_back(c10::isComplexType(slot.dtype)         ? graph::ScalarKind::kComplex
                                : c10::isFloatingType(slot.dtype)      ? graph::ScalarKind::kFloat
                                : slot.dtype == c10::ScalarType::Bool ? graph::ScalarKind::kBool
                                                                       : graph::ScalarKind::kInt);
      }
    } else if (argument.number && is_number(value)) {
      slot.kind = ArgumentSlot::Kind::kScalar;
      slot.index = static_cast<uint32_t>(call_.scalars.size());
      graph::ScalarKind kind;
      scalar_of(value, &kind);
      call_.scalars.push_back(kind);
    } else if (value.isGenerator()) {
      slot.kind = ArgumentSlot::Kind::kGenerator;
    } else if (value.isDevice() && value.toDevice().type() == kDeviceType) {
      slot.value = c10::Device(c10::kCPU);
    } else if (value.isList()) {
      bool varies = false;
      for (const c10::IValue& element : value.toListRef())
        varies = varies || element.isTensor() || (argument.number && is_number(element));
      if (varies) {
        slot.kind = ArgumentSlot::Kind::kList;
        slot.value = empty_like_list(value);
        for (const c10::IValue& element : value.toListRef())
          slot.elements.push_back(this->slot(element, argument, ""));
      } else {
        slot.value = value.deepcopy();
      }
      if (!varies) describe(name, slot.value);
    } else {
      slot.value = value;
      if (!value.isNone()) describe(name, value);
    }
    return slot;
  }

 private:
  static c10::IValue empty_like_list(const c10::IValue& value) {
    c10::List<c10::IValue> copy(value.toList().elementType());
    return c10::IValue(std::move(copy));
  }

  void describe(const std::string& name, const c10::IValue& value) {
    if (!call_.attributes.empty()) call_.attributes += ", ";
    call_.attributes += name + "=" + text_of(value);
  }

  const OpInfo& info_;
  TorchCall& call_;
};

}  // namespace

graph::Scalar scalar_of(const c10::IValue& number, graph::ScalarKind* kind) {
  graph::Scalar scalar;
  if (number.isDouble()) {
    *kind = graph::ScalarKind::kFloat;
    const double value = number.toDouble();
    std::memcpy(scalar.bits, &value, 8);
  } else if (number.isInt()) {
    *kind = graph::ScalarKind::kInt;
    scalar.bits[0] = static_cast<uint64_t>(number.toInt());
  } else if (number.isBool()) {
    *kind = graph::ScalarKind::kBool;
    scalar.bits[0] = number.toBool();
  } else {
    *kind = graph::ScalarKind::kComplex;
    const c10::complex<double> value = number.toComplexDouble();
    std::memcpy(scalar.bits, &value, 16);
  }
  return scalar;
}

void digest(const OpInfo& info, torch::jit::Stack& stack, Digest& out) {
  while (true) {
    Digester digester(info, stack, out);
    digester.run();
    if (!digester.restarted_) return;
    out.key.clear();
    out.operands.clear();
    out.scalars.clear();
    out.has_mask_index = out.shares_memory = false;
  }
}

namespace {

graph::Formal formal_of(const ArgumentSlot& slot, const std::string& name) {
  using Slot = ArgumentSlot::Kind;
  using Formal = graph::Formal;
  Formal formal;
  formal.name = name;
  formal.first = slot.index;
  switch (slot.kind) {
    case Slot::kFixed:
      if (slot.value.isNone() || (slot.value.isTensor() && !slot.value.toTensor().defined())) break;
      formal.kind = Formal::Kind::kFixed;
      formal.text = text_of(slot.value);
      break;
    case Slot::kTensor:
      formal.kind = Formal::Kind::kTensor;
      break;
    case Slot::kScalar:
      formal.kind = Formal::Kind::kScalar;
      break;
    case Slot::kHostScalar:
      formal.kind = Formal::Kind::kScalar;
      formal.host_tensor = true;
      formal.dtype = static_cast<graph::DType>(slot.dtype);
      break;
    case Slot::kGenerator:
      formal.kind = Formal::Kind::kFixed;
      formal.text = "generator";
      break;
    case Slot::kList: {
      const Slot sort = slot.elements[0].kind;
      formal.kind = sort == Slot::kTensor ? Formal::Kind::kTensors
                    : sort == Slot::kScalar ? Formal::Kind::kScalars
                                            : Formal::Kind::kMixed;
      formal.first = slot.elements[0].index;
      formal.count = static_cast<uint32_t>(slot.elements.size());
      for (const ArgumentSlot& element : slot.elements)
        if (element.kind != sort) formal.kind = Formal::Kind::kMixed;
      break;
    }
  }
  return formal;
}

}  // namespace

void fill_call(const OpInfo& info, const torch::jit::Stack& stack, TorchCall& call) {
  CallFiller filler(info, call);
  const size_t base = stack.size() - info.arguments.size();
  const auto& names = info.handle.schema().arguments();
  for (size_t i = 0; i < info.arguments.size(); ++i)
    call.arguments.push_back(filler.slot(stack[base + i], info.arguments[i], names[i].name()));
  for (size_t i = 0; i < info.arguments.size(); ++i)
    call.formals.push_back(formal_of(call.arguments[i], names[i].name()));
}

}  // namespace sinter::torch_device
