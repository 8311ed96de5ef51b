#include "engine/native/native_engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/native/kernel_store.h"
#include "engine/reference/reference_engine.h"
#include "engine/step_rules.h"
#include "fusion/fuse.h"
#include "loops/lower.h"
#include "runtime/metrics.h"
#include "runtime/timeline.h"
#include "support/dump.h"
#include "support/flags.h"
#include "support/log.h"

namespace sinter::engine {
namespace {

using graph::DType;
using loops::BoundScalar;
using loops::Code;
using runtime::Buffer;

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  uint32_t out;
  if (exponent == 31) {
    out = sign | 0x7f800000 | fraction << 13;
  } else if (exponent == 0) {
    float value = static_cast<float>(fraction) * 0x1p-24f;
    std::memcpy(&out, &value, 4);
    out |= sign;
  } else {
    out = sign | (exponent + 112) << 23 | fraction << 13;
  }
  float value;
  std::memcpy(&value, &out, 4);
  return value;
}

template <typename T>
T read_as(const graph::Scalar& scalar) {
  T value;
  std::memcpy(&value, scalar.bits, sizeof value);
  return value;
}

// The word that a kernel expects for a scalar.
int64_t word_of(const graph::Scalar& scalar, const BoundScalar& bound) {
  bool floating = bound.kind == graph::ScalarKind::kFloat;
  double number = 0;
  int64_t whole = 0;
  if (!bound.host_tensor) {
    if (floating)
      number = read_as<double>(scalar);
    else
      whole = static_cast<int64_t>(scalar.bits[0]);
  } else {
    switch (bound.dtype) {
      case DType::kFloat64:
        number = read_as<double>(scalar);
        break;
      case DType::kFloat32:
        number = read_as<float>(scalar);
        break;
      case DType::kFloat16:
        number = half_to_float(read_as<uint16_t>(scalar));
        break;
      case DType::kBFloat16: {
        const uint32_t bits = static_cast<uint32_t>(read_as<uint16_t>(scalar)) << 16;
        float value;
        std::memcpy(&value, &bits, 4);
        number = value;
        break;
      }
      case DType::kBool:
      case DType::kUInt8:
        whole = read_as<uint8_t>(scalar);
        break;
      case DType::kInt8:
        whole = read_as<int8_t>(scalar);
        break;
      case DType::kInt16:
        whole = read_as<int16_t>(scalar);
        break;
      case DType::kInt32:
        whole = read_as<int32_t>(scalar);
        break;
      default:
        whole = read_as<int64_t>(scalar);
    }
  }
  int64_t word;
  if (bound.to == loops::Type::kInt || bound.to == loops::Type::kBool) return whole;
  if (!floating) number = bound.to == loops::Type::kFloat ? static_cast<float>(whole) : static_cast<double>(whole);
  std::memcpy(&word, &number, 8);
  return word;
}

// One group with its memory: what a kernel runs on.
struct Part {
  std::vector<loops::BoundAccess> accesses;  // offsets in bytes
  std::vector<uint32_t> reads, writes;       // buffers
  std::vector<int64_t> words;                // as the kernel reads them; pointers and scalars are filled in
  std::vector<BoundScalar> scalars;
  int64_t units = 0;                         // what begin and end of loops::Function count
  int64_t points_a_unit = 1;
  uint32_t trace_index = 0;                  // of its last op
};

// Parts that one kernel serves, run together.
struct Launch {
  const LoadedKernel* kernel = nullptr;
  std::string description;
  int64_t cost = 1;  // of a point, in plain operations
  std::vector<Part> parts;
};

// Work, in points times cost, below which a second thread costs more than it brings, and the least that one thread gets.
constexpr int64_t kWorthAThread = 24 * 1024;

class NativeExecutable final : public runtime::Executable {
 public:
  struct Step {
    int32_t library = -1, launch = -1;  // one of the two
    std::vector<uint32_t> releases;
  };

