// Parts: what each rank gives or gets of one tensor: rows of dim 0, one range after the other, or
// whole[r]. In a contiguous tensor they lie one behind the other, so a short call needs no tensor
// for each. TensorList: that, or tensors. Both borrow.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "arguments.h"

namespace dtrun::collectives {

class Parts {
 public:
  Parts() = default;
  /// Each of the shape of `part`: equal parts of dim 0, or, where `whole` has one dim more,
  /// whole[r]. @throws Error kInvalidArgument
  static Parts equal(const GroupShape& group, NamedTensor whole, NamedTensor part);
  /// sizes[r] rows for rank r; equal parts where there are no sizes. @throws the same
  [[gnu::always_inline]] static Parts split(const GroupShape& group, NamedTensor whole,
                                            const std::vector<std::int64_t>& sizes,
                                            std::string_view what) {
    require_rows(group, whole, sizes, what);
    Parts parts;
    parts.whole_ = &whole.tensor;
    parts.size_ = static_cast<std::size_t>(group.size);
    if (!sizes.empty()) parts.sizes_ = &sizes;
    const std::int64_t rows = whole.tensor.shape()[0];
    parts.rows_ = rows / group.size;
    parts.row_count_ = rows == 0 ? 0 : whole.tensor.numel() / rows;
    return parts;
  }

  const LocalTensor& whole() const { return *whole_; }
  std::size_t size() const { return size_; }
  /// Elements of a rank's part.
  std::int64_t count(std::size_t rank) const {
    return (sizes_ == nullptr ? rows_ : (*sizes_)[rank]) * row_count_;
  }
  /// Views of the whole.
  std::vector<LocalTensor> tensors() const;

 private:
  const LocalTensor* whole_ = nullptr;
  const std::vector<std::int64_t>* sizes_ = nullptr;  ///< null: all have rows_
  std::size_t size_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t row_count_ = 0;  ///< elements of a row
  bool are_stacked_ = false;    ///< whole[r]
};

struct TensorList {
  TensorList(const LocalTensor& tensor) : tensors(&tensor, 1) {}
  TensorList(std::span<const LocalTensor> list) : tensors(list) {}
  TensorList(const std::vector<LocalTensor>& list) : tensors(list) {}
  TensorList(const Parts& its_parts) : parts(&its_parts) {}

  std::span<const LocalTensor> tensors;
  const Parts* parts = nullptr;  ///< instead of tensors
};

/// A buffer for each rank of the group: those of `some`, and `empty` for the others.
/// @param peers whose `some` are
std::vector<Buffer> for_all_ranks(std::span<const Buffer> some, std::span<const int> peers,
                                  int ranks, const Buffer& empty);

/// Never 0; equal for equal lists of counts.
std::uint64_t hash_counts(const std::vector<LocalTensor>& list);
std::uint64_t hash_counts(const Parts& parts);

}  // namespace dtrun::collectives
