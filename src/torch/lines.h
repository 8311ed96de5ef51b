// The user's line: which Python line is running now, for SINTER_TRACE_LINES.
#pragma once

#include <string>

namespace sinter::torch_device {

// "train.py:42 in step", or empty when there is no Python. Takes the GIL when Python is loaded.
std::string current_line();

}  // namespace sinter::torch_device
