#include "torch/lines.h"

#include <torch/csrc/profiler/combined_traceback.h>

namespace sinter::torch_device {
namespace {

// Frames of PyTorch and of this package are not the user's.
bool is_library_frame(const std::string& file) {
  return file.find("/torch/") != std::string::npos || file.find("/torch_sinter/") != std::string::npos ||
         file.find("<frozen") != std::string::npos;
}

}  // namespace

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
