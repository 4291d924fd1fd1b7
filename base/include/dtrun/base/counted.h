// Counted<T>: an owner of a T that counts its owners itself: eight bytes, no control block. T
// derives from Count and has `static void destroy(T*) noexcept`, or is deleted. Copies may be made
// and dropped by several threads at once; one handle is not to be changed by one thread while
// another uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dtrun::base {

/// The number of owners, as a base class. Starts with the one that makes it.
class Count {
 public:
  Count() = default;
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;

  std::uint32_t owners() const { return owners_.load(std::memory_order_relaxed); }

 private:
  template <typename T>
  friend class Counted;
  std::atomic<std::uint32_t> owners_{1};
};

template <typename T>
class Counted {
 public:
  Counted() = default;
  Counted(std::nullptr_t) {}  // NOLINT: as a pointer
  /// Takes over the ownership that came with making it.
  explicit Counted(T* made) : object_(made) {}
  /// One more owner of what has some already.
  static Counted share(T* owned) {
    owned->owners_.fetch_add(1, std::memory_order_relaxed);
    return Counted(owned);
  }

  Counted(const Counted& other) : object_(other.object_) {
    if (object_ != nullptr) object_->owners_.fetch_add(1, std::memory_order_relaxed);
  }
  Counted(Counted&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Counted& operator=(Counted other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Counted() {
    if (object_ == nullptr) return;
    // The last owner alone needs no atomic step: nobody else can make another.
    if (object_->owners_.load(std::memory_order_acquire) != 1 &&
        object_->owners_.fetch_sub(1, std::memory_order_acq_rel) != 1) {
      return;
    }
    if constexpr (requires { T::destroy(object_); }) {
      T::destroy(object_);
    } else {
      delete object_;
    }
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Counted&, const Counted&) = default;

 private:
  T* object_ = nullptr;
};

}  // namespace dtrun::base
