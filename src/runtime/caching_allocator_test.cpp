#include "runtime/caching_allocator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/flags.h"
#include "support/log.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sinter {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

CachingAllocator::Options small_cache() {
  CachingAllocator::Options options;
  options.cache_floor = 16 * kMiB;
  options.cache_ceiling = 64 * kMiB;
  options.epoch_allocations = 10;
  options.epoch_nanoseconds = 0;
  return options;
}

TEST(SizeClasses, RoundUpByAnEighthAtMost) {
  size_t last = 0;
  for (size_t bytes = 0; bytes < 300000; bytes += bytes < 5000 ? 1 : 61) {
    const size_t index = CachingAllocator::class_of(bytes);
    ASSERT_GE(CachingAllocator::class_bytes(index), bytes);
    if (index > 0) {
      ASSERT_LT(CachingAllocator::class_bytes(index - 1), bytes) << bytes;
    }
    ASSERT_GE(index, last);
    last = index;
    if (bytes > 512) {
      ASSERT_LE(static_cast<double>(CachingAllocator::class_bytes(index)), 1.125 * static_cast<double>(bytes + 63));
    }
    ASSERT_EQ(CachingAllocator::class_bytes(index) % 64, 0u);
  }
  for (int shift = 10; shift <= 46; ++shift) {
    const size_t bytes = size_t{1} << shift;
    for (size_t n : {bytes - 1, bytes, bytes + 1}) {
      const size_t index = CachingAllocator::class_of(n);
      ASSERT_LT(index, CachingAllocator::kClassCount);
      ASSERT_GE(CachingAllocator::class_bytes(index), n);
      ASSERT_LT(CachingAllocator::class_bytes(index - 1), n);
    }
    ASSERT_EQ(CachingAllocator::class_bytes(CachingAllocator::class_of(bytes)), bytes);
  }
}

TEST(CachingAllocatorTest, BlocksAreAlignedApartAndRemembered) {
  CachingAllocator allocator;
  std::vector<std::pair<char*, size_t>> blocks;
  uint64_t total = 0;
  for (size_t bytes : {0, 1, 63, 64, 65, 500, 4096, 32768, 32769, 40000, 1 << 20, (2 << 20) - 1, 2 << 20, 9999999}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto* p = static_cast<char*>(allocator.allocate(bytes));
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % CachingAllocator::kAlignment, 0u);
      EXPECT_EQ(CachingAllocator::requested_bytes(p), bytes);
      std::memset(p, static_cast<int>(blocks.size()), bytes);
      blocks.emplace_back(p, bytes);
      total += (bytes + 63) / 64 * 64;
    }
  }
  EXPECT_EQ(allocator.stats().allocated, total);
  EXPECT_EQ(allocator.stats().alloc_count, blocks.size());
  EXPECT_GE(allocator.stats().reserved, total);
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t k = 0; k < blocks[i].second; k += 509) ASSERT_EQ(blocks[i].first[k], static_cast<char>(i));
  }
  for (auto& [p, bytes] : blocks) allocator.free(p);
  allocator.free(nullptr);
  EXPECT_EQ(allocator.stats().allocated, 0u);
  EXPECT_EQ(allocator.stats().peak_allocated, total);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().reserved, 0u);
  allocator.reset_peaks();
  EXPECT_EQ(allocator.stats().peak_allocated, 0u);
  EXPECT_EQ(allocator.stats().peak_reserved, 0u);
}

TEST(CachingAllocatorTest, TheLastFreedServesFirst) {
  CachingAllocator allocator;
  for (size_t bytes : {200u, 100000u, 5000000u}) {
    void* a = allocator.allocate(bytes);
    void* b = allocator.allocate(bytes);
    allocator.free(a);
    allocator.free(b);
    EXPECT_EQ(allocator.allocate(bytes), b);
    EXPECT_EQ(allocator.allocate(bytes), a);
  }
  EXPECT_EQ(allocator.stats().cache_hits, 6u);
}

TEST(CachingAllocatorTest, ASlightlyLargerMappingServes) {
  CachingAllocator allocator;
  const size_t bytes = 4 * kMiB;
  void* a = allocator.allocate(bytes);
  allocator.free(a);
  EXPECT_EQ(allocator.allocate(bytes - bytes / 10), a);
  EXPECT_EQ(CachingAllocator::requested_bytes(a), bytes - bytes / 10);
  allocator.free(a);
  void* b = allocator.allocate(bytes / 2);
  EXPECT_NE(b, a) << "half would be waste";
}