  runtime::RunResult run(const runtime::RunArguments& arguments) const override {
    StepRules rules(arguments);
    LibraryStep::Scratch scratch;
    for (uint32_t buffer : unused) rules.let_go(buffer);
    for (const Step& step : steps) {
      if (step.library >= 0)
        library[static_cast<size_t>(step.library)].run(arguments, rules, scratch);
      else
        run_launch(launches[static_cast<size_t>(step.launch)], arguments, rules, scratch);
      for (uint32_t buffer : step.releases) rules.let_go(buffer);
    }
    return rules.result();
  }

  size_t bytes() const override {
    size_t total = sizeof(*this) + steps.size() * sizeof(Step);
    for (const LibraryStep& op : library) total += op.bytes();
    for (const Launch& launch : launches)
      for (const Part& part : launch.parts)
        total += sizeof part + part.words.size() * 8 + part.accesses.size() * 24 + part.scalars.size() * 16;
    return total;
  }

  std::vector<Step> steps;
  std::vector<LibraryStep> library;
  std::vector<Launch> launches;
  std::vector<uint32_t> unused;

 private:
  struct Chunk {
    const int64_t* words;
    int64_t begin, end;
  };
  struct Work {
    loops::Function function;
    const Chunk* chunks;
  };

  static void run_launch(const Launch& launch, const runtime::RunArguments& arguments, StepRules& rules,
                         LibraryStep::Scratch& scratch) {
    static thread_local std::vector<int64_t> words;
    static thread_local std::vector<Chunk> chunks;
    size_t total_words = 0;
    int64_t total_work = 0;
    for (const Part& part : launch.parts) {
      total_words += part.words.size();
      total_work += part.units * part.points_a_unit * launch.cost;
    }
    words.clear();
    words.reserve(total_words);  // chunks point into it
    chunks.clear();
    const int64_t at_once = std::max<int64_t>(kWorthAThread, total_work / 16);
    for (const Part& part : launch.parts) {
      scratch.reads.clear();
      scratch.writes.clear();
      for (uint32_t number : part.reads) scratch.reads.push_back(rules.buffer(number));
      for (uint32_t number : part.writes) scratch.writes.push_back(rules.buffer(number));
      std::exception_ptr error = rules.forbids(scratch.reads, scratch.writes, part.trace_index);
      for (size_t i = 0; !error && i < scratch.writes.size(); ++i) {
        scratch.writes[i]->failure = nullptr;
        error = arguments.host.give_memory(*scratch.writes[i]);
      }
      for (size_t i = 0; !error && i < scratch.reads.size(); ++i)
        error = arguments.host.give_memory(*scratch.reads[i]);  // memory that nobody wrote: torch.empty
      if (error) {
        rules.failed(error, part.trace_index, scratch.writes);
        continue;
      }
      const size_t first = words.size();
      words.insert(words.end(), part.words.begin(), part.words.end());
      for (size_t i = 0; i < part.accesses.size(); ++i)
        words[first + i] = reinterpret_cast<int64_t>(rules.buffer(part.accesses[i].buffer)->data()) +
                           part.accesses[i].offset;
      const size_t scalars = first + part.words.size() - part.scalars.size();
      for (size_t i = 0; i < part.scalars.size(); ++i)
        words[scalars + i] = word_of(arguments.scalars[part.scalars[i].slot], part.scalars[i]);
      const int64_t units_at_once = std::max<int64_t>(1, at_once / (part.points_a_unit * launch.cost));
      for (int64_t begin = 0; begin < part.units; begin += units_at_once)
        chunks.push_back({&words[first], begin, std::min(part.units, begin + units_at_once)});
      StepRules::written(scratch.writes);
    }
    if (chunks.empty()) return;
    std::optional<runtime::Spanning> span;
    if (runtime::timeline().recording())
      span.emplace(runtime::Span::Kind::kKernel, launch.kernel->name, launch.description,
                   runtime::Timeline::event_of(launch.parts.back().trace_index));
    metrics().add(Counter::kKernelsRun);
    Work work{launch.kernel->function, chunks.data()};
    const auto body = [](void* context, int64_t begin, int64_t end) {
      const Work& work = *static_cast<Work*>(context);
      for (int64_t i = begin; i < end; ++i) work.function(work.chunks[i].words, work.chunks[i].begin, work.chunks[i].end);
    };
    const auto count = static_cast<int64_t>(chunks.size());
    if (total_work < 2 * kWorthAThread || count == 1)
      body(&work, 0, count);
    else
      arguments.host.parallel_for(count, 1, body, &work);
  }
};

// ---------------------------------------------------------------- planning

int64_t cost_of(const loops::Kernel& kernel) {
  int64_t cost = static_cast<int64_t>(kernel.accesses.size()) / 2;
  for (const loops::Instruction& node : kernel.body)
    if (node.code == Code::kExp || node.code == Code::kTanh || node.code == Code::kErf || node.code == Code::kDiv ||
        node.code == Code::kSqrt)
      cost += 2;
  for (const loops::MemoryAccess& access : kernel.accesses) cost += access.inner == loops::Stride::kAny ? 4 : 0;
  return std::max<int64_t>(1, cost);
}

Part make_part(const graph::Graph& graph, const fusion::Group& group, loops::Loop loop) {
  Part part;
  const loops::Kernel& kernel = loop.kernel;
  const size_t count = kernel.accesses.size();
  part.words.assign(loops::argument_words(kernel), 0);
  std::copy(loop.strides.begin(), loop.strides.end(), part.words.begin() + static_cast<ptrdiff_t>(count));
  std::copy(loop.sizes.begin(), loop.sizes.end(),
            part.words.begin() + static_cast<ptrdiff_t>(count + loop.strides.size()));
  for (size_t i = 0; i < count; ++i) {
    loops::BoundAccess access = loop.accesses[i];
    (kernel.accesses[i].store ? part.writes : part.reads).push_back(access.buffer);
    access.offset *= size_of(kernel.accesses[i].dtype);
    part.accesses.push_back(access);
  }
  for (auto* list : {&part.reads, &part.writes}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  if (kernel.rank == 1) {
    part.units = loop.sizes[0];
  } else {
    part.points_a_unit = loop.sizes.back();
    part.units = loop.points() / part.points_a_unit;
  }
  part.scalars = std::move(loop.scalars);
  part.trace_index = graph.nodes[group.points.back().node].trace_index;
  return part;
}

std::string describe(const graph::Graph& graph, const fusion::Group& group) {
  std::string text;
  for (const fusion::Point& point : group.points) {
    if (!text.empty()) text += "+";
    text += graph.nodes[point.node].call->name.substr(6);
    if (text.size() > 120) return text + "+...";
  }
  return text;
}

class Planner {
 public:
  explicit Planner(const graph::Graph& graph) : graph_(graph), schedule_(fusion::fuse(graph)) {}

  Result<std::unique_ptr<NativeExecutable>> run() {
    count_touches();
    if (!flags::dump().empty()) dump_text("fusion", to_text(schedule_, graph_));
    made_ = std::make_unique<NativeExecutable>();
    const std::vector<fusion::Item>& items = schedule_.items;
    for (size_t i = 0; i < items.size();) {
      if (items[i].kind == fusion::Item::Kind::kLibrary) {
        made_->steps.push_back({static_cast<int32_t>(made_->library.size()), -1, {}});
        made_->library.emplace_back(graph_.nodes[items[i].index], /*own_kernels=*/true);
        node_buffers(graph_.nodes[items[i].index], [&](uint32_t buffer) { last_[buffer] = made_->steps.size() - 1; });
        ++i;
        continue;
      }
      size_t end = i;
      const uint32_t wave = schedule_.groups[items[i].index].wave;
      while (end < items.size() && items[end].kind == fusion::Item::Kind::kGroup &&
             schedule_.groups[items[end].index].wave == wave)
        ++end;
      SINTER_RETURN_IF_ERROR(add_wave(i, end));
      i = end;
    }
    if (!loops_.empty()) dump_text("loops", loops_);
    for (uint32_t buffer = 0; buffer < last_.size(); ++buffer) {
      if (last_[buffer] == kNever)
        made_->unused.push_back(buffer);
      else
        made_->steps[last_[buffer]].releases.push_back(buffer);
    }
    return std::move(made_);
  }

 private:
  static constexpr size_t kNever = ~size_t{0};

  template <typename F>
  static void node_buffers(const graph::Node& node, F&& f) {
    for (const graph::Use& use : node.uses) f(use.value.buffer);
    for (uint32_t buffer : node.results) f(buffer);
  }

  template <typename F>
  static void group_buffers(const fusion::Group& group, F&& f) {
    for (const fusion::Point& point : group.points) {
      for (const fusion::View& view : point.inputs) f(view.value.buffer);
      f(point.output.value.buffer);
    }
  }

  // Whether a buffer is met by one item only.
  void count_touches() {
    const size_t buffers = graph_.buffers.size();
    last_.assign(buffers, kNever);
    std::vector<size_t> first(buffers, kNever);
    shared_.assign(buffers, false);
    for (size_t i = 0; i < schedule_.items.size(); ++i) {
      const auto touch = [&](uint32_t buffer) {
        if (first[buffer] == kNever) first[buffer] = i;
        if (first[buffer] != i) shared_[buffer] = true;
      };
      const fusion::Item& item = schedule_.items[i];
      if (item.kind == fusion::Item::Kind::kLibrary)
        node_buffers(graph_.nodes[item.index], touch);
      else
        group_buffers(schedule_.groups[item.index], touch);
    }
  }

  bool visible(uint32_t buffer) const {
    return shared_[buffer] || graph_.buffers[buffer].live || graph_.buffers[buffer].origin != graph::Origin::kResult;
  }

  // Groups that do not depend on each other: those with the same kernel become one launch.
  Status add_wave(size_t begin, size_t end) {
    std::vector<size_t> launches;  // of this wave
    for (size_t i = begin; i < end; ++i) {
      const fusion::Group& group = schedule_.groups[schedule_.items[i].index];
      SINTER_ASSIGN_OR_RETURN(loops::Loop loop,
                              loops::lower(graph_, group, [&](uint32_t buffer) { return visible(buffer); }));
      if (!flags::dump().empty()) loops_ += describe(graph_, group) + "\n" + to_text(loop.kernel);
      SINTER_ASSIGN_OR_RETURN(const LoadedKernel* kernel, find_or_compile(loop.kernel));
      size_t at = kNever;
      for (size_t known : launches)
        if (made_->launches[known].kernel == kernel) at = known;
      if (at == kNever) {
        at = made_->launches.size();
        launches.push_back(at);
        made_->launches.push_back({kernel, describe(graph_, group), cost_of(loop.kernel), {}});
        made_->steps.push_back({-1, static_cast<int32_t>(at), {}});
        step_of_.push_back(made_->steps.size() - 1);
      }
      made_->launches[at].parts.push_back(make_part(graph_, group, std::move(loop)));
      const size_t step = step_of_[at];
      group_buffers(group, [&](uint32_t buffer) {
        if (last_[buffer] == kNever || last_[buffer] < step) last_[buffer] = step;
      });
    }
    return {};
  }

  const graph::Graph& graph_;
  fusion::Schedule schedule_;
  std::unique_ptr<NativeExecutable> made_;
  std::vector<size_t> last_;  // step that touches a buffer last
  std::vector<bool> shared_;
  std::vector<size_t> step_of_;  // of each launch
  std::string loops_;            // text of the kernels, when asked for
};

class NativeEngine final : public runtime::Engine {
 public:
  std::string_view name() const override { return "native"; }
  bool exact() const override { return false; }

  Result<std::unique_ptr<runtime::Executable>> compile(graph::Graph graph, plan::Plan plan) override {
    Result<std::unique_ptr<NativeExecutable>> made = Planner(graph).run();
    if (made.ok()) return std::unique_ptr<runtime::Executable>(std::move(*made));
    // Slower, and right all the same.
    metrics().add_fallback("graph", made.message());
    log::warning("a graph runs on the reference engine: " + made.message());
    return reference_->compile(std::move(graph), std::move(plan));
  }

 private:
  std::unique_ptr<runtime::Engine> reference_ = make_reference_engine();
};

}  // namespace

std::unique_ptr<runtime::Engine> make_native_engine() { return std::make_unique<NativeEngine>(); }

}  // namespace sinter::engine
