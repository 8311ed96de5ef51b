// torch.profiler: the device's kernels on the timeline, under ProfilerActivity.PrivateUse1.
//
// Kineto, PyTorch's profiler library, opens a session with us for each profile. Kernels become events of the device,
// linked to the CPU event (aten::mm, say) during which the op was recorded; runs of graphs become host events.
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <c10/util/ApproximateClock.h>
#include <libkineto.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/timeline.h"
#include "torch/device_state.h"

namespace sinter::torch_device {
namespace {

using libkineto::ActivityType;
using runtime::Span;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    runtime::timeline().start();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    spans_ = runtime::timeline().stop();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(
        logger, [](int32_t) { return nullptr; }, 0, 0);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t,
                    int64_t) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(0, 0, "sinter");
    buffer_->gpuOpCount = 0;
    for (const Span& span : spans_) {
      const bool kernel = span.kind == Span::Kind::kKernel;
      buffer_->emplace_activity(
          buffer_->span, kernel ? ActivityType::CONCURRENT_KERNEL : ActivityType::PRIVATEUSE1_RUNTIME, span.name);
      libkineto::GenericTraceActivity& activity = *buffer_->activities.back();
      activity.startTime = span.begin;
      activity.endTime = span.end;
      activity.id = static_cast<int32_t>(span.event);
      activity.linked = span.event ? linked(activity.id) : nullptr;
      if (!span.detail.empty()) activity.addMetadataQuoted("detail", span.detail);
      activity.log(logger);
    }
    spans_.clear();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, 0, "sinter", "sinter 0"});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {{0, 0, 0, "stream"}}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  // PyTorch brackets each op that it profiles with these, on the op's thread.
  void pushCorrelationId(uint64_t id) override {
    outer_events().push_back(runtime::Timeline::event());
    runtime::Timeline::event() = id;
  }
  void popCorrelationId() override {
    if (outer_events().empty()) return;
    runtime::Timeline::event() = outer_events().back();
    outer_events().pop_back();
  }

 private:
  static std::vector<uint64_t>& outer_events() {
    thread_local std::vector<uint64_t> events;
    return events;
  }

  std::vector<Span> spans_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config&) override {
    if (!wanted.count(ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  const std::string name_ = "sinter";
  const std::set<ActivityType> activities_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

// The older way (autograd's profiler without Kineto) reads a clock around each call. Nothing runs in between, so it
// sees recording; waiting here would turn each call into a graph.
class Stubs final : public torch::profiler::impl::ProfilerStubs {
  using Clock = std::chrono::steady_clock;

 public:
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device) *device = 0;
    *event = std::make_shared<Clock::time_point>(Clock::now());
    if (cpu_ns) *cpu_ns = c10::getTime();
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* from,
                const torch::profiler::impl::ProfilerVoidEventStub* to) const override {
    const auto at = [](const auto& event) { return *static_cast<const Clock::time_point*>(event->get()); };
    return std::chrono::duration<float, std::micro>(at(to) - at(from)).count();
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override { op(0); }
  void synchronize() const override { check(stream().synchronize("profiler")); }
};

const bool stubs_registered = [] {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace
}  // namespace sinter::torch_device
