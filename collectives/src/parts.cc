#include "parts.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

namespace {

/// @param count of the rank's part
template <typename Count>
std::uint64_t hash_of(std::size_t size, Count count) {
  NumberHash hash;
  std::uint64_t elements = 0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const auto mine = static_cast<std::uint64_t>(count(rank));
    elements += mine;
    hash.add(mine);
  }
  return parts_count(elements, hash.value());
}

}  // namespace

Parts Parts::equal(const GroupShape& group, NamedTensor whole, NamedTensor part) {
  const tensors::Shape &shape = part.tensor.shape(), &all = whole.tensor.shape();
  Parts parts;
  parts.whole_ = &whole.tensor;
  parts.size_ = static_cast<std::size_t>(group.size);
  parts.rows_ = 1;
  parts.row_count_ = part.tensor.numel();
  const auto ends_like = [&](std::size_t dims) {
    return std::equal(all.end() - static_cast<std::ptrdiff_t>(dims), all.end(),
                      shape.end() - static_cast<std::ptrdiff_t>(dims));
  };
  parts.are_stacked_ =
      all.size() == shape.size() + 1 && all[0] == group.size && ends_like(shape.size());
  if (parts.are_stacked_) return parts;
  const bool are_joined = !shape.empty() && all.size() == shape.size() &&
                          all[0] == shape[0] * group.size && ends_like(shape.size() - 1);
  if (are_joined) return parts;
  tensors::Shape wanted = shape;
  if (shape.empty())
    wanted.insert(wanted.begin(), group.size);
  else
    wanted[0] *= group.size;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} has the shape [{}], and {} [{}] in a group of {}", whole.name.to_string(),
                  fmt::join(all, ", "), part.name.to_string(), fmt::join(shape, ", "), group.size),
      "", fmt::format("give {} the shape [{}]", whole.name.to_string(), fmt::join(wanted, ", ")));
}

std::vector<LocalTensor> Parts::tensors() const {
  std::vector<LocalTensor> list;
  std::int64_t row = 0;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (are_stacked_) {
      list.push_back(whole_->select(0, static_cast<std::int64_t>(rank)));
      continue;
    }
    const std::int64_t rows =
        sizes_ == nullptr ? whole_->size(0) / static_cast<std::int64_t>(size_) : (*sizes_)[rank];
    list.push_back(whole_->narrow(0, row, rows));
    row += rows;
  }
  return list;
}

std::vector<Buffer> for_all_ranks(std::span<const Buffer> some, std::span<const int> peers,
                                  int ranks, const Buffer& empty) {
  std::vector<Buffer> all(static_cast<std::size_t>(ranks), empty);
  for (std::size_t i = 0; i < some.size(); ++i) all[static_cast<std::size_t>(peers[i])] = some[i];
  return all;
}

std::uint64_t hash_counts(const std::vector<LocalTensor>& list) {
  return hash_of(list.size(), [&](std::size_t rank) { return list[rank].numel(); });
}

std::uint64_t hash_counts(const Parts& parts) {
  return hash_of(parts.size(), [&](std::size_t rank) { return parts.count(rank); });
}

}  // namespace dtrun::collectives