size_t resident_pages(const void* start, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(start) / 4096 * 4096;
  std::vector<unsigned char> in((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(first), bytes, in.data()), 0);
  size_t count = 0;
  for (unsigned char c : in) count += c & 1;
  return count;
}

TEST(CachingAllocatorTest, NeverTouchesWhatItHandsOut) {
  CachingAllocator allocator;
  for (size_t bytes : {kMiB, 8 * kMiB, 100 * kMiB}) {
    void* p = allocator.allocate(bytes);
    EXPECT_LE(resident_pages(p, bytes), 1u) << bytes;
    allocator.free(p);
    EXPECT_EQ(allocator.allocate(bytes), p);
    EXPECT_LE(resident_pages(p, bytes), 1u) << bytes;
  }
}

TEST(CachingAllocatorTest, ReuseFaultsNoPages) {
  CachingAllocator allocator;
  auto faults = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  auto step = [&] {
    for (size_t bytes : {3 * kMiB, 700000ul, 20 * kMiB}) {
      void* p = allocator.allocate(bytes);
      std::memset(p, 1, bytes);
      allocator.free(p);
    }
  };
  step();
  const long before = faults();
  for (int i = 0; i < 10; ++i) step();
  // Far below the 6,000 pages of one step; not 0, for other threads and sanitizers fault too.
  EXPECT_LT(faults() - before, 200);
}

TEST(CachingAllocatorTest, CachedMemoryIsBounded) {
  CachingAllocator allocator(small_cache());
  // Peak in use 8 MiB: the floor of 16 MiB holds.
  std::vector<void*> blocks;
  for (size_t i = 1; i <= 60; ++i) {
    void* p = allocator.allocate(i * 4 * kMiB / 30);
    ASSERT_NE(p, nullptr);
    allocator.free(p);
    EXPECT_LE(allocator.stats().reserved, 27 * kMiB);
  }
  // A step whose peak is 40 MiB keeps them all between steps.
  for (int i = 0; i < 10; ++i) blocks.push_back(allocator.allocate(4 * kMiB));
  for (void* p : blocks) allocator.free(p);
  EXPECT_GE(allocator.stats().reserved, 40 * kMiB);
  const uint64_t hits = allocator.stats().cache_hits;
  for (void*& p : blocks) p = allocator.allocate(4 * kMiB);
  EXPECT_EQ(allocator.stats().cache_hits, hits + 10);
  for (void* p : blocks) allocator.free(p);
  // Two epochs later that peak is forgotten, and the next freeing trims down to the floor.
  for (int i = 0; i < 25; ++i) allocator.free(allocator.allocate(kMiB));
  EXPECT_LE(allocator.stats().reserved, 17 * kMiB);
}

TEST(CachingAllocatorTest, TheCeilingHolds) {
  CachingAllocator allocator(small_cache());
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(allocator.allocate(4 * kMiB));
  for (void* p : blocks) allocator.free(p);
  EXPECT_LE(allocator.stats().reserved, 65 * kMiB);
}

TEST(CachingAllocatorTest, FreeChunksGoBackOnceManyBlocksAreFree) {
  CachingAllocator allocator;
  std::vector<void*> blocks;
  for (int i = 0; i < 10000; ++i) blocks.push_back(allocator.allocate(16384));
  const uint64_t most = allocator.stats().reserved;
  EXPECT_GT(most, 150 * kMiB);
  void* kept = blocks.back();
  blocks.pop_back();
  for (void* p : blocks) allocator.free(p);
  EXPECT_LT(allocator.stats().reserved, 80 * kMiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().reserved, 2 * kMiB);
  std::memset(kept, 1, 16384);
  // And the lists are in order afterwards.
  for (void*& p : blocks) std::memset(p = allocator.allocate(16384), 2, 16384);
  EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), blocks.size());
}

