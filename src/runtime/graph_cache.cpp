#include "runtime/graph_cache.h"

#include <string>

#include "graph/graph.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "runtime/metrics.h"
#include "support/flags.h"
#include "support/dump.h"

namespace sinter::runtime {
namespace {

bool subset(const std::vector<bool>& part, const std::vector<bool>& whole) {
  for (size_t i = 0; i < part.size(); ++i)
    if (part[i] && !whole[i]) return false;
  return true;
}

}  // namespace

Result<std::shared_ptr<const Executable>> GraphCache::plan(const graph::Trace& trace,
                                                           const std::vector<bool>& live) {
  const auto timing = metrics().time(Timer::kPlan);
  metrics().add(Counter::kGraphsPlanned);
  graph::Graph graph = build_graph(trace, live);
  SINTER_RETURN_IF_ERROR(passes::run_passes(graph, {.verify = flags::verify_ir(), .exact_only = engine_.exact()}));
  plan::Plan plan = plan::make_plan(graph);
  if (!flags::dump().empty()) dump_text("graph", to_text(graph) + to_text(plan, graph));
  SINTER_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                          engine_.compile(std::move(graph), std::move(plan)));
  return std::shared_ptr<const Executable>(std::move(executable));
}

Result<std::shared_ptr<const Executable>> GraphCache::find_or_plan(const graph::Trace& trace,
                                                                   const std::vector<bool>& live) {
  const uint64_t hash = trace.hash();
  auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    Entry& entry = *it->second;
    if (!entry.trace.same_program(trace)) continue;
    entries_.splice(entries_.begin(), entries_, it->second);
    if (subset(live, entry.live)) {
      metrics().add(Counter::kGraphCacheHits);
      return entry.executable;
    }
    for (size_t i = 0; i < live.size(); ++i) entry.live[i] = entry.live[i] || live[i];
    SINTER_ASSIGN_OR_RETURN(entry.executable, plan(trace, entry.live));
    return entry.executable;
  }
  metrics().add(Counter::kGraphCacheMisses);
  SINTER_ASSIGN_OR_RETURN(std::shared_ptr<const Executable> executable, plan(trace, live));
  Entry entry{hash, trace, live, executable, 0};
  entry.trace.scalars = {};
  entry.bytes = sizeof(Entry) + entry.trace.bytes() + executable->bytes();
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  index_.emplace(hash, entries_.begin());
  evict();
  return executable;
}

void GraphCache::evict() {
  const size_t bound = static_cast<size_t>(flags::graph_cache_bytes());
  while (bytes_ > bound && entries_.size() > 1) {
    const auto last = std::prev(entries_.end());
    auto [begin, end] = index_.equal_range(last->hash);
    for (auto it = begin; it != end; ++it)
      if (it->second == last) {
        index_.erase(it);
        break;
      }
    bytes_ -= last->bytes;
    entries_.erase(last);
    metrics().add(Counter::kGraphCacheEvictions);
  }
}

void GraphCache::clear() {
  entries_.clear();
  index_.clear();
  bytes_ = 0;
}

std::string GraphCache::last_text() const {
  if (entries_.empty()) return "";
  return to_text(build_graph(entries_.front().trace, entries_.front().live));
}

}  // namespace sinter::runtime
