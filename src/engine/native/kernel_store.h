// Every kernel of the process, by its text: compiled once, shared by all plans.
#pragma once

#include "loops/kernel.h"
#include "support/result.h"

namespace sinter::engine {

struct LoadedKernel {
  loops::Function function = nullptr;
  std::string name;  // unique in the process; what profiles and dumps show
};

// Looks the kernel up, or compiles it now. The pointer stays valid for the life of the process.
Result<const LoadedKernel*> find_or_compile(const loops::Kernel& kernel);

}  // namespace sinter::engine