TEST(CachingAllocatorTest, TheLimitEmptiesTheCacheAndThenRefuses) {
  CachingAllocator allocator;
  ASSERT_TRUE(flags::set("MEMORY_LIMIT", "100M").ok());
  void* a = allocator.allocate(60 * kMiB);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(allocator.allocate(60 * kMiB), nullptr);
  EXPECT_EQ(allocator.out_of_memory_error(60 * kMiB).kind, ErrorKind::kOutOfMemory);
  EXPECT_EQ(
      allocator.out_of_memory_error(60 * kMiB).message,
      "sinter out of memory. Tried to allocate 60.00 MiB. The device may hold 100.00 MiB (SINTER_MEMORY_LIMIT), of "
      "which 40.00 MiB is free. Of the memory in use 60.00 MiB is allocated by tensors, and 4.00 KiB is reserved "
      "but unallocated.");
  allocator.free(a);
  void* b = allocator.allocate(90 * kMiB);  // only after the other has gone back
  EXPECT_NE(b, nullptr);
  EXPECT_EQ(allocator.stats().limit, 100 * kMiB);
  EXPECT_EQ(allocator.allocate(size_t{1} << 60), nullptr);
  allocator.free(b);
  // Small blocks count too, and free chunks are given back for large ones.
  std::vector<void*> blocks;
  while (void* p = allocator.allocate(10000)) blocks.push_back(p);
  EXPECT_GT(blocks.size(), 9000u);
  EXPECT_LE(allocator.stats().reserved, 100 * kMiB);
  for (void* p : blocks) allocator.free(p);
  EXPECT_NE(allocator.allocate(90 * kMiB), nullptr);
  ASSERT_TRUE(flags::set("MEMORY_LIMIT", "0").ok());
}

TEST(CachingAllocatorTest, FreeingTwiceIsReportedAndHarmless) {
  CachingAllocator allocator;
  int complaints = 0;
  log::set_sink([&](log::Level, std::string_view) { ++complaints; });
  for (size_t bytes : {100u, 100000u}) {
    void* p = allocator.allocate(bytes);
    allocator.free(p);
    allocator.free(p);
    EXPECT_NE(allocator.allocate(bytes), allocator.allocate(bytes));
  }
  log::set_sink(nullptr);
  EXPECT_EQ(complaints, 2);
}

TEST(CachingAllocatorTest, ThreadsShareIt) {
  CachingAllocator allocator(small_cache());
  std::vector<std::thread> threads;
  std::atomic<void*> handover{nullptr};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<std::pair<unsigned char*, size_t>> mine;
      for (int i = 0; i < 4000; ++i) {
        if (mine.size() < 20 && random() % 2) {
          const size_t bytes = size_t{1} << random() % 21;
          auto* p = static_cast<unsigned char*>(allocator.allocate(bytes));
          ASSERT_NE(p, nullptr);
          p[0] = p[bytes - 1] = static_cast<unsigned char>(t);
          mine.emplace_back(p, bytes);
        } else if (!mine.empty()) {
          const size_t at = random() % mine.size();
          auto [p, bytes] = mine[at];
          ASSERT_EQ(p[0], t);
          ASSERT_EQ(p[bytes - 1], t);
          mine[at] = mine.back();
          mine.pop_back();
          allocator.free(p);
        }
        if (i % 500 == 0) {
          // Blocks may be freed by another thread than the one that took them.
          allocator.free(handover.exchange(allocator.allocate(3000)));
          (void)allocator.stats();
          if (t == 0) allocator.empty_cache();
        }
      }
      for (auto [p, bytes] : mine) allocator.free(p);
    });
  }
  for (auto& thread : threads) thread.join();
  allocator.free(handover.load());
  EXPECT_EQ(allocator.stats().allocated, 0u);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().reserved, 0u);
}

#if !defined(__SANITIZE_THREAD__)  // TSan does not follow threads through fork
TEST(CachingAllocatorTest, AChildOfForkGoesOn) {
  CachingAllocator& allocator = caching_allocator();
  void* before = allocator.allocate(5000000);
  std::memset(before, 7, 5000000);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) allocator.free(allocator.allocate(1000));
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock that was left held would hang
      bool fine = static_cast<char*>(before)[4999999] == 7;
      for (size_t bytes : {100u, 100000u, 5000000u}) {
        void* p = allocator.allocate(bytes);
        std::memset(p, 1, bytes);
        allocator.free(p);
      }
      allocator.free(before);
      allocator.empty_cache();
      _exit(fine ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
  EXPECT_EQ(static_cast<char*>(before)[4999999], 7);
  allocator.free(before);
}
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST(CachingAllocatorTest, WhatIsNotInUseIsPoisoned) {
  CachingAllocator allocator;
  for (size_t bytes : {100u, 100000u, 5000000u}) {
    auto* p = static_cast<char*>(allocator.allocate(bytes));
    EXPECT_FALSE(__asan_address_is_poisoned(p));
    EXPECT_FALSE(__asan_address_is_poisoned(p + bytes - 1));
    EXPECT_TRUE(__asan_address_is_poisoned(p + bytes)) << bytes;
    allocator.free(p);
    EXPECT_TRUE(__asan_address_is_poisoned(p));
    EXPECT_TRUE(__asan_address_is_poisoned(p + bytes - 1));
  }
}
#endif

}  // namespace
}  // namespace sinter
