#include "codegen/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "support/flags.h"

namespace sinter::codegen {
namespace {

namespace fs = std::filesystem;

// Stable for ever, unlike support/hash.h.
uint64_t fnv1a(std::string_view bytes, uint64_t state = 0xcbf29ce484222325) {
  for (const char c : bytes) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return state;
}

// Nobody but the user may have written it.
bool is_safe(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool read_all(int file, std::string& out) {
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || !is_safe(status)) return false;
  out.resize(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = read(file, out.data() + done, out.size() - done);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::string kernel_cache_folder() {
  const std::string folder = flags::cache_folder();
  return folder.empty() ? folder : folder + "/kernels";
}

std::string DiskCache::path_of(std::string_view key) const {
  char name[48];
  std::snprintf(name, sizeof name, "/%016" PRIx64 "%016" PRIx64 ".kernel", fnv1a(key), fnv1a(key, 0x9E3779B97F4A7C15));
  return folder_ + name;
}

bool DiskCache::usable() {
  if (checked_) return problem_.empty();
  checked_ = true;
  if (folder_.empty() || limit_ == 0) {
    problem_ = "switched off";
    return false;
  }
  std::error_code error;
  const fs::path path(folder_);
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    problem_ = folder_ + " cannot be made: " + std::strerror(errno);
    return false;
  }
  struct stat status {};
  if (stat(folder_.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    problem_ = folder_ + " is no folder";
  else if (!is_safe(status))
    problem_ = folder_ + " belongs to, or can be written by, somebody else (chmod 700 it, or set SINTER_CACHE_DIR)";
  return problem_.empty();
}

std::optional<std::string> DiskCache::find(std::string_view key) {
  if (!usable()) return std::nullopt;
  const std::string path = path_of(key);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return std::nullopt;
  std::string bytes;
  const bool complete = read_all(file, bytes);
  close(file);
  if (!complete) return std::nullopt;
  size_t key_bytes = 0, object_bytes = 0;
  uint64_t checksum = 0;
  int header = 0;
  if (std::sscanf(bytes.c_str(), "sinter kernel 1\n%zu %zu %" SCNx64 "%n", &key_bytes, &object_bytes, &checksum, &header) != 3)
    return std::nullopt;
  ++header;  // the line's end
  const std::string_view rest = std::string_view(bytes).substr(std::min(bytes.size(), static_cast<size_t>(header)));
  if (rest.size() != key_bytes + object_bytes || rest.substr(0, key_bytes) != key || fnv1a(rest) != checksum)
    return std::nullopt;
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // eviction takes the least recently used
  return std::string(rest.substr(key_bytes));
}

void DiskCache::store(std::string_view key, std::string_view object) {
  if (!usable()) return;
  if (!std::exchange(evicted_, true)) evict();
  static std::atomic<unsigned> number{0};
  const std::string aside = folder_ + "/" + std::to_string(getpid()) + "-" + std::to_string(number++) + ".tmp";
  const int file = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  char header[96];
  const int length = std::snprintf(header, sizeof header, "sinter kernel 1\n%zu %zu %016" PRIx64 "\n", key.size(),
                                   object.size(), fnv1a(object, fnv1a(key)));
  std::string bytes(header, static_cast<size_t>(length));
  bytes += key;
  bytes += object;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const bool closed = close(file) == 0;
  if (done != bytes.size() || !closed || rename(aside.c_str(), path_of(key).c_str()) != 0) unlink(aside.c_str());
}

// Once a process: the oldest files go until a tenth of the limit is free.
void DiskCache::evict() {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, error)) {
    if (!file.is_regular_file(error)) continue;
    entries.push_back({file.last_write_time(error), file.file_size(error), file.path()});
    total += entries.back().bytes;
  }
  if (total <= limit_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit_ - limit_ / 10) break;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

}  // namespace sinter::codegen
