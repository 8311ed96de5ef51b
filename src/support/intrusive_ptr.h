// Reference counting inside the object: RefCounted is the base, Ref<T> the pointer.
//
// For the few things that several owners share: device buffers and executables in flight; everything else is owned
// once. The count is atomic, so Refs to one object may be copied and dropped on any threads; one Ref is not itself safe
// to assign from two. An object starts with count 0 and the first Ref takes it; make_ref is the way to make one.
// Objects are deleted through their virtual destructor by whoever drops the last Ref, so that destructor must take no
// lock that a holder of Refs may hold. There are no weak references.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace sinter {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    // The last owner must see everything that the others did to the object before they let go.
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // Exact only while nobody else copies or drops Refs. 1 means: the asker is the sole owner.
  uint32_t use_count() const { return count_.load(std::memory_order_acquire); }

 protected:
  virtual ~RefCounted() = default;

 private:
  mutable std::atomic<uint32_t> count_{0};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& other) : Ref(other.get()) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(Ref<U>&& other)
  noexcept : object_(other.detach()) {}
  ~Ref() {
    if (object_) object_->release();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }
  bool operator==(const T* other) const { return object_ == other; }

  // Gives the reference away without dropping it, and takes one over; for contexts of C callbacks.
  [[nodiscard]] T* detach() { return std::exchange(object_, nullptr); }
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace sinter

template <class T>
struct std::hash<sinter::Ref<T>> {
  size_t operator()(const sinter::Ref<T>& ref) const noexcept { return std::hash<T*>()(ref.get()); }
};
