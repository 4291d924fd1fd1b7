// Counted<T>: an owner of a T that counts its owners itself: eight bytes, no control block. T
// derives from Count. Several threads may make and drop copies at once; one thread must not change
// a handle that another uses. A T with `static void destroy(T*) noexcept` is destroyed by that, not
// by delete. A T with `static void drop(T*) noexcept` does everything itself when an owner goes:
// the count included.
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

 protected:
  explicit Count(std::uint32_t owners) : owners_(owners) {}
  /// Takes one owner away, unless it is the last. Returns whether it did.
  bool drop_unless_last() {
    std::uint32_t owners = this->owners();
    while (owners > 1) {
      if (owners_.compare_exchange_weak(owners, owners - 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  /// Adds an owner, unless there is none. Returns whether it did.
  bool share_if_owned() {
    std::uint32_t owners = this->owners();
    while (owners > 0) {
      if (owners_.compare_exchange_weak(owners, owners + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  std::atomic<std::uint32_t> owners_{1};

 private:
  template <typename T>
  friend class Counted;
};

template <typename T>
class Counted {
 public:
  Counted() = default;
  Counted(std::nullptr_t) {}  // NOLINT: as a pointer
  /// Takes over the ownership that came with making it.
  explicit Counted(T* made) : object_(made) {}
  /// Another owner of an object that has some already.
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
    if (object_ != nullptr) drop(object_);
  }

  /// Hands this handle's ownership to the caller.
  T* give_up() { return std::exchange(object_, nullptr); }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Counted&, const Counted&) = default;

 private:
  static void drop(T* object) noexcept {
    if constexpr (requires { T::drop(object); }) {
      T::drop(object);
    } else {
      // The last owner alone needs no atomic step: nobody else can make another.
      if (object->owners_.load(std::memory_order_acquire) != 1 &&
          object->owners_.fetch_sub(1, std::memory_order_acq_rel) != 1) {
        return;
      }
      if constexpr (requires { T::destroy(object); }) {
        T::destroy(object);
      } else {
        delete object;
      }
    }
  }

  T* object_ = nullptr;
};

}  // namespace dtrun::base
