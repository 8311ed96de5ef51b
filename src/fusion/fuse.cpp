#include "fusion/fuse.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "fusion/point.h"

namespace sinter::fusion {
namespace {

// Bounds on a kernel: more accesses than this run out of registers, more dimensions are not worth a loop nest.
constexpr size_t kMostPoints = 64;
constexpr size_t kMostAccesses = 24;
constexpr size_t kMostDimensions = 6;

class Fuser {
 public:
  explicit Fuser(const graph::Graph& graph) : graph_(graph) {}

  Schedule run() {
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      std::vector<PlacedPoint> points = points_of(graph_, i);
      if (points.empty()) {
        close_conflicts(graph_.nodes[i]);
        if (may_raise(graph_.nodes[i])) close_updates();
        schedule_.items.push_back({Item::Kind::kLibrary, i});
        continue;
      }
      for (PlacedPoint& placed : points) add(std::move(placed), points.size() > 1);
    }
    close(open_);
    return std::move(schedule_);
  }

 private:
  struct Open {
    Group group;
    std::unordered_set<uint32_t> touched, written;  // buffers
    bool lists = false;    // has an element of a node over lists
    bool updates = false;  // writes memory that was there before the graph
    size_t accesses = 0;
  };
  using Number = uint32_t;  // of an open group

  // ---- conflicts

  void find_groups(uint32_t buffer, bool also_readers, std::vector<Number>& found) {
    const auto [begin, end] = touching_.equal_range(buffer);
    for (auto it = begin; it != end; ++it) {
      const Open& open = groups_[it->second];
      if (!also_readers && !open.written.count(buffer)) continue;
      if (std::find(found.begin(), found.end(), it->second) == found.end()) found.push_back(it->second);
    }
  }

  void close_conflicts(const graph::Node& node) {
    std::vector<Number> found;
    for (const graph::Use& use : node.uses) find_groups(use.value.buffer, false, found);
    for (const graph::Definition& definition : node.definitions) find_groups(definition.value.buffer, true, found);
    close(found);
  }

  // What may fail because of values. As in dead code removal, ops that the table does not know may.
  static bool may_raise(const graph::Node& node) {
    const ops::Op& op = *node.call->op;
    return op.op_class == ops::OpClass::kLibrary || op.has(ops::kChecksContents);
  }

  // Updates of memory that lives on happen before an op that may fail, as they would have in eager.
  void close_updates() {
    std::vector<Number> found;
    for (const Number number : open_)
      if (groups_[number].updates) found.push_back(number);
    close(std::move(found));
  }

  // ---- joining

  static std::vector<std::vector<int64_t>*> strides_of(std::vector<Point>& points) {
    std::vector<std::vector<int64_t>*> all;
    for (Point& point : points) {
      for (View& view : point.inputs) all.push_back(&view.strides);
      all.push_back(&point.output.strides);
    }
    return all;
  }

  static bool same_place(const View& a, const View& b) {
    return a.value.buffer == b.value.buffer && a.offset == b.offset && a.dtype == b.dtype && a.strides == b.strides;
  }

  // Whether every buffer that one side writes is met by the other only as the same elements at the same points.
  static bool aligned(const std::vector<Point>& a, const std::vector<Point>& b) {
    std::unordered_map<uint32_t, const View*> written;
    for (const auto* side : {&a, &b})
      for (const Point& point : *side) {
        const auto [it, fresh] = written.emplace(point.output.value.buffer, &point.output);
        if (!fresh && !same_place(*it->second, point.output)) return false;
      }
    for (const auto* side : {&a, &b})
      for (const Point& point : *side)
        for (const View& view : point.inputs)
          if (const auto it = written.find(view.value.buffer); it != written.end() && !same_place(*it->second, view))
            return false;
    return true;
  }

  // Puts the points of `from` behind those of `into`; false, with both unchanged, when they do not fit.
  static bool merge(Group& into, Group from) {
    if (into.points.size() + from.points.size() > kMostPoints) return false;
    Group refined = into;
    if (!refine(refined.sizes, strides_of(refined.points), from.sizes, strides_of(from.points))) return false;
    if (refined.sizes.size() > kMostDimensions || !aligned(refined.points, from.points)) return false;
    for (Point& point : from.points) refined.points.push_back(std::move(point));
    into = std::move(refined);
    return true;
  }

