// The thread state in which PyTorch's CPU kernels run for us, whatever the user's thread was doing when a graph ended.
//
// No autograd, autocast, vmap, dispatch mode or Python key sees the inner calls, and their memory is the device's.
// On autograd's own thread kernels use one thread, so that no second OpenMP pool is born there: pools that together
// outnumber the cores make every barrier slow.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "torch/memory.h"

namespace sinter::torch_device {

c10::impl::LocalDispatchKeySet kernel_dispatch_keys();

class KernelScope {
 public:
  KernelScope() : keys_(kernel_dispatch_keys()) {}

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  KernelMemoryScope memory_;
};

// True on a thread that belongs to autograd's engine.
bool on_autograd_thread();

// Limits this thread to one kernel thread where needed, for its lifetime.
class ThreadPolicy {
 public:
  ThreadPolicy();
  ~ThreadPolicy();
  ThreadPolicy(const ThreadPolicy&) = delete;
  ThreadPolicy& operator=(const ThreadPolicy&) = delete;

 private:
  int saved_ = 0;
};

// Makes kernels that this thread calls use so many threads; for this thread alone.
void use_threads(int count);

// In a forked child the parent's OpenMP pool does not exist and libgomp hangs when it is used again, so the child
// runs its kernels on one thread.
void note_forked_child();

// ---- settings that kernels read when they run
// A fingerprint of them; ops recorded under different ones never share a graph.
uint64_t current_settings();
// Sets them for a run; returns the fingerprint to give back to restore them.
uint64_t exchange_settings(uint64_t settings);

}  // namespace sinter::torch_device
