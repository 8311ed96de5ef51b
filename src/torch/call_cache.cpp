#include "torch/call_cache.h"

#include <algorithm>

#include "support/hash.h"

namespace sinter::torch_device {

CallCache::Slot& CallCache::locate(uint64_t hash, std::span<const uint64_t> key) {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (!slot.call) return slot;
    if (slot.hash == hash && slot.key.size() == key.size() &&
        std::equal(key.begin(), key.end(), slot.key.begin()))
      return slot;
  }
}

Ref<TorchCall> CallCache::find(std::span<const uint64_t> key) {
  const uint64_t hash = hash_words(key);
  const std::lock_guard lock(mutex_);
  return locate(hash, key).call;
}

Ref<TorchCall> CallCache::insert(std::span<const uint64_t> key, Ref<TorchCall> call) {
  const uint64_t hash = hash_words(key);
  const std::lock_guard lock(mutex_);
  if (count_ >= kMaxEntries) {
    slots_.assign(1024, {});
    count_ = 0;
  }
  if (count_ * 2 >= slots_.size()) grow();
  Slot& slot = locate(hash, key);
  if (!slot.call) {
    slot = {hash, std::move(call), std::vector<uint64_t>(key.begin(), key.end())};
    ++count_;
  }
  return slot.call;
}

void CallCache::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (Slot& slot : old)
    if (slot.call) {
      Slot& place = locate(slot.hash, slot.key);
      place = std::move(slot);
    }
}

}  // namespace sinter::torch_device
