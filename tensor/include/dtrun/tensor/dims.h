// Dims: one number per dim of a tensor: sizes or strides. A value, like a std::vector of numbers,
// but without an allocation up to kInline of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

/// Types of arguments. They stand apart so that a call such as dtrun::zeros(shape) finds the
/// functions on Tensor, and not also those on LocalTensor beside them.
namespace dtrun::tensors::values {

class Dims {
 public:
  using value_type = std::int64_t;
  using iterator = std::int64_t*;
  using const_iterator = const std::int64_t*;
  static constexpr std::size_t kInline = 6;

  Dims() = default;
  explicit Dims(std::size_t count, std::int64_t value = 0) {
    resize_for_overwrite(count);
    std::fill_n(data_, count, value);
  }
  Dims(std::initializer_list<std::int64_t> values) : Dims(values.begin(), values.end()) {}
  Dims(const std::vector<std::int64_t>& values)  // NOLINT: a list of sizes is one
      : Dims(values.data(), values.data() + values.size()) {}
  Dims(const std::int64_t* first, const std::int64_t* last) {
    resize_for_overwrite(static_cast<std::size_t>(last - first));
    std::copy(first, last, data_);
  }
  Dims(const Dims& other) : places_(other.places_), size_(other.size_) {
    if (!other.is_inline()) [[unlikely]]
      copy_long(other);
  }
  Dims(Dims&& other) noexcept { take(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) copy(other);
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~Dims() { release(); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t* data() { return data_; }
  const std::int64_t* data() const { return data_; }
  std::int64_t& operator[](std::size_t d) { return data_[d]; }
  std::int64_t operator[](std::size_t d) const { return data_[d]; }
  std::int64_t& front() { return data_[0]; }
  std::int64_t front() const { return data_[0]; }
  std::int64_t& back() { return data_[size_ - 1]; }
  std::int64_t back() const { return data_[size_ - 1]; }
  iterator begin() { return data_; }
  iterator end() { return data_ + size_; }
  const_iterator begin() const { return data_; }
  const_iterator end() const { return data_ + size_; }

  void push_back(std::int64_t value) { insert(end(), value); }
  void pop_back() { --size_; }
  /// Before `place`; returns where it stands.
  iterator insert(const_iterator place, std::int64_t value) {
    return insert(place, &value, &value + 1);
  }
  iterator insert(const_iterator place, const_iterator first, const_iterator last) {
    const std::size_t at = static_cast<std::size_t>(place - data_);
    const Dims tail(data_ + at, data_ + size_);
    const Dims added(first, last);  // they may be ours
    keep_and_resize(size_ + added.size_);
    std::copy(added.begin(), added.end(), data_ + at);
    std::copy(tail.begin(), tail.end(), data_ + at + added.size_);
    return data_ + at;
  }
  iterator erase(const_iterator place) {
    const std::size_t at = static_cast<std::size_t>(place - data_);
    std::copy(data_ + at + 1, data_ + size_, data_ + at);
    --size_;
    return data_ + at;
  }

  friend bool operator==(const Dims& a, const Dims& b) {
    // A loop: for a few dims a call of memcmp takes longer.
    if (a.size_ != b.size_) return false;
    for (std::uint32_t d = 0; d < a.size_; ++d)
      if (a.data_[d] != b.data_[d]) return false;
    return true;
  }
  friend bool operator<(const Dims& a, const Dims& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  bool is_inline() const { return data_ == places_.values; }
  void release() {
    if (!is_inline()) delete[] data_;
  }
  void copy(const Dims& other) {
    if (is_inline() && other.is_inline()) [[likely]] {
      places_ = other.places_;
      size_ = other.size_;
      return;
    }
    copy_long(other);
  }
  void copy_long(const Dims& other) {
    resize_for_overwrite(other.size_);
    std::copy(other.begin(), other.end(), data_);
  }
  /// The old values are lost.
  void resize_for_overwrite(std::size_t count) {
    if (count > capacity_) {
      std::int64_t* const grown = new std::int64_t[count];
      release();
      data_ = grown;
      capacity_ = static_cast<std::uint32_t>(count);
    }
    size_ = static_cast<std::uint32_t>(count);
  }
  void keep_and_resize(std::size_t count) {
    if (count > capacity_) {
      Dims grown;
      grown.resize_for_overwrite(std::max<std::size_t>(count, std::size_t{2} * capacity_));
      std::copy(begin(), end(), grown.data_);
      *this = std::move(grown);
    }
    size_ = static_cast<std::uint32_t>(count);
  }
  /// Of one that owns nothing now.
  void take(Dims& other) {
    data_ = places_.values;
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kInline);
    if (other.is_inline()) {
      places_ = other.places_;
    } else {
      data_ = std::exchange(other.data_, other.places_.values);
    }
  }

  /// Copied all of them, whatever the size: a call of memmove for a few takes longer.
  struct Places {
    std::int64_t values[kInline] = {};
  };

  Places places_;
  std::int64_t* data_ = places_.values;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = kInline;
};

}  // namespace dtrun::tensors::values

namespace dtrun::tensors {
using values::Dims;
}
