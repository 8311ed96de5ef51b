// Host memory for the device's buffers and for what library calls allocate, kept for reuse when freed.
//
// Why: malloc gives large blocks back to the system and takes them again, which costs 2-4 times eager's page faults
// when a graph is replayed. Here a freed block waits in the list of its size class and the next request of that class
// takes the one freed last, whose lines are the likeliest to be in a cache.
//
// * Blocks are 64-byte aligned and never touched, neither when handed out nor when freed (their contents are what the
//   last user left). Requests of 0 bytes get a block too.
// * Size classes: eight to each power of two, so at most 12.5 % of a block beyond 512 bytes is waste.
// * Blocks up to 32 KiB are carved from 2 MiB chunks; larger ones are mappings of their own, and from 2 MiB on they are
//   laid out for huge pages. A request that misses may take a cached mapping up to two classes larger.
// * Cached mappings are given back, oldest first, when they exceed max(256 MiB, 1.5 * recent peak - in use): the memory
//   of one training step stays although nothing is in use between steps. "Recent" spans at least 10 seconds
//   and 4,096 mappings handed out. At most a quarter of the machine's memory is cached.
// * When a mapping would pass flags::memory_limit(), or the system has no memory, the cache is emptied first; if that
// does not help,
//   allocate() gives null and out_of_memory_error() words it.
// * All functions may be called from any thread; a hit costs some 15 ns and system calls are made without the lock.
//   The process's allocator stays usable in a child after fork().
// * Under AddressSanitizer what is cached, and the tail of a block beyond the request, is poisoned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "support/result.h"
#include "support/spin_lock.h"

namespace sinter {

class CachingAllocator {
 public:
  static constexpr size_t kAlignment = 64;

  struct Options {
    size_t cache_floor = size_t{256} << 20;  // so much may always be cached
    size_t cache_ceiling = 0;  // never more than this beyond the floor; 0: a quarter of the machine's memory
    bool huge_pages = true;
    uint64_t epoch_allocations = 4096;  // what "recent" spans at least
    int64_t epoch_nanoseconds = 10'000'000'000;
  };

  struct Stats {
    uint64_t allocated = 0;  // bytes asked for and not yet freed, each request rounded up to 64
    uint64_t reserved = 0;   // bytes taken from the system: in use, cached, and rounding
    uint64_t peak_allocated = 0;
    uint64_t peak_reserved = 0;
    uint64_t limit = 0;        // the MEMORY_LIMIT flag; 0: none
    uint64_t alloc_count = 0;  // blocks handed out so far
    uint64_t cache_hits = 0;   // those that a freed block served
  };

  CachingAllocator();
  explicit CachingAllocator(Options options);
  ~CachingAllocator();  // gives everything back, blocks in use included
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Null when the limit or the system's memory is exhausted.
  [[nodiscard]] void* allocate(size_t bytes);

  // Takes what allocate() gave, or null. Freeing twice is reported to the log and ignored where it can be seen.
  void free(void* pointer);

  // Whether a pointer that malloc or allocate() gave is one of allocate()'s blocks in use. Reads the 64 bytes before it,
  // which both have mapped.
  static bool owns(const void* pointer);

  // What was asked for when the block was allocated.
  static size_t requested_bytes(const void* pointer);

  // Gives all cached mappings and wholly free chunks back to the system.
  void empty_cache();

  Stats stats() const;
  void reset_peaks();

  // In the manner of CUDA's message, so that programs that look for "out of memory" find it.
  Error out_of_memory_error(size_t bytes) const;

  // For fork handlers: nobody is inside the allocator between the two.
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

  static constexpr size_t kClassCount = 320;
  static size_t class_of(size_t bytes);
  static size_t class_bytes(size_t index);

 private:
  struct Mapping;
  struct Chunk;
  struct Header;

  void* take_small(size_t index, size_t bytes);
  void* take_mapped(size_t index, size_t bytes);
  bool add_chunk();
  void* add_mapping(size_t index, size_t bytes);
  char* map(size_t bytes, bool for_huge_pages, size_t lead);

  // These want the lock held.
  void count_allocation(size_t bytes, bool hit);
  void push(Mapping* mapping);
  void remove(Mapping* mapping);
  void push(Header* header);
  void remove(Header* header);
  void count_mapped_use(size_t bytes);
  size_t cache_bound() const;
  void retire_oldest(Mapping*& retired);
  void retire(Chunk* chunk, Chunk*& retired);

  // And these want it not to be.
  bool reserve(size_t bytes);
  void unreserve(size_t bytes);
  static void give_back(Mapping* retired);
  static void give_back(Chunk* retired);

  const Options options_;
  mutable SpinLock lock_;

  // All that follows is guarded by lock_.
  std::array<Header*, kClassCount> small_{};    // stacks of free blocks in chunks, last freed first
  std::array<Mapping*, kClassCount> mapped_{};  // stacks of free mappings, last freed first
  Mapping* oldest_ = nullptr;                   // all free mappings in the order of their freeing
  Mapping* newest_ = nullptr;
  Mapping* all_ = nullptr;  // every mapping, for the destructor
  Chunk* chunks_ = nullptr;
  Chunk* carving_ = nullptr;  // the chunk that new small blocks are cut from
  uint32_t colour_ = 0;
  size_t cached_mapped_ = 0;
  size_t cached_small_ = 0;
  size_t in_use_mapped_ = 0;
  size_t epoch_peak_ = 0;     // of in_use_mapped_ in this epoch
  size_t previous_peak_ = 0;  // and in the one before
  uint64_t epoch_allocations_ = 0;
  int64_t epoch_start_ = 0;
  Stats stats_;
};

// The allocator of the process's one device. Process-wide because memory is: blocks outlive whoever allocated them.
// Never destroyed.
CachingAllocator& caching_allocator();

}  // namespace sinter
