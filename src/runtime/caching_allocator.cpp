#include "runtime/caching_allocator.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>

#include "support/flags.h"
#include "support/log.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SINTER_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SINTER_ASAN 1
#endif
#ifdef SINTER_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace sinter {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunkBytes = kHugePage;
constexpr size_t kLargestSmall = size_t{32} << 10;
constexpr size_t kLargestRequest = size_t{1} << 46;
constexpr size_t kClassesUp = 2;  // a miss may take a mapping so many classes larger
// Free small blocks beyond this make a chunk go back as soon as it is wholly free.
constexpr size_t kSmallCacheFloor = size_t{64} << 20;

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

int64_t now_nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// What this process may use: the machine's memory or the container's share of it.
size_t machine_memory() {
  size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/memory.max", "re")) {
    unsigned long long most = 0;
    if (std::fscanf(file, "%llu", &most) == 1 && most != 0) bytes = std::min<size_t>(bytes, most);
    std::fclose(file);
  }
  return bytes;
}

std::string in_words(uint64_t bytes) {
  const char* unit = "bytes";
  auto value = static_cast<double>(bytes);
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  char text[64];
  std::snprintf(text, sizeof text, bytes < 1024 ? "%.0f %s" : "%.2f %s", value, unit);
  return text;
}

}  // namespace

// Lies in the 64 bytes before each block, so that free() needs no size. That line belongs to us also in mappings; of
// those it is written once, which makes the first page of a mapping resident and no other.
struct alignas(64) CachingAllocator::Header {
  static constexpr uint32_t kUsed = 0x51A7E12E;
  static constexpr uint32_t kFree = 0x51A7E12F;  // only small blocks; a mapping notes it in its descriptor

  uint32_t state;
  uint32_t index;  // size class
  void* owner;     // the Chunk or the Mapping
  size_t requested;
  Header* up;  // neighbours in the stack of free blocks
  Header* down;
  uintptr_t seal = reinterpret_cast<uintptr_t>(this) ^ kSeal;  // tells our blocks from other memory
  static constexpr uintptr_t kSeal = 0x5EA1'ED0F'5147'E12E;

  static Header* of(void* pointer) { return static_cast<Header*>(pointer) - 1; }
  static const Header* of(const void* pointer) { return static_cast<const Header*>(pointer) - 1; }
  void* data() { return this + 1; }
  bool is_small() const { return class_bytes(index) <= kLargestSmall; }
};

// Descriptors lie apart from the blocks, close together: the lists of free mappings are walked without touching a page
// of theirs.
struct CachingAllocator::Mapping {
  char* start;
  size_t bytes;
  Header* header;
  size_t requested;
  uint32_t index;
  bool used;
  Mapping *up, *down;      // the stack of the class
  Mapping *older, *newer;  // all free mappings
  Mapping *previous_all, *next_all;

  // The data begins within the first page, at a multiple of 64 that differs from mapping to mapping: were all blocks
  // laid out alike, the streams of a kernel that reads many of them would compete for the same sets of the caches. For
  // huge pages that page lies before the aligned address, so that writing the header brings in 4 KiB and not 2 MiB.
  static constexpr size_t kColours = kPage / 64 - 1;
};

struct CachingAllocator::Chunk {
  char* start;
  char* next;     // what lies from here on was never handed out
  uint32_t used;  // blocks handed out and not freed
  Chunk *previous, *following;
  char* end() const { return start + kChunkBytes; }
};

size_t CachingAllocator::class_of(size_t bytes) {
  // In units of 64 bytes, less one: 0..7 are classes of their own, then the top three bits below the highest one count.
  const size_t last = (std::max<size_t>(bytes, 1) - 1) / 64;
  if (last < 8) return last;
  const size_t shift = std::bit_width(last) - 4;
  return 8 + shift * 8 + ((last >> shift) - 8);
}

size_t CachingAllocator::class_bytes(size_t index) {
  if (index < 8) return (index + 1) * 64;
  return (((index - 8) % 8 + 9) << ((index - 8) / 8)) * 64;
}

CachingAllocator::CachingAllocator() : CachingAllocator(Options()) {}

CachingAllocator::CachingAllocator(Options options)
    : options_([&] {
        if (options.cache_ceiling == 0) options.cache_ceiling = machine_memory() / 4;
        return options;
      }()),
      epoch_start_(now_nanoseconds()) {}

