// Calls by key: what was inferred about a way of calling an op is inferred once.
//
// Bounded in entries; when full it starts anew (calls in use live on through their references). Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "torch/torch_call.h"

namespace sinter::torch_device {

class CallCache {
 public:
  static constexpr size_t kMaxEntries = 1 << 17;

  // Null when unknown.
  Ref<TorchCall> find(std::span<const uint64_t> key);
  // Returns the entry that is there now, which another thread may have made first.
  Ref<TorchCall> insert(std::span<const uint64_t> key, Ref<TorchCall> call);
  size_t size() const { return count_; }

 private:
  struct Slot {
    uint64_t hash = 0;
    Ref<TorchCall> call;
    std::vector<uint64_t> key;
  };
  Slot& locate(uint64_t hash, std::span<const uint64_t> key);
  void grow();

  std::mutex mutex_;
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  size_t count_ = 0;
};

}  // namespace sinter::torch_device
