// Storages and buffers: how a PyTorch tensor of the device reaches its Buffer, and how kernels see a Buffer.
//
// The storage of a device tensor owns a reference to its Buffer through its DataPtr context. While the buffer has
// no memory, the storage carries an address inside a region that faults when touched, unique to the buffer, never
// null; PyTorch's materializer hook brings the real one when somebody asks for it to write. Kernels see a CPU
// storage, one per Buffer, so that their overlap checks work.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "graph/tensor_meta.h"
#include "runtime/buffer.h"

namespace sinter::torch_device {

using runtime::Buffer;
using runtime::StorageLock;

bool is_device_tensor(const at::TensorBase& tensor);

// The buffer behind a storage of the device. A storage whose memory came from elsewhere (DLPack, another
// library) is given one.
Buffer& buffer_of(const c10::StorageImpl* storage);
inline Buffer& buffer_of(const at::TensorBase& tensor) {
  return buffer_of(tensor.storage().unsafeGetStorageImpl());
}

// A new storage of `nbytes` without contents or memory.
c10::Storage make_storage(size_t nbytes);
// A new device tensor over a storage. Inference mode and autograd keys are those of the calling thread.
at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, int64_t offset = 0);
at::Tensor make_tensor(const graph::TensorMeta& meta);

// Arms the hook that ends the graph when somebody asks for the address. Called at each recorded use.
void arm(c10::StorageImpl* storage);
// Gives a live storage the real address of its buffer.
void install_address(Buffer& buffer);

// Replaces the buffer of a storage by a new one of `nbytes`; the common bytes are copied by the caller.
Ref<Buffer> swap_buffer(c10::StorageImpl* storage, Ref<Buffer> fresh);

// ---- with the buffer's graph finished, or on the thread that runs it
// The CPU storage over the buffer's memory, allocated if it has none.
c10::StorageImpl* cpu_storage(Buffer& buffer);
at::Tensor cpu_view(Buffer& buffer, const graph::TensorMeta& meta, int64_t offset);
// Takes the memory of a fresh CPU tensor as the buffer's own.
void adopt(Buffer& buffer, const at::Tensor& cpu_tensor);

// ---- waits
// A CPU tensor over the memory of a device tensor whose contents are final; `cause` names the sync.
at::Tensor synced_cpu_view(const at::Tensor& tensor, const char* cause);
// As above for an argument that the host is about to write.
at::Tensor writable_cpu_view(const at::Tensor& tensor, const char* cause);

graph::TensorMeta meta_of(const at::TensorBase& tensor);

// A CPU allocator that hands out device memory to kernels that run for us and PyTorch's own to everybody else.
void install_kernel_allocator();
class KernelMemoryScope {
 public:
  KernelMemoryScope();
  ~KernelMemoryScope();
  KernelMemoryScope(const KernelMemoryScope&) = delete;
  KernelMemoryScope& operator=(const KernelMemoryScope&) = delete;
};

// A new DataPtr of device memory whose device is the CPU. Throws OutOfMemoryError at the limit.
c10::DataPtr allocate_cpu(size_t nbytes);

}  // namespace sinter::torch_device
