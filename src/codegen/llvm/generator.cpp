// The library libsinter_native.so: LLVM behind the interface of codegen/code_generator.h.
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/SubtargetFeature.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <dlfcn.h>
#include <sys/stat.h>

#include <mutex>

#include "codegen/code_generator.h"
#include "codegen/llvm/emitter.h"

namespace sinter::codegen {
namespace {

Error from_llvm(llvm::Error error, const char* doing) {
  return bug(std::string("LLVM, ") + doing + ": " + llvm::toString(std::move(error)));
}

// Tells one build of this library from another: what it emits may have changed.
std::string own_build() {
  Dl_info self;
  struct stat status {};
  if (!dladdr(reinterpret_cast<void*>(&own_build), &self) || !self.dli_fname || stat(self.dli_fname, &status) != 0)
    return "unknown";
  return std::to_string(status.st_size) + "-" + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

class LlvmGenerator final : public CodeGenerator {
 public:
  // Null when the processor is not one that LLVM makes code for.
  static std::unique_ptr<LlvmGenerator> make() {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto generator = std::unique_ptr<LlvmGenerator>(new LlvmGenerator);
    llvm::Expected<llvm::orc::JITTargetMachineBuilder> builder = llvm::orc::JITTargetMachineBuilder::detectHost();
    if (!builder) {
      llvm::consumeError(builder.takeError());
      return nullptr;
    }
    // Left alone it asks for the large code model: longer code, and symbols through registers.
    builder->setRelocationModel(llvm::Reloc::PIC_).setCodeModel(llvm::CodeModel::Small);
    builder->setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
    generator->builder_ = std::make_unique<llvm::orc::JITTargetMachineBuilder>(*builder);
    llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> jit =
        llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(*builder).create();
    if (!jit) {
      llvm::consumeError(jit.takeError());
      return nullptr;
    }
    generator->jit_ = std::move(*jit);
    const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
    generator->lanes_ = features.lookup("avx512f") ? 16 : features.lookup("avx") ? 8 : 4;
    generator->target_ = builder->getTargetTriple().str() + " " + llvm::sys::getHostCPUName().str() + " " +
                         builder->getFeatures().getString() + " LLVM " LLVM_VERSION_STRING " build " + own_build();
    return generator;
  }

  Result<std::string> compile(const loops::Kernel& kernel, const std::string& symbol) override {
    llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = builder_->createTargetMachine();
    if (!machine) return from_llvm(machine.takeError(), "making a target machine");
    llvm::LLVMContext context;
    llvm::Module module(symbol, context);
    module.setDataLayout((*machine)->createDataLayout());
    module.setTargetTriple((*machine)->getTargetTriple());
    emit_kernel(module, kernel, symbol, lanes_);
    for (llvm::Function& function : module)
      if (!function.isDeclaration()) {
        function.addFnAttr("target-cpu", (*machine)->getTargetCPU());
        function.addFnAttr("target-features", (*machine)->getTargetFeatureString());
      }
#ifndef NDEBUG
    std::string complaint;
    llvm::raw_string_ostream stream(complaint);
    if (llvm::verifyModule(module, &stream)) return bug("generated IR is invalid: " + complaint);
#endif
    optimize(module, **machine);

    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream out(bytes);
    llvm::legacy::PassManager passes;
    if ((*machine)->addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::ObjectFile))
      return bug("LLVM cannot write objects for this target");
    passes.run(module);
    return std::string(bytes.begin(), bytes.end());
  }

  Result<loops::Function> load(const std::string& object, const std::string& symbol) override {
    // A library of its own for each kernel: names need not be unique, and one that fails harms no other.
    const std::lock_guard lock(mutex_);
    llvm::Expected<llvm::orc::JITDylib&> library = jit_->createJITDylib("kernel" + std::to_string(next_++));
    if (!library) return from_llvm(library.takeError(), "making a library");
    if (llvm::Error error = jit_->addObjectFile(
            *library, llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object.data(), object.size()), symbol)))
      return from_llvm(std::move(error), "loading an object");
    llvm::Expected<llvm::orc::ExecutorAddr> address = jit_->lookup(*library, symbol);
    if (!address) return from_llvm(address.takeError(), "linking a kernel");
    return address->toPtr<loops::Function>();
  }

  std::string target() const override { return target_; }

 private:
  LlvmGenerator() = default;

  // Kernels are written as they should run; what is left is common subexpressions of the two bodies and what can move
  // out of the loops. More passes cost time and change nothing that was measured.
  static void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager calls;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder builder(&machine);
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(calls);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, calls, modules);
    llvm::FunctionPassManager passes;
    passes.addPass(llvm::EarlyCSEPass());
    passes.addPass(llvm::InstCombinePass());
    passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
    passes.addPass(llvm::EarlyCSEPass());
    for (llvm::Function& function : module)
      if (!function.isDeclaration()) passes.run(function, functions);
  }

  std::unique_ptr<llvm::orc::JITTargetMachineBuilder> builder_;
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  unsigned lanes_ = 4;
  std::string target_;
  std::mutex mutex_;
  size_t next_ = 0;
};

}  // namespace
}  // namespace sinter::codegen

// Leaked: kernels may run while the process exits.
extern "C" __attribute__((visibility("default"))) sinter::codegen::CodeGenerator* sinter_make_code_generator() {
  return sinter::codegen::LlvmGenerator::make().release();
}
