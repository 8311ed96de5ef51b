#include "codegen/llvm/emitter.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <vector>

#include "codegen/llvm/functions.h"

namespace sinter::codegen {
namespace {

using graph::DType;
using llvm::BasicBlock;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::PHINode;
using llvm::Value;
using loops::Code;
using loops::Instruction;
using loops::Kernel;
using loops::MemoryAccess;
using loops::Stride;
using loops::Type;

class Emitter {
 public:
  Emitter(llvm::Module& module, const Kernel& kernel, unsigned lanes)
      : context_(module.getContext()), b_(context_), module_(module), kernel_(kernel), lanes_(lanes) {}

  void run(const std::string& symbol) {
    llvm::Type* i64 = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), i64, i64}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    // Without it some processors are given half of their vectors.
    function_->addFnAttr("prefer-vector-width", "512");
    BasicBlock* entry = block("entry");
    b_.SetInsertPoint(entry);
    read_arguments();
    Value* begin = function_->getArg(1);
    Value* end = function_->getArg(2);
    if (kernel_.rank == 1) {
      bases_ = pointers_;
      inner_loop(begin, end);
    } else {
      loop(begin, end, b_.getInt64(1), "row", [&](Value* row) {
        bases_ = row_bases(row);
        inner_loop(b_.getInt64(0), sizes_.back());
      });
    }
    b_.CreateRetVoid();
  }

 private:
  BasicBlock* block(const char* name) { return BasicBlock::Create(context_, name, function_); }

