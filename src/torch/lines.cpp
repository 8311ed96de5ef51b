#include "torch/lines.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <mutex>
#include <unordered_map>

namespace sinter::torch_device {
namespace {

// Frames of PyTorch and of this package are not the user's.
bool is_library_frame(const std::string& file) {
  return file.find("/torch/") != std::string::npos || file.find("/torch_sinter/") != std::string::npos ||
         file.find("<frozen") != std::string::npos;
}

// Lines of forward calls by the autograd node that they made: numbered per thread, in order. Bounded: training makes new
// nodes for ever, and what is older than this many has had its backward pass.
class ForwardLines {
 public:
  void note(uint64_t thread, uint64_t sequence, const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (lines_.size() >= kMost) lines_.clear();
    lines_.emplace(key(thread, sequence), line);  // later calls that make no node meet the same number
  }
  std::string find(uint64_t thread, uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    const auto found = lines_.find(key(thread, sequence));
    return found == lines_.end() ? std::string() : found->second;
  }

 private:
  static constexpr size_t kMost = 1 << 16;
  static uint64_t key(uint64_t thread, uint64_t sequence) { return (thread << 48) ^ sequence; }
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::string> lines_;
};

ForwardLines& forward_lines() {
  static auto& lines = *new ForwardLines;
  return lines;
}

}  // namespace

std::string line_of_recorded_op() {
  if (const c10::intrusive_ptr<torch::autograd::Node> node = torch::autograd::get_current_node())
    if (std::string line = forward_lines().find(node->thread_id(), node->sequence_nr()); !line.empty())
      return line + " (its backward)";
  std::string line = current_line();
  // The node of the call that is being recorded has been made just before.
  if (const uint64_t next = at::sequence_number::peek(); next > 0 && c10::GradMode::is_enabled())
    forward_lines().note(at::RecordFunction::currentThreadId(), next - 1, line);
  return line;
}

std::string current_line() {
  const auto traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  const torch::SymbolizedTracebacks symbolized = torch::symbolize({traceback.get()});
  if (symbolized.tracebacks.empty()) return "";
  std::string fallback;
  for (uint64_t index : symbolized.tracebacks[0]) {
    const auto& frame = symbolized.all_frames[index];
    std::string line = frame.filename + ":" + std::to_string(frame.lineno) + " in " + frame.funcname;
    if (!is_library_frame(frame.filename)) return line;
    if (fallback.empty()) fallback = std::move(line);
  }
  return fallback;
}

}  // namespace sinter::torch_device
