// The reference engine: op by op through the host framework's own kernels, in program order, on the same memory.
//
// It is the oracle for every other engine and the fallback of each; it compiles nothing.
#pragma once

#include <memory>

#include "runtime/executable.h"

namespace sinter::engine {

std::unique_ptr<runtime::Engine> make_reference_engine();

}  // namespace sinter::engine
