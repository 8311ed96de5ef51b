// The user's line: which Python line is running now, for SINTER_TRACE_LINES.
#pragma once

#include <string>

namespace sinter::torch_device {

// "train.py:42 in step", or empty when there is no Python. Takes the GIL when Python is loaded.
std::string current_line();

// The line of an op that was recorded just now: in a backward pass that of the forward call it belongs to, where that
// was traced too.
std::string line_of_recorded_op();

}  // namespace sinter::torch_device
