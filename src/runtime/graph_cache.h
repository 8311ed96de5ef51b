// Remembers what was planned for a trace, so that a repeated step is looked up, not rebuilt.
//
// Keyed by the whole trace (compared, not only hashed). Least recently used entries go when the byte bound is
// exceeded. An entry serves every trace whose visible buffers are a subset of its own; where visibility flaps (with
// garbage collection), the union becomes the entry's. Not thread-safe: the execution lock guards it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/trace.h"
#include "runtime/executable.h"

namespace sinter::runtime {

class GraphCache {
 public:
  explicit GraphCache(Engine& engine) : engine_(engine) {}

  // The executable for a trace, planned now if need be. live[b]: some tensor can see buffer b.
  Result<std::shared_ptr<const Executable>> find_or_plan(const graph::Trace& trace,
                                                         const std::vector<bool>& live);
  void clear();
  size_t size() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }
  // The text of the graph planned or found last; built when asked for.
  std::string last_text() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    graph::Trace trace;  // without scalars
    std::vector<bool> live;
    std::shared_ptr<const Executable> executable;
    size_t bytes = 0;
  };

  Result<std::shared_ptr<const Executable>> plan(const graph::Trace& trace, const std::vector<bool>& live);
  void evict();

  Engine& engine_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> index_;
  size_t bytes_ = 0;
};

}  // namespace sinter::runtime
