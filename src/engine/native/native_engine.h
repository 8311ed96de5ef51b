// The native engine: groups of elementwise ops as generated kernels, everything else through the framework's kernels.
#pragma once

#include <memory>

#include "runtime/executable.h"

namespace sinter::engine {

std::unique_ptr<runtime::Engine> make_native_engine();

}  // namespace sinter::engine
