#include "torch/memory.h"

#include <ATen/ops/empty_cpu_dispatch.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <atomic>

#include "runtime/caching_allocator.h"
#include "torch/device_memory.h"
#include "torch/device_state.h"

namespace sinter::torch_device {
namespace {

// ---------------------------------------------------------------- addresses of buffers without memory

constexpr size_t kNowhereBytes = size_t{1} << 32;

char* nowhere() {
  static char* const region = [] {
    void* mapped = mmap(nullptr, kNowhereBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
  }();
  return region;
}

// Unique until the region has been gone through, which takes 67 million buffers.
void* address_without_memory() {
  static std::atomic<uint64_t> next{0};
  return nowhere() + (next.fetch_add(64, std::memory_order_relaxed) % kNowhereBytes);
}

// ---------------------------------------------------------------- the storage's side

void release_from_storage(void* context) {
  Buffer* buffer = static_cast<Buffer*>(context);
  {
    StorageLock lock(*buffer);
    buffer->storage = nullptr;
  }
  buffer->storage_alive.store(false, std::memory_order_relaxed);
  buffer->release();
}

c10::DataPtr data_ptr_for(Ref<Buffer> buffer, c10::StorageImpl* storage) {
  void* address = buffer->data();
  if (!address && buffer->nbytes) address = address_without_memory();
  buffer->storage_alive.store(true, std::memory_order_relaxed);
  buffer->storage = storage;
  return {address, buffer.detach(), &release_from_storage, kDevice};
}

void materialize(c10::StorageImpl* storage) {
  Buffer& buffer = buffer_of(storage);
  check(stream().wait_for_uses(buffer, "data_ptr"));
  cpu_storage(buffer);
  install_address(buffer);
}

c10::Allocator* device_allocator() { return c10::GetAllocator(kDeviceType); }

void release_cpu_storage(void* owner) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(owner));
}

void attach_storage(Buffer& buffer, c10::intrusive_ptr<c10::StorageImpl> cpu) {
  void* address = const_cast<void*>(cpu->data());
  buffer.attach(address, cpu.release(), &release_cpu_storage);
}

}  // namespace

bool is_device_tensor(const at::TensorBase& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

Buffer& buffer_of(const c10::StorageImpl* storage) {
  const c10::DataPtr& data = storage->data_ptr();
  if (data.get_deleter() == &release_from_storage) [[likely]]
    return *static_cast<Buffer*>(data.get_context());
  // Memory from elsewhere: the buffer's CPU storage keeps the old DataPtr alive.
  auto* writable = const_cast<c10::StorageImpl*>(storage);
  Ref<Buffer> buffer = make_ref<Buffer>(storage->nbytes());
  c10::DataPtr old = std::move(writable->_mutable_data_ptr_no_checks());
  void* address = old.get();
  if (address) {
    // The storage's destructor runs the foreign deleter; it may need locks of its own.
    auto* holder = new c10::DataPtr(std::move(old));
    auto cpu = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage->nbytes(),
        c10::DataPtr(address, holder, [](void* p) { delete static_cast<c10::DataPtr*>(p); },
                     c10::Device(c10::kCPU)),
        c10::GetCPUAllocator(), /*resizable=*/true);
    attach_storage(*buffer, std::move(cpu));
    buffer->contents = true;
    buffer->foreign = true;
  }
  Buffer& result = *buffer;
  writable->_mutable_data_ptr_no_checks() = data_ptr_for(std::move(buffer), writable);
  return result;
}

c10::Storage make_storage(size_t nbytes) {
  Ref<Buffer> buffer = make_ref<Buffer>(nbytes);
  Buffer& kept = *buffer;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(nbytes),
      data_ptr_for(std::move(buffer), nullptr), device_allocator(), /*resizable=*/true);
  kept.storage = storage.get();
  if (nbytes) storage->set_materializer(&materialize);
  return c10::Storage(std::move(storage));
}

at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(kKey), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor make_tensor(const graph::TensorMeta& meta) {
  at::Tensor tensor = make_tensor(make_storage(meta.extent_bytes()),
                                  static_cast<c10::ScalarType>(meta.dtype), meta.sizes, meta.strides);
  if (meta.conj) tensor._set_conj(true);
  if (meta.neg) tensor._set_neg(true);
  return tensor;
}

void arm(c10::StorageImpl* storage) {
  if (!storage->has_materializer()) storage->set_materializer(&materialize);
}

void install_address(Buffer& buffer) {
  StorageLock lock(buffer);
  if (!buffer.storage) return;
  auto* storage = static_cast<c10::StorageImpl*>(buffer.storage);
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (data.get() == buffer.data() || data.get_context() != &buffer) return;
  void* context = data.release_context();
  data = c10::DataPtr(buffer.data(), context, &release_from_storage, kDevice);
}

