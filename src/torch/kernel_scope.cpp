#include "torch/kernel_scope.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <dlfcn.h>
#include <pthread.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <cstring>
#include <iterator>

namespace sinter::torch_device {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

std::atomic<bool> forked_child{false};

using SetThreads = void (*)(int);
using SetThreadsLocal = int (*)(int);
using GetThreads = int (*)();

// OpenMP's per-thread setting, found in the library that PyTorch loaded: at::set_num_threads is process-wide.
SetThreads omp_set() {
  static const auto function = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  return function;
}
GetThreads omp_get() {
  static const auto function = reinterpret_cast<GetThreads>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  return function;
}
SetThreadsLocal mkl_set_local() {
  static const auto function =
      reinterpret_cast<SetThreadsLocal>(dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));
  return function;
}

// The first parallel loop of a thread sets the process's number of threads for it, and would undo ours. PyTorch notes
// in an inline function whether that has been done, so there is one such note in its library and one in this.
void init_threads() {
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
}

#if defined(__x86_64__)
constexpr unsigned kDenormalBits = 0x8040;  // flush-to-zero and denormals-are-zero
#endif

uint64_t denormal_bits() {
#if defined(__x86_64__)
  return _mm_getcsr() & kDenormalBits;
#else
  return 0;
#endif
}

void set_denormal_bits(uint64_t bits) {
#if defined(__x86_64__)
  _mm_setcsr((_mm_getcsr() & ~kDenormalBits) | static_cast<unsigned>(bits));
#else
  (void)bits;
#endif
}

}  // namespace

c10::impl::LocalDispatchKeySet kernel_dispatch_keys() {
  static const auto keys = [] {
    DispatchKeySet excluded = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                              c10::autocast_dispatch_keyset |
                              DispatchKeySet({DispatchKey::Functionalize, DispatchKey::FuncTorchBatched,
                                              DispatchKey::BatchedNestedTensor, DispatchKey::FuncTorchVmapMode,
                                              DispatchKey::Batched, DispatchKey::VmapMode,
                                              DispatchKey::FuncTorchGradWrapper, DispatchKey::DeferredInit,
                                              DispatchKey::PythonTLSSnapshot, DispatchKey::Python,
                                              DispatchKey::FuncTorchDynamicLayerFrontMode,
                                              DispatchKey::FuncTorchDynamicLayerBackMode,
                                              DispatchKey::PreDispatch, DispatchKey::PythonDispatcher,
                                              DispatchKey::Tracer});
    c10::impl::PODLocalDispatchKeySet pod{};
    c10::impl::LocalDispatchKeySet made(pod);
    made.included_ = DispatchKeySet(DispatchKey::BackendSelect);
    made.excluded_ = excluded;
    return made;
  }();
  return keys;
}

bool on_autograd_thread() {
  // The engine names its threads; there is no public way to ask.
  thread_local const bool is_autograd = [] {
    char name[32] = {};
    return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
           std::strncmp(name, "pt_autograd", 11) == 0;
  }();
  return is_autograd;
}

void note_forked_child() { forked_child = true; }

ThreadPolicy::ThreadPolicy() {
  if (!on_autograd_thread() && !forked_child.load(std::memory_order_relaxed)) return;
  if (!omp_set() || !omp_get()) return;
  init_threads();
  saved_ = omp_get()();
  omp_set()(1);
  if (mkl_set_local()) mkl_set_local()(1);
}

ThreadPolicy::~ThreadPolicy() {
  if (!saved_) return;
  omp_set()(saved_);
  if (mkl_set_local()) mkl_set_local()(0);
}

void use_threads(int count) {
  if (!omp_set() || !omp_get()) return;
  init_threads();
  if (at::get_num_threads() != count) omp_set()(count);
}

namespace {

// PyTorch's older and newer names for one thing (set_float32_matmul_precision, mkldnn.matmul.fp32_precision) end here;
// asking by the older name raises when the newer has been used.
constexpr at::Float32Op kPrecisionOps[] = {at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL};
constexpr unsigned kPrecisionBits = 40;

uint64_t precision_of(at::Float32Op op) {
  return static_cast<uint64_t>(at::globalContext().float32Precision(at::Float32Backend::MKLDNN, op));
}

void set_precision(at::Float32Op op, uint64_t value) {
  at::Context& context = at::globalContext();
  // What a wider setting gives already is not said again, so that the wider one goes on to govern.
  context.setFloat32Precision(at::Float32Backend::MKLDNN, op, at::Float32Precision::NONE);
  if (precision_of(op) != value)
    context.setFloat32Precision(at::Float32Backend::MKLDNN, op, static_cast<at::Float32Precision>(value));
}

}  // namespace

// Layout: bit 0 deterministic algorithms, 1 warn only, 2 deterministic fill, 3 mkldnn, 4 mkldnn deterministic,
// 5 nnpack, 8-15 default dtype; the denormal bits lie at 20 to 35, three bits for each precision at 40 and above.
uint64_t current_settings() {
  const at::Context& context = at::globalContext();
  uint64_t bits = 0;
  bits |= static_cast<uint64_t>(context.deterministicAlgorithms()) << 0;
  bits |= static_cast<uint64_t>(context.deterministicAlgorithmsWarnOnly()) << 1;
  bits |= static_cast<uint64_t>(context.deterministicFillUninitializedMemory()) << 2;
  bits |= static_cast<uint64_t>(context.userEnabledMkldnn()) << 3;
  bits |= static_cast<uint64_t>(context.deterministicMkldnn()) << 4;
  bits |= static_cast<uint64_t>(context.userEnabledNNPACK()) << 5;
  bits |= static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 8;
  bits |= denormal_bits() << 20;
  for (unsigned i = 0; i < std::size(kPrecisionOps); ++i)
    bits |= precision_of(kPrecisionOps[i]) << (kPrecisionBits + 3 * i);
  return bits;
}

uint64_t exchange_settings(uint64_t settings) {
  const uint64_t before = current_settings();
  if (before == settings) return before;
  at::Context& context = at::globalContext();
  const uint64_t changed = before ^ settings;
  if (changed & 3) context.setDeterministicAlgorithms(settings & 1, settings & 2);
  if (changed & 4) context.setDeterministicFillUninitializedMemory(settings & 4);
  if (changed & 8) context.setUserEnabledMkldnn(settings & 8);
  if (changed & 16) context.setDeterministicMkldnn(settings & 16);
  if (changed & 32) context.setUserEnabledNNPACK(settings & 32);
  if (changed & (0xff << 8))
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>((settings >> 8) & 0xff)));
  if (((changed >> 20) & 0xffff) != 0) set_denormal_bits((settings >> 20) & 0xffff);
  for (unsigned i = 0; i < std::size(kPrecisionOps); ++i)
    if (const unsigned at = kPrecisionBits + 3 * i; ((changed >> at) & 7) != 0)
      set_precision(kPrecisionOps[i], (settings >> at) & 7);
  return before;
}

}  // namespace sinter::torch_device
