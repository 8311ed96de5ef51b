// A Buffer is device memory with a history: empty, pending (some graph will write it) or holding contents.
//
// The storage of a tensor holds one reference, every open or running graph that uses the buffer another; graphs
// never hold a user's tensor or storage. Memory is attached when the first op that writes the buffer runs.
// Fields are guarded by the stream's recording lock or its execution lock, as marked; the flags that both sides
// touch are atomic. What the memory is (malloc, a torch storage) only the owner's release function knows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "support/intrusive_ptr.h"

namespace sinter::runtime {

// Why a buffer has no contents: the graph that should have written it failed. The exception is the one that the
// op raised; whoever reads the buffer gets it again.
struct Failure {
  std::exception_ptr error;
};

class Buffer final : public RefCounted {
 public:
  explicit Buffer(size_t nbytes) : nbytes(nbytes) {}
  ~Buffer() override { drop_memory(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  using Release = void (*)(void* owner);

  // Takes over one reference of the owner. Replaces what was attached before.
  void attach(void* memory, void* owner, Release release) {
    drop_memory();
    data_ = memory;
    owner_ = owner;
    release_ = release;
  }
  // Nullptr until memory is attached.
  void* data() const { return data_; }
  void* owner() const { return owner_; }
  bool has_memory() const { return owner_ != nullptr; }

  size_t nbytes;

  // ---- recording lock
  uint64_t graph = 0;       // sequence number of the last graph that uses it; 0 for none
  uint32_t number = 0;      // its number within that graph
  std::atomic<uint64_t> written_by{0};  // sequence number of the last graph that writes it; 0 for none

  // ---- execution lock
  std::shared_ptr<const Failure> failure;

  std::atomic<bool> contents{false};       // has been written, by a kernel that ran or by a host copy
  std::atomic<bool> storage_alive{false};  // some tensor can still see it
  std::atomic<bool> exported{false};       // code outside knows the address: every op on it is waited for
  std::atomic<uint32_t> lent{0};           // as exported, but for a time: how many outside hold the memory now
  bool foreign = false;  // the owner's release may run arbitrary code (and take locks): never under our locks

  // The storage whose address is to be set once memory exists. Guarded by storage_lock; cleared by the storage's
  // own end, so that an executor never touches a dead one.
  void* storage = nullptr;
  std::atomic_flag storage_lock = ATOMIC_FLAG_INIT;

 private:
  void drop_memory() {
    if (owner_ && release_) release_(owner_);
    data_ = owner_ = nullptr;
  }

  void* data_ = nullptr;
  void* owner_ = nullptr;
  Release release_ = nullptr;
};

// Holds Buffer::storage_lock.
class StorageLock {
 public:
  explicit StorageLock(Buffer& buffer) : flag_(buffer.storage_lock) {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~StorageLock() { flag_.clear(std::memory_order_release); }
  StorageLock(const StorageLock&) = delete;
  StorageLock& operator=(const StorageLock&) = delete;

 private:
  std::atomic_flag& flag_;
};

}  // namespace sinter::runtime