  // for (i = begin; i < end; i += step) body(i). The builder ends up behind the loop.
  template <typename Body>
  void loop(Value* begin, Value* end, Value* step, const char* name, Body&& body) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock* inside = block(name);
    BasicBlock* after = block("after");
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), inside, after);
    b_.SetInsertPoint(inside);
    PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(begin, before);
    body(i);
    Value* next = b_.CreateAdd(i, step, "", /*NUW=*/false, /*NSW=*/true);
    i->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), inside, after);
    b_.SetInsertPoint(after);
  }

  Value* word(size_t index, llvm::Type* type) {
    return b_.CreateAlignedLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), function_->getArg(0), index),
                                llvm::Align(8));
  }

  void read_arguments() {
    const size_t count = kernel_.accesses.size(), rank = kernel_.rank;
    for (size_t i = 0; i < count; ++i) pointers_.push_back(word(i, b_.getPtrTy()));
    strides_.resize(count);
    for (size_t i = 0; i < count; ++i)
      for (size_t d = 0; d < rank; ++d) {
        Value* stride = word(count + i * rank + d, b_.getInt64Ty());
        strides_[i].push_back(b_.CreateMul(stride, b_.getInt64(size_of(kernel_.accesses[i].dtype))));
      }
    for (size_t d = 0; d < rank; ++d) sizes_.push_back(word(count * (1 + rank) + d, b_.getInt64Ty()));
    const size_t first = count * (1 + rank) + rank;
    for (size_t s = 0; s < kernel_.scalars.size(); ++s) {
      Value* scalar = nullptr;
      switch (kernel_.scalars[s]) {
        case Type::kDouble:
          scalar = word(first + s, b_.getDoubleTy());
          break;
        case Type::kFloat:
          scalar = b_.CreateFPTrunc(word(first + s, b_.getDoubleTy()), b_.getFloatTy());
          break;
        case Type::kInt:
          scalar = word(first + s, b_.getInt64Ty());
          break;
        case Type::kBool:
          scalar = b_.CreateICmpNE(word(first + s, b_.getInt64Ty()), b_.getInt64(0));
          break;
      }
      scalars_.push_back(b_.CreateVectorSplat(lanes_, scalar));
    }
  }

  // Where each access begins in row `row` of the outer loops.
  std::vector<Value*> row_bases(Value* row) {
    std::vector<Value*> bases = pointers_;
    Value* rest = row;
    for (size_t d = kernel_.rank - 1; d-- > 0;) {
      Value* at = d == 0 ? rest : b_.CreateURem(rest, sizes_[d]);
      if (d != 0) rest = b_.CreateUDiv(rest, sizes_[d]);
      for (size_t i = 0; i < bases.size(); ++i)
        bases[i] = b_.CreateGEP(b_.getInt8Ty(), bases[i], b_.CreateMul(at, strides_[i][d]));
    }
    return bases;
  }

  void inner_loop(Value* begin, Value* end) {
    // What does not move along the loop is read once. No kernel stores where it broadcasts from.
    broadcasts_.assign(kernel_.accesses.size(), nullptr);
    BasicBlock* inside = block("inner");
    BasicBlock* after = block("done");
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), inside, after);
    b_.SetInsertPoint(inside);
    for (size_t i = 0; i < kernel_.accesses.size(); ++i) {
      const MemoryAccess& access = kernel_.accesses[i];
      if (access.inner != Stride::kZero || access.store) continue;
      Value* one = b_.CreateAlignedLoad(memory_type(access.dtype), bases_[i], llvm::Align(size_of(access.dtype)));
      broadcasts_[i] = from_memory(b_.CreateVectorSplat(lanes_, one), access.dtype);
    }
    Value* lanes = b_.getInt64(lanes_);
    Value* length = b_.CreateSub(end, begin);
    Value* full_end = b_.CreateAdd(begin, b_.CreateMul(b_.CreateUDiv(length, lanes), lanes));
    loop(begin, full_end, lanes, "full", [&](Value* i) { body(i, nullptr); });
    BasicBlock* tail = block("tail");
    b_.CreateCondBr(b_.CreateICmpSLT(full_end, end), tail, after);
    b_.SetInsertPoint(tail);
    Value* left = b_.CreateTrunc(b_.CreateSub(end, full_end), b_.getInt32Ty());
    Value* mask = b_.CreateICmpULT(lane_numbers(b_.getInt32Ty()), b_.CreateVectorSplat(lanes_, left));
    body(full_end, mask);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  Value* lane_numbers(llvm::Type* type) {
    std::vector<llvm::Constant*> numbers;
    for (unsigned i = 0; i < lanes_; ++i) numbers.push_back(ConstantInt::get(type, i));
    return llvm::ConstantVector::get(numbers);
  }

  llvm::Type* vector_of(llvm::Type* element) { return llvm::FixedVectorType::get(element, lanes_); }

  llvm::Type* memory_type(DType dtype) {
    switch (dtype) {
      case DType::kFloat32:
        return b_.getFloatTy();
      case DType::kFloat64:
        return b_.getDoubleTy();
      case DType::kFloat16:
        return b_.getHalfTy();
      default:  // bf16 is taken as its bits
        return b_.getIntNTy(8 * size_of(dtype));
    }
  }

  llvm::Type* type_of(Type type) {
    switch (type) {
      case Type::kBool:
        return vector_of(b_.getInt1Ty());
      case Type::kInt:
        return vector_of(b_.getInt64Ty());
      case Type::kFloat:
        return vector_of(b_.getFloatTy());
      case Type::kDouble:
        return vector_of(b_.getDoubleTy());
    }
    return nullptr;
  }

  Value* from_memory(Value* v, DType dtype) {
    switch (dtype) {
      case DType::kFloat32:
      case DType::kFloat64:
      case DType::kInt64:
        return v;
      case DType::kFloat16:
        return b_.CreateFPExt(v, type_of(Type::kFloat));
      case DType::kBFloat16: {
        Value* wide = b_.CreateZExt(v, vector_of(b_.getInt32Ty()));
        return b_.CreateBitCast(b_.CreateShl(wide, ConstantInt::get(wide->getType(), 16)), type_of(Type::kFloat));
      }
      case DType::kBool:
        return b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
      case DType::kUInt8:
        return b_.CreateZExt(v, type_of(Type::kInt));
      default:
        return b_.CreateSExt(v, type_of(Type::kInt));
    }
  }

  // The value has been rounded to the dtype before (kRound).
  Value* to_memory(Value* v, DType dtype) {
    switch (dtype) {
      case DType::kFloat32:
      case DType::kFloat64:
      case DType::kInt64:
        return v;
      case DType::kFloat16:
        return b_.CreateFPTrunc(v, vector_of(b_.getHalfTy()));
      case DType::kBFloat16: {
        Value* bits = b_.CreateBitCast(v, vector_of(b_.getInt32Ty()));
        return b_.CreateTrunc(b_.CreateLShr(bits, ConstantInt::get(bits->getType(), 16)), vector_of(b_.getInt16Ty()));
      }
      case DType::kBool:
        return b_.CreateZExt(v, vector_of(b_.getInt8Ty()));
      default:
        return b_.CreateTrunc(v, vector_of(memory_type(dtype)));
    }
  }

  Value* address(size_t access, Value* i) {
    return b_.CreateGEP(b_.getInt8Ty(), bases_[access],
                        b_.CreateMul(i, b_.getInt64(size_of(kernel_.accesses[access].dtype))));
  }

  // Pointers to lanes of an access whose stride is known when the kernel runs.
  Value* addresses(size_t access, Value* i) {
    Value* stride = strides_[access].back();
    Value* start = b_.CreateGEP(b_.getInt8Ty(), bases_[access], b_.CreateMul(i, stride));
    Value* steps = b_.CreateMul(lane_numbers(b_.getInt64Ty()), b_.CreateVectorSplat(lanes_, stride));
    return b_.CreateGEP(b_.getInt8Ty(), start, steps);
  }

  Value* all_lanes() { return llvm::Constant::getAllOnesValue(vector_of(b_.getInt1Ty())); }

  Value* load(size_t index, Value* i, Value* mask) {
    const MemoryAccess& access = kernel_.accesses[index];
    if (broadcasts_[index]) return broadcasts_[index];
    llvm::Type* type = vector_of(memory_type(access.dtype));
    const llvm::Align align(size_of(access.dtype));
    Value* raw;
    if (access.inner == Stride::kAny)
      raw = b_.CreateMaskedGather(type, addresses(index, i), align, mask ? mask : all_lanes(),
                                  llvm::Constant::getNullValue(type));
    else if (mask)
      raw = b_.CreateMaskedLoad(type, address(index, i), align, mask, llvm::Constant::getNullValue(type));
    else
      raw = b_.CreateAlignedLoad(type, address(index, i), align);
    return from_memory(raw, access.dtype);
  }

  void store(size_t index, Value* value, Value* i, Value* mask) {
    const MemoryAccess& access = kernel_.accesses[index];
    Value* raw = to_memory(value, access.dtype);
    const llvm::Align align(size_of(access.dtype));
    if (access.inner == Stride::kOne && !mask)
      b_.CreateAlignedStore(raw, address(index, i), align);
    else if (access.inner == Stride::kOne)
      b_.CreateMaskedStore(raw, address(index, i), align, mask);
    else  // a stride of 0 belongs to a loop of one iteration
      b_.CreateMaskedScatter(raw, addresses(index, i), align, mask ? mask : all_lanes());
  }

  Value* round(Value* v, DType dtype) {
    switch (dtype) {
      case DType::kFloat16:
        return b_.CreateFPExt(b_.CreateFPTrunc(v, vector_of(b_.getHalfTy())), v->getType());
      case DType::kBFloat16: {
        // To nearest, ties to even, in integers: the machine's own conversion flushes denormals.
        Value* bits = b_.CreateBitCast(v, vector_of(b_.getInt32Ty()));
        llvm::Type* type = bits->getType();
        Value* odd = b_.CreateAnd(b_.CreateLShr(bits, ConstantInt::get(type, 16)), ConstantInt::get(type, 1));
        Value* sum = b_.CreateAdd(bits, b_.CreateAdd(odd, ConstantInt::get(type, 0x7fff)));
        Value* rounded = b_.CreateAnd(sum, ConstantInt::get(type, 0xffff0000u));
        Value* nan = ConstantInt::get(type, 0xffff0000u);  // PyTorch's
        return b_.CreateBitCast(b_.CreateSelect(b_.CreateFCmpUNO(v, v), nan, rounded), v->getType());
      }
      case DType::kUInt8:
        return b_.CreateAnd(v, ConstantInt::get(v->getType(), 0xff));
      case DType::kInt8:
      case DType::kInt16:
      case DType::kInt32:
        return b_.CreateSExt(b_.CreateTrunc(v, vector_of(memory_type(dtype))), v->getType());
      default:
        return v;
    }
  }

  Value* convert(Value* v, Type from, Type to) {
    llvm::Type* type = type_of(to);
    if (to == Type::kBool) {
      if (from == Type::kInt) return b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
      return b_.CreateFCmpUNE(v, llvm::Constant::getNullValue(v->getType()));
    }
    if (to == Type::kInt) return from == Type::kBool ? b_.CreateZExt(v, type) : b_.CreateFPToSI(v, type);
    switch (from) {
      case Type::kBool:
        return b_.CreateUIToFP(v, type);
      case Type::kInt:
        return b_.CreateSIToFP(v, type);
      case Type::kFloat:
        return b_.CreateFPExt(v, type);
      case Type::kDouble:
        return b_.CreateFPTrunc(v, type);
    }
    return v;
  }

  Value* compare(Code code, Value* a, Value* b) {
    if (a->getType()->isFPOrFPVectorTy()) switch (code) {
        case Code::kLess:
          return b_.CreateFCmpOLT(a, b);
        case Code::kLessEqual:
          return b_.CreateFCmpOLE(a, b);
        case Code::kEqual:
          return b_.CreateFCmpOEQ(a, b);
        default:
          return b_.CreateFCmpUNE(a, b);
      }
    switch (code) {
      case Code::kLess:
        return b_.CreateICmpSLT(a, b);
      case Code::kLessEqual:
        return b_.CreateICmpSLE(a, b);
      case Code::kEqual:
        return b_.CreateICmpEQ(a, b);
      default:
        return b_.CreateICmpNE(a, b);
    }
  }

  Value* arithmetic(const Instruction& node, Value* a, Value* b, Value* c) {
    const bool floats = node.type == Type::kFloat || node.type == Type::kDouble;
    switch (node.code) {
      case Code::kAdd:
        return floats ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
      case Code::kSub:
        return floats ? b_.CreateFSub(a, b) : b_.CreateSub(a, b);
      case Code::kMul:
        return floats ? b_.CreateFMul(a, b) : b_.CreateMul(a, b);
      case Code::kDiv:
        return b_.CreateFDiv(a, b);
      case Code::kNeg:
        return floats ? b_.CreateFNeg(a) : b_.CreateNeg(a);
      case Code::kAbs:
        if (floats) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
        return b_.CreateSelect(b_.CreateICmpSLT(a, llvm::Constant::getNullValue(a->getType())), b_.CreateNeg(a), a);
      case Code::kMin:  // a NaN on either side is the result
        if (!floats) return b_.CreateSelect(b_.CreateICmpSLT(b, a), b, a);
        return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, b_.CreateSelect(b_.CreateFCmpOLT(a, b), a, b));
      case Code::kMax:
        if (!floats) return b_.CreateSelect(b_.CreateICmpSGT(b, a), b, a);
        return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, b_.CreateSelect(b_.CreateFCmpOGT(a, b), a, b));
      case Code::kFma:
        return floats ? emit_fma(b_, a, b, c) : b_.CreateAdd(b_.CreateMul(a, b), c);
      case Code::kSqrt:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
      case Code::kExp:
        return emit_exp(b_, a);
      case Code::kTanh:
        return emit_tanh(b_, a);
      case Code::kErf:
        return emit_erf(b_, a);
      case Code::kAnd:
        return b_.CreateAnd(a, b);
      case Code::kOr:
        return b_.CreateOr(a, b);
      case Code::kXor:
        return b_.CreateXor(a, b);
      case Code::kNot:
        return b_.CreateNot(a);
      case Code::kSelect:
        return b_.CreateSelect(a, b, c);
      default:
        return nullptr;
    }
  }

  // One vector of points, from element i of the innermost loop on.
  void body(Value* i, Value* mask) {
    std::vector<Value*> values;
    for (const Instruction& node : kernel_.body) {
      const auto operand = [&](uint32_t index) { return index < values.size() ? values[index] : nullptr; };
      Value *a = operand(node.a), *b = operand(node.b), *c = operand(node.c);
      switch (node.code) {
        case Code::kLoad:
          values.push_back(load(node.index, i, mask));
          break;
        case Code::kScalar:
          values.push_back(scalars_[node.index]);
          break;
        case Code::kConstant:
          values.push_back(node.type == Type::kInt
                               ? ConstantInt::getSigned(type_of(Type::kInt), static_cast<int64_t>(node.number))
                               : ConstantFP::get(type_of(node.type), node.number));
          break;
        case Code::kConvert:
          values.push_back(convert(a, kernel_.body[node.a].type, node.type));
          break;
        case Code::kRound:
          values.push_back(round(a, node.dtype));
          break;
        case Code::kLess:
        case Code::kLessEqual:
        case Code::kEqual:
        case Code::kNotEqual:
          values.push_back(compare(node.code, a, b));
          break;
        case Code::kStore:
          store(node.index, a, i, mask);
          values.push_back(nullptr);
          break;
        default:
          values.push_back(arithmetic(node, a, b, c));
      }
    }
  }

  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Module& module_;
  const Kernel& kernel_;
  const unsigned lanes_;
  llvm::Function* function_ = nullptr;
  std::vector<Value*> pointers_, bases_, broadcasts_, sizes_, scalars_;
  std::vector<std::vector<Value*>> strides_;  // in bytes
};

bool is_long_chain(const Kernel& kernel) {
  for (const Instruction& node : kernel.body)
    if (node.code == Code::kExp || node.code == Code::kTanh || node.code == Code::kErf) return true;
  return false;
}

}  // namespace

void emit_kernel(llvm::Module& module, const Kernel& kernel, const std::string& symbol, unsigned lanes) {
  // Long dependent chains are bound by latency: two machine vectors side by side nearly double their rate.
  Emitter(module, kernel, is_long_chain(kernel) ? 2 * lanes : lanes).run(symbol);
}

}  // namespace sinter::codegen