CachingAllocator::~CachingAllocator() {
  for (Mapping* mapping = all_; mapping != nullptr;) {
    Mapping* next = mapping->next_all;
    mapping->older = nullptr;
    give_back(mapping);
    mapping = next;
  }
  give_back(chunks_);
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes > kLargestRequest) return nullptr;
  const size_t index = class_of(bytes);
  const bool is_small = class_bytes(index) <= kLargestSmall;
  void* data;
  if (is_small) {
    data = take_small(index, bytes);
    while (data == nullptr) {
      if (!add_chunk()) return nullptr;
      data = take_small(index, bytes);
    }
  } else {
    data = take_mapped(index, bytes);
    if (data == nullptr) data = add_mapping(index, bytes);
    if (data == nullptr) return nullptr;
  }
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
  return data;
}

void CachingAllocator::free(void* pointer) {
  if (pointer == nullptr) return;
  Header* header = Header::of(pointer);
  auto complain = [&] { log::error("freed a block of the device's memory that is not in use; ignored"); };
  if (header->state != Header::kUsed) return complain();
  const size_t class_size = class_bytes(header->index);

  if (class_size <= kLargestSmall) {
    Chunk* retired = nullptr;
    {
      std::unique_lock hold(lock_);
      if (header->state != Header::kUsed) {
        hold.unlock();
        return complain();
      }
      ASAN_POISON_MEMORY_REGION(pointer, class_size);
      stats_.allocated -= round_up(header->requested, kAlignment);
      header->state = Header::kFree;
      push(header);
      auto* chunk = static_cast<Chunk*>(header->owner);
      if (--chunk->used != 0 || cached_small_ <= kSmallCacheFloor || chunk == carving_) return;
      retire(chunk, retired);
    }
    give_back(retired);
    return;
  }

  auto* mapping = static_cast<Mapping*>(header->owner);
  Mapping* retired = nullptr;
  {
    std::unique_lock hold(lock_);
    if (!mapping->used) {
      hold.unlock();
      return complain();
    }
    ASAN_POISON_MEMORY_REGION(pointer, class_size);
    stats_.allocated -= round_up(mapping->requested, kAlignment);
    in_use_mapped_ -= mapping->bytes;
    mapping->used = false;
    push(mapping);
    const size_t bound = cache_bound();
    while (cached_mapped_ > bound) retire_oldest(retired);
  }
  give_back(retired);
}

bool CachingAllocator::owns(const void* pointer) {
  if (pointer == nullptr || reinterpret_cast<uintptr_t>(pointer) % kAlignment != 0) return false;
  const Header* header = Header::of(pointer);
  return header->state == Header::kUsed && header->seal == (reinterpret_cast<uintptr_t>(header) ^ Header::kSeal);
}

size_t CachingAllocator::requested_bytes(const void* pointer) {
  const Header* header = Header::of(pointer);
  return header->is_small() ? header->requested : static_cast<const Mapping*>(header->owner)->requested;
}

// ---- small blocks --------------------------------------------------------------------------------------------------

void* CachingAllocator::take_small(size_t index, size_t bytes) {
  std::lock_guard hold(lock_);
  Header* header = small_[index];
  const bool hit = header != nullptr;
  if (hit) {
    remove(header);
  } else {
    const size_t stride = sizeof(Header) + class_bytes(index);
    if (carving_ == nullptr || carving_->next + stride > carving_->end()) return nullptr;
    header = new (carving_->next) Header;
    carving_->next += stride;
    header->index = static_cast<uint32_t>(index);
    header->owner = carving_;
    ASAN_POISON_MEMORY_REGION(header->data(), class_bytes(index));
  }
  header->state = Header::kUsed;
  header->requested = bytes;
  ++static_cast<Chunk*>(header->owner)->used;
  count_allocation(bytes, hit);
  return header->data();
}

bool CachingAllocator::add_chunk() {
  if (!reserve(kChunkBytes)) return false;
  char* start = map(kChunkBytes, true, 0);
  if (start == nullptr) {
    unreserve(kChunkBytes);
    return false;
  }
  auto* chunk = new Chunk{start, start, 0, nullptr, nullptr};
  std::lock_guard hold(lock_);
  chunk->following = chunks_;
  if (chunks_ != nullptr) chunks_->previous = chunk;
  chunks_ = chunk;
  carving_ = chunk;
  return true;
}

void CachingAllocator::push(Header* header) {
  Header*& top = small_[header->index];
  header->up = nullptr;
  header->down = top;
  if (top != nullptr) top->up = header;
  top = header;
  cached_small_ += class_bytes(header->index);
}

void CachingAllocator::remove(Header* header) {
  if (header->up != nullptr) {
    header->up->down = header->down;
  } else {
    small_[header->index] = header->down;
  }
  if (header->down != nullptr) header->down->up = header->up;
  cached_small_ -= class_bytes(header->index);
}

