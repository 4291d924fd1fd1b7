// What ProcessGroup does with a call's tensors before a Backend sees them: checks them, makes them
// contiguous, and keeps what must live until the operation is done.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/collectives/agreed_exchange.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/fingerprint.h"
#include "dtrun/tensor/tensor.h"
#include "overlap.h"

namespace dtrun::collectives {

using tensors::LocalTensor;

/// The group's side of the checks.
struct GroupShape {
  int rank;
  int size;
  tensors::DeviceType device;
  std::string_view backend;  ///< its name, for messages
};

/// What messages call an argument: "the output", or an element of a list, "the outputs[3]".
struct ArgumentName {
  ArgumentName(const char* its_text) : text(its_text) {}
  ArgumentName(std::string_view list, std::size_t its_index)
      : text(list), index(static_cast<int>(its_index)) {}
  std::string to_string() const;

  std::string_view text;
  int index = -1;  ///< -1: it is no list's
};

/// An argument and its name, for messages.
struct NamedTensor {
  const LocalTensor& tensor;
  ArgumentName name;
};
struct NamedCount {
  ArgumentName name;
  std::int64_t count;
};
struct NamedList {
  const std::vector<LocalTensor>& tensors;
  std::string_view name;
};
struct NamedRank {
  int rank;
  std::string_view name;
};

// All throw Error kInvalidArgument naming the argument.
/// Defined, on the group's device and of that dtype, which the call's first tensor has.
[[noreturn]] void refuse_tensor(const GroupShape& group, const LocalTensor& tensor,
                                tensors::DType dtype, ArgumentName what);
[[gnu::always_inline]] inline void require_tensor(const GroupShape& group,
                                                  const LocalTensor& tensor, tensors::DType dtype,
                                                  ArgumentName what) {
  if (!tensor.defined() || tensor.device().type != group.device || tensor.dtype() != dtype)
      [[unlikely]]
    refuse_tensor(group, tensor, dtype, what);
}
[[noreturn]] void refuse_rank(const GroupShape& group, int rank, std::string_view what);
inline void require_rank(const GroupShape& group, int rank, std::string_view what) {
  if (rank < 0 || rank >= group.size) [[unlikely]]
    refuse_rank(group, rank, what);
}
/// One tensor per rank.
[[noreturn]] void refuse_length(const GroupShape& group, const std::vector<LocalTensor>& list,
                                std::string_view what);
inline void require_length(const GroupShape& group, const std::vector<LocalTensor>& list,
                           std::string_view what) {
  if (list.size() != static_cast<std::size_t>(group.size)) [[unlikely]]
    refuse_length(group, list, what);
}
/// The same, all of that dtype.
[[gnu::always_inline]] inline void require_list(const GroupShape& group,
                                                const std::vector<LocalTensor>& list,
                                                tensors::DType dtype, std::string_view what) {
  require_length(group, list, what);
  for (std::size_t rank = 0; rank < list.size(); ++rank)
    require_tensor(group, list[rank], dtype, {what, rank});
}
/// Says what is wrong with parts of which is_sound() is not true.
[[noreturn]] void refuse_parts(const AgreedExchange& exchange, const GroupShape& group,
                               const PeerParts& parts, std::string_view what);
[[noreturn]] void refuse_counts(NamedCount a, NamedCount b);
[[gnu::always_inline]] inline void require_same_count(NamedCount a, NamedCount b) {
  if (a.count != b.count) [[unlikely]]
    refuse_counts(a, b);
}
/// Of one shape, and either one view or without an element in common.
void require_image(NamedTensor output, NamedTensor input);
[[noreturn]] void refuse_rows(NamedTensor a, NamedTensor b);
/// The shapes differ in dim 0 at most.
[[gnu::always_inline]] inline void require_same_rows(NamedTensor a, NamedTensor b) {
  const tensors::Shape &left = a.tensor.shape(), &right = b.tensor.shape();
  if (left.size() != right.size() || !std::equal(left.begin() + 1, left.end(), right.begin() + 1))
      [[unlikely]]
    refuse_rows(a, b);
}
// These are inlined: what names an argument in an error is not made where there is none.
/// One piece per rank in `all`; this rank's own is like `own`.
[[gnu::always_inline]] inline void require_pieces(const GroupShape& group, NamedTensor own,
                                                  NamedList all) {
  require_list(group, all.tensors, own.tensor.dtype(), all.name);
  const auto rank = static_cast<std::size_t>(group.rank);
  require_same_count({own.name, own.tensor.numel()}, {{all.name, rank}, all.tensors[rank].numel()});
}
[[noreturn]] void refuse_list(NamedList all, NamedRank root);
/// The same at the root; elsewhere no list.
[[gnu::always_inline]] inline void require_rooted_pieces(const GroupShape& group, NamedTensor own,
                                                         NamedList all, NamedRank root) {
  require_rank(group, root.rank, root.name);
  if (group.rank == root.rank) return require_pieces(group, own, all);
  if (!all.tensors.empty()) [[unlikely]]
    refuse_list(all, root);
}
/// What require_rows() asks where it is not the usual thing.
void require_sizes(const GroupShape& group, NamedTensor whole,
                   const std::vector<std::int64_t>& sizes, std::string_view what);
/// `whole` has sizes[r] rows for each rank r; where there are no sizes, as many for each.
[[gnu::always_inline]] inline void require_rows(const GroupShape& group, NamedTensor whole,
                                                const std::vector<std::int64_t>& sizes,
                                                std::string_view what) {
  const tensors::Shape& shape = whole.tensor.shape();
  if (!sizes.empty() || shape.empty() || shape[0] % group.size != 0) [[unlikely]]
    require_sizes(group, whole, sizes, what);
}
void require_reduce_op(ReduceOp op, tensors::DType dtype);
/// No output overlaps an input, except that this rank's own part may be one buffer on both sides.
void require_each_apart(const CollectiveView& collective, int rank, int size);
/// Whether no output overlaps an input for sure.
inline bool are_apart(const CollectiveView& collective) {
  const std::size_t item_bytes = tensors::item_size(collective.fingerprint.dtype);
  const Extent read = extent_of(collective.inputs, item_bytes);
  return !read.overlaps(extent_of(collective.outputs, item_bytes));
}

/// Of numbers, one after the other.
class NumberHash {
 public:
  void add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0x9e3779b97f4a7c15;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};
/// Of the sizes per dim; never 0.
inline std::uint32_t hash_shape(const LocalTensor& tensor) {
  NumberHash hash;
  for (const std::int64_t size : tensor.shape()) hash.add(static_cast<std::uint64_t>(size));
  return static_cast<std::uint32_t>(hash.value()) | 1U;
}
/// Whether the tensors are of the exchange's dtype and device, and the peers in the order that
/// PeerParts says.
inline bool is_sound(const AgreedExchange& exchange, const GroupShape& group,
                     const PeerParts& parts) {
  if (parts.peers.size() != parts.tensors.size()) return false;
  int last = 0;  // steps to the right
  for (std::size_t i = 0; i < parts.peers.size(); ++i) {
    const int peer = parts.peers[i];
    const int steps = peer - group.rank + (peer < group.rank ? group.size : 0);
    if (peer < 0 || peer >= group.size || steps <= last) return false;
    last = steps;
    const LocalTensor& tensor = parts.tensors[i];
    if (!tensor.defined() || tensor.device() != exchange.device || tensor.dtype() != exchange.dtype)
      return false;
  }
  return true;
}
/// Of anything that all ranks must pass alike.
std::uint64_t hash_bytes(std::string_view bytes);

inline Buffer buffer_of(const LocalTensor& contiguous) {
  return {contiguous.numel() == 0 ? nullptr : contiguous.data(), contiguous.numel(),
          contiguous.dtype(), contiguous.device().index};
}

/// A call's buffers: contiguous, with copies where the tensors are not.
class CallBuffers {
 public:
  Buffer input(const LocalTensor& tensor);
  Buffer output(const LocalTensor& tensor);
  Buffer in_place(const LocalTensor& tensor);
  std::vector<Buffer> inputs(std::span<const LocalTensor> list);
  std::vector<Buffer> outputs(std::span<const LocalTensor> list);
  /// Hands everything over to the call.
  void attach_to(Call& call) &&;

 private:
  Buffer keep(const LocalTensor& contiguous);
  void copy_back(const LocalTensor& target, const LocalTensor& temporary);

  std::vector<LocalTensor> kept_;
  std::vector<std::pair<LocalTensor, LocalTensor>> copies_;  ///< target, temporary
};

}  // namespace dtrun::collectives
