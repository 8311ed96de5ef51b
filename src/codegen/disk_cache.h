// Machine code that outlives the process: one file a kernel, in a folder that the user owns.
//
// A file holds its whole key (kernel text, processor, generator), the object and a checksum over both; whatever does not
// match is a miss. Files are written aside and renamed, so that processes may write at once and a reader never meets
// half a file. Because the contents are run, a folder or file that somebody else could have written is not used.
// File format: "sinter kernel 1\n<key bytes> <object bytes> <FNV-1a 64 of both, hex>\n", then key and object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sinter::codegen {

class DiskCache {
 public:
  // The folder is made when it is first needed. `limit`: bytes; 0 keeps nothing.
  DiskCache(std::string folder, uint64_t limit) : folder_(std::move(folder)), limit_(limit) {}

  std::optional<std::string> find(std::string_view key);
  void store(std::string_view key, std::string_view object);

  // Why the folder is not used; empty while it is.
  const std::string& problem() const { return problem_; }

 private:
  bool usable();
  void evict();
  std::string path_of(std::string_view key) const;

  std::string folder_;
  uint64_t limit_;
  bool checked_ = false;
  bool evicted_ = false;
  std::string problem_;
};

// Where the process keeps its kernels.
std::string kernel_cache_folder();

}  // namespace sinter::codegen