// Moves a chunk without blocks in use to a list, linked through `following`, that give_back() takes.
void CachingAllocator::retire(Chunk* chunk, Chunk*& retired) {
  for (char* p = chunk->start; p < chunk->next;) {
    auto* header = reinterpret_cast<Header*>(p);
    remove(header);
    p += sizeof(Header) + class_bytes(header->index);
  }
  if (carving_ == chunk) carving_ = nullptr;
  (chunk->previous != nullptr ? chunk->previous->following : chunks_) = chunk->following;
  if (chunk->following != nullptr) chunk->following->previous = chunk->previous;
  stats_.reserved -= kChunkBytes;
  chunk->following = retired;
  retired = chunk;
}

void CachingAllocator::give_back(Chunk* retired) {
  while (retired != nullptr) {
    Chunk* following = retired->following;
    ASAN_UNPOISON_MEMORY_REGION(retired->start, kChunkBytes);
    munmap(retired->start, kChunkBytes);
    delete retired;
    retired = following;
  }
}

// ---- mappings ------------------------------------------------------------------------------------------------------

void* CachingAllocator::take_mapped(size_t index, size_t bytes) {
  std::lock_guard hold(lock_);
  size_t found = index;
  if (mapped_[found] == nullptr) {
    const size_t last = std::min(index + kClassesUp, kClassCount - 1);
    do {
      if (++found > last) return nullptr;
    } while (mapped_[found] == nullptr);
  }
  Mapping* mapping = mapped_[found];
  remove(mapping);
  mapping->used = true;
  mapping->requested = bytes;
  count_allocation(bytes, true);
  count_mapped_use(mapping->bytes);
  return mapping->header->data();
}

void* CachingAllocator::add_mapping(size_t index, size_t bytes) {
  const size_t class_size = class_bytes(index);
  const size_t mapped = kPage + round_up(class_size, kPage);
  if (!reserve(mapped)) return nullptr;
  char* start = map(mapped, class_size >= kHugePage, kPage);
  if (start == nullptr) {
    empty_cache();
    start = map(mapped, class_size >= kHugePage, kPage);
  }
  if (start == nullptr) {
    unreserve(mapped);
    return nullptr;
  }
  auto* mapping = new Mapping{};
  mapping->start = start;
  mapping->bytes = mapped;
  mapping->index = static_cast<uint32_t>(index);
  mapping->requested = bytes;
  mapping->used = true;

  std::lock_guard hold(lock_);
  const size_t colour = colour_++ % Mapping::kColours;
  mapping->header = new (start + colour * 64) Header{};
  mapping->header->state = Header::kUsed;
  mapping->header->index = mapping->index;
  mapping->header->owner = mapping;
  ASAN_POISON_MEMORY_REGION(mapping->header->data(), class_size);
  mapping->next_all = all_;
  if (all_ != nullptr) all_->previous_all = mapping;
  all_ = mapping;
  count_allocation(bytes, false);
  count_mapped_use(mapped);
  return mapping->header->data();
}

void CachingAllocator::push(Mapping* mapping) {
  Mapping*& top = mapped_[mapping->index];
  mapping->up = nullptr;
  mapping->down = top;
  if (top != nullptr) top->up = mapping;
  top = mapping;

  mapping->newer = nullptr;
  mapping->older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = mapping;
  newest_ = mapping;
  cached_mapped_ += mapping->bytes;
}

void CachingAllocator::remove(Mapping* mapping) {
  (mapping->up != nullptr ? mapping->up->down : mapped_[mapping->index]) = mapping->down;
  if (mapping->down != nullptr) mapping->down->up = mapping->up;
  (mapping->newer != nullptr ? mapping->newer->older : newest_) = mapping->older;
  (mapping->older != nullptr ? mapping->older->newer : oldest_) = mapping->newer;
  cached_mapped_ -= mapping->bytes;
}

// Moves the oldest free mapping to a list, linked through `older`, that give_back() takes.
void CachingAllocator::retire_oldest(Mapping*& retired) {
  Mapping* mapping = oldest_;
  remove(mapping);
  (mapping->previous_all != nullptr ? mapping->previous_all->next_all : all_) = mapping->next_all;
  if (mapping->next_all != nullptr) mapping->next_all->previous_all = mapping->previous_all;
  stats_.reserved -= mapping->bytes;
  mapping->older = retired;
  retired = mapping;
}

void CachingAllocator::give_back(Mapping* retired) {
  while (retired != nullptr) {
    Mapping* next = retired->older;
    ASAN_UNPOISON_MEMORY_REGION(retired->start, retired->bytes);
    munmap(retired->start, retired->bytes);
    delete retired;
    retired = next;
  }
}

