#include "torch/device_memory.h"

#include <c10/util/Exception.h>

#include "runtime/caching_allocator.h"

namespace sinter::torch_device::device_memory {

void* allocate(size_t nbytes) {
  void* block = caching_allocator().allocate(nbytes);
  if (!block)
    TORCH_CHECK_WITH(OutOfMemoryError, false, caching_allocator().out_of_memory_error(nbytes).message);
  return block;
}

void free(void* block) { caching_allocator().free(block); }

}  // namespace sinter::torch_device::device_memory