Ref<Buffer> swap_buffer(c10::StorageImpl* storage, Ref<Buffer> fresh) {
  Ref<Buffer> old(&buffer_of(storage));
  const size_t nbytes = fresh->nbytes;
  // The old DataPtr's deleter clears the back pointer of the old buffer.
  storage->_mutable_data_ptr_no_checks() = data_ptr_for(std::move(fresh), storage);
  storage->set_nbytes(nbytes);
  arm(storage);
  return old;
}

// ---------------------------------------------------------------- the kernels' side

c10::StorageImpl* cpu_storage(Buffer& buffer) {
  if (!buffer.has_memory()) {
    attach_storage(buffer, c10::make_intrusive<c10::StorageImpl>(
                               c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(buffer.nbytes),
                               allocate_cpu(buffer.nbytes), c10::GetCPUAllocator(), /*resizable=*/true));
    install_address(buffer);
  }
  return static_cast<c10::StorageImpl*>(buffer.owner());
}

namespace {
at::Tensor view_of(Buffer& buffer, c10::ScalarType dtype, c10::IntArrayRef sizes,
                   c10::IntArrayRef strides, int64_t offset) {
  auto storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(cpu_storage(buffer));
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}
}  // namespace

at::Tensor cpu_view(Buffer& buffer, const graph::TensorMeta& meta, int64_t offset) {
  const size_t extent = meta.extent_bytes();
  TORCH_CHECK(extent == 0 || extent + static_cast<size_t>(offset) * meta.element_size <= buffer.nbytes,
              "sinter: a view of ", to_text(meta), " at offset ", offset, " does not fit the ", buffer.nbytes,
              " bytes of its storage");
  at::Tensor view =
      view_of(buffer, static_cast<c10::ScalarType>(meta.dtype), meta.sizes, meta.strides, offset);
  if (meta.conj) view._set_conj(true);
  if (meta.neg) view._set_neg(true);
  return view;
}

void adopt(Buffer& buffer, const at::Tensor& cpu_tensor) {
  c10::intrusive_ptr<c10::StorageImpl> storage =
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(cpu_tensor.storage().unsafeGetStorageImpl());
  attach_storage(buffer, std::move(storage));
  install_address(buffer);
}

// ---------------------------------------------------------------- waits

graph::TensorMeta meta_of(const at::TensorBase& tensor) {
  graph::TensorMeta meta;
  meta.dtype = static_cast<graph::DType>(tensor.scalar_type());
  meta.element_size = static_cast<uint8_t>(tensor.element_size());
  meta.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  meta.strides.assign(tensor.strides().begin(), tensor.strides().end());
  meta.conj = tensor.is_conj();
  meta.neg = tensor.is_neg();
  return meta;
}

at::Tensor synced_cpu_view(const at::Tensor& tensor, const char* cause) {
  Buffer& buffer = buffer_of(tensor);
  check(stream().wait(buffer, cause));
  at::Tensor view =
      view_of(buffer, tensor.scalar_type(), tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  return view;
}

at::Tensor writable_cpu_view(const at::Tensor& tensor, const char* cause) {
  check(stream().wait_for_uses(buffer_of(tensor), cause));
  return synced_cpu_view(tensor, cause);
}

// ---------------------------------------------------------------- memory for library calls

namespace {

thread_local int kernel_depth = 0;

class KernelAllocator final : public c10::Allocator {
 public:
  explicit KernelAllocator(c10::Allocator* default_allocator) : default_(default_allocator) {
    default_release = default_->raw_deleter();
  }

  c10::DataPtr allocate(size_t nbytes) override {
    return kernel_depth ? allocate_cpu(nbytes) : default_->allocate(nbytes);
  }
  // oneDNN's wrapper allocates and frees raw pointers, and may do so on either side of a scope: the deleter tells
  // whose a pointer is.
  c10::DeleterFnPtr raw_deleter() const override { return &release_either; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

 private:
  static void release_either(void* pointer) {
    if (CachingAllocator::owns(pointer))
      device_memory::free(pointer);
    else
      default_release(pointer);
  }

  static inline c10::DeleterFnPtr default_release = nullptr;
  c10::Allocator* default_;
};

}  // namespace

KernelMemoryScope::KernelMemoryScope() { ++kernel_depth; }
KernelMemoryScope::~KernelMemoryScope() { --kernel_depth; }

void install_kernel_allocator() {
  static KernelAllocator* const allocator = [] {
    auto* made = new KernelAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, /*priority=*/100);
    return made;
  }();
  (void)allocator;
}

c10::DataPtr allocate_cpu(size_t nbytes) {
  if (nbytes == 0) return {nullptr, nullptr, nullptr, c10::Device(c10::kCPU)};
  void* block = device_memory::allocate(nbytes);
  return {block, block, &device_memory::free, c10::Device(c10::kCPU)};
}

}  // namespace sinter::torch_device