void CachingAllocator::count_mapped_use(size_t bytes) {
  in_use_mapped_ += bytes;
  epoch_peak_ = std::max(epoch_peak_, in_use_mapped_);
  if (++epoch_allocations_ < options_.epoch_allocations) return;
  const int64_t now = now_nanoseconds();
  if (now - epoch_start_ < options_.epoch_nanoseconds) return;
  previous_peak_ = epoch_peak_;
  epoch_peak_ = in_use_mapped_;
  epoch_allocations_ = 0;
  epoch_start_ = now;
}

// A training step needs between its steps what it used at its peak, and more than that: what one phase frees seldom
// has the sizes that the next one wants.
size_t CachingAllocator::cache_bound() const {
  const size_t peak = std::max(epoch_peak_, previous_peak_);
  const size_t wanted = peak + peak / 2 - in_use_mapped_;
  return std::max(options_.cache_floor, std::min(wanted, options_.cache_ceiling));
}

// ---- the system ----------------------------------------------------------------------------------------------------

// For huge pages the address `lead` bytes after the start is aligned to one.
char* CachingAllocator::map(size_t bytes, bool for_huge_pages, size_t lead) {
  const bool huge = for_huge_pages && options_.huge_pages;
  const size_t slack = huge ? kHugePage : 0;
  void* whole = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  auto* start = static_cast<char*>(whole);
  if (!huge) return start;
  char* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(start) + lead, kHugePage)) - lead;
  if (aligned != start) munmap(start, static_cast<size_t>(aligned - start));
  if (const size_t rest = static_cast<size_t>(start + slack - aligned); rest != 0) munmap(aligned + bytes, rest);
  // May fail where the kernel has no huge pages; ordinary ones serve then.
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

bool CachingAllocator::reserve(size_t bytes) {
  const auto limit = static_cast<uint64_t>(flags::memory_limit());
  for (bool emptied = false;; emptied = true) {
    Mapping* retired = nullptr;
    bool fits;
    {
      std::lock_guard hold(lock_);
      auto has_room = [&] { return limit == 0 || (bytes <= limit && stats_.reserved <= limit - bytes); };
      while (!has_room() && oldest_ != nullptr) retire_oldest(retired);
      fits = has_room();
      if (fits) {
        stats_.reserved += bytes;
        stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
      }
    }
    give_back(retired);
    if (fits || emptied) return fits;
    empty_cache();  // chunks too
  }
}

void CachingAllocator::unreserve(size_t bytes) {
  std::lock_guard hold(lock_);
  stats_.reserved -= bytes;
}

void CachingAllocator::empty_cache() {
  Mapping* mappings = nullptr;
  Chunk* chunks = nullptr;
  {
    std::lock_guard hold(lock_);
    while (oldest_ != nullptr) retire_oldest(mappings);
    for (Chunk* chunk = chunks_; chunk != nullptr;) {
      Chunk* following = chunk->following;
      if (chunk->used == 0) retire(chunk, chunks);
      chunk = following;
    }
  }
  give_back(mappings);
  give_back(chunks);
}

// ---- numbers -------------------------------------------------------------------------------------------------------

void CachingAllocator::count_allocation(size_t bytes, bool hit) {
  stats_.allocated += round_up(bytes, kAlignment);
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  ++stats_.alloc_count;
  stats_.cache_hits += hit;
}

CachingAllocator::Stats CachingAllocator::stats() const {
  std::lock_guard hold(lock_);
  Stats stats = stats_;
  stats.limit = static_cast<uint64_t>(flags::memory_limit());
  return stats;
}

void CachingAllocator::reset_peaks() {
  std::lock_guard hold(lock_);
  stats_.peak_allocated = stats_.allocated;
  stats_.peak_reserved = stats_.reserved;
}

Error CachingAllocator::out_of_memory_error(size_t bytes) const {
  const Stats s = stats();
  std::string text = "sinter out of memory. Tried to allocate " + in_words(bytes) + ". ";
  if (s.limit != 0) {
    text += "The device may hold " + in_words(s.limit) + " (SINTER_MEMORY_LIMIT), of which " +
            in_words(s.limit - std::min(s.limit, s.reserved)) + " is free. ";
  } else {
    text += "The system gives no more. ";
  }
  text += "Of the memory in use " + in_words(s.allocated) + " is allocated by tensors, and " +
          in_words(s.reserved - std::min(s.allocated, s.reserved)) + " is reserved but unallocated.";
  return out_of_memory(std::move(text));
}

CachingAllocator& caching_allocator() {
  static CachingAllocator& instance = *[] {
    static CachingAllocator* allocator = nullptr;
    allocator = new CachingAllocator;
    // No other thread is inside while the process forks, so that the child's copy is whole and unlocked.
    pthread_atfork([] { allocator->lock(); }, [] { allocator->unlock(); }, [] { allocator->unlock(); });
    return allocator;
  }();
  return instance;
}

}  // namespace sinter