  void add(PlacedPoint placed, bool lists) {
    const Point& point = placed.point;
    std::vector<Number> conflicts;
    for (const View& view : point.inputs) find_groups(view.value.buffer, false, conflicts);
    find_groups(point.output.value.buffer, true, conflicts);
    std::sort(conflicts.begin(), conflicts.end());

    Group group{placed.sizes, {placed.point}, 0};
    std::vector<Number> joined, rest;
    for (const Number number : conflicts) {
      const Open& open = groups_[number];
      Group trial = open.group;
      // Older groups first, so that points stay in program order.
      if (open.accesses + 3 <= kMostAccesses && merge(trial, group)) {
        group = std::move(trial);
        joined.push_back(number);
      } else {
        rest.push_back(number);
      }
    }
    close(rest);
    // Groups that were joined in turn hold their points in the order of joining; program order is by node.
    std::stable_sort(group.points.begin(), group.points.end(), [](const Point& a, const Point& b) {
      return std::pair(a.node, a.element) < std::pair(b.node, b.element);
    });
    Open open;
    open.lists = lists;
    for (const Number number : joined) {
      open.lists = open.lists || groups_[number].lists;
      open.accesses += groups_[number].accesses;
      forget(number);
    }
    open.accesses += point.inputs.size() + 1;
    open.group = std::move(group);
    remember(std::move(open));
  }

  // ---- the open groups

  void remember(Open open) {
    for (const Point& point : open.group.points) {
      const uint32_t output = point.output.value.buffer;
      for (const View& view : point.inputs) open.touched.insert(view.value.buffer);
      open.touched.insert(output);
      open.written.insert(output);
      open.updates = open.updates || graph_.buffers[output].origin != graph::Origin::kResult;
    }
    const Number number = next_++;
    for (const uint32_t buffer : open.touched) touching_.emplace(buffer, number);
    groups_.emplace(number, std::move(open));
    open_.push_back(number);
  }

  void forget(Number number) {
    for (const uint32_t buffer : groups_[number].touched) {
      const auto [begin, end] = touching_.equal_range(buffer);
      touching_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == number; }));
    }
    groups_.erase(number);
    open_.erase(std::find(open_.begin(), open_.end(), number));
  }

  // One op alone gains from a kernel of ours when it is long enough to be worth a compile and walks along its memory;
  // what does not (a transposition) PyTorch's kernels do in tiles.
  static bool worth_a_kernel(const Open& open) {
    constexpr int64_t kLeastElements = 2048;
    if (open.group.points.size() > 1 || open.lists) return true;
    int64_t elements = 1;
    for (const int64_t size : open.group.sizes) elements *= size;
    if (elements < kLeastElements) return false;
    const Point& point = open.group.points[0];
    for (const View& view : point.inputs)
      if (view.strides.back() != 0 && view.strides.back() != 1) return false;
    return point.output.strides.back() == 1;
  }

  void close(std::vector<Number> numbers) {
    if (numbers.empty()) return;
    std::sort(numbers.begin(), numbers.end());
    ++wave_;
    for (const Number number : numbers) {
      Open& open = groups_[number];
      if (!worth_a_kernel(open)) {
        schedule_.items.push_back({Item::Kind::kLibrary, open.group.points[0].node});
      } else {
        open.group.wave = wave_;
        schedule_.items.push_back({Item::Kind::kGroup, static_cast<uint32_t>(schedule_.groups.size())});
        schedule_.groups.push_back(std::move(open.group));
      }
      forget(number);
    }
  }

  const graph::Graph& graph_;
  Schedule schedule_;
  std::unordered_map<Number, Open> groups_;
  std::unordered_multimap<uint32_t, Number> touching_;  // buffer to open groups
  std::vector<Number> open_;                            // in the order of opening
  Number next_ = 0;
  uint32_t wave_ = 0;
};

}  // namespace

Schedule fuse(const graph::Graph& graph) { return Fuser(graph).run(); }

std::string to_text(const Schedule& schedule, const graph::Graph& graph) {
  std::string out = "schedule {\n";
  for (const Item& item : schedule.items) {
    if (item.kind == Item::Kind::kLibrary) {
      out += "  " + std::to_string(item.index) + " " + graph.nodes[item.index].call->name + "\n";
      continue;
    }
    const Group& group = schedule.groups[item.index];
    out += "  group " + std::to_string(item.index) + " [";
    for (size_t i = 0; i < group.sizes.size(); ++i) out += (i ? "," : "") + std::to_string(group.sizes[i]);
    out += "] {";
    for (const Point& point : group.points)
      out += " " + std::to_string(point.node) + ":" + graph.nodes[point.node].call->name.substr(6);
    out += " }\n";
  }
  return out + "}\n";
}

}  // namespace sinter::fusion
