// Device memory by pointer, as c10 deleters need it: the caching allocator of the runtime behind two functions.
#pragma once

#include <cstddef>

namespace sinter::torch_device::device_memory {

// At least `nbytes`, 64-byte aligned, uninitialised. Throws c10::OutOfMemoryError when the limit or the machine
// has no more.
void* allocate(size_t nbytes);
void free(void* block);

}  // namespace sinter::torch_device::device_memory
