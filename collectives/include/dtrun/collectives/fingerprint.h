// Fingerprint: what every rank of a group must agree on in one collective. It travels with the
// operation; the first rank that sees two different ones reports both sides. The call site is for
// the message only.
#pragma once

#include <cstdint>
#include <string>

#include "dtrun/base/call_site.h"
#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

enum class OpKind : std::uint8_t {
  none,
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  send,
  receive,
  split,
  monitored_barrier,
};
const char* op_kind_name(OpKind kind);
/// Whether a reduce op is part of the call.
bool is_reduction(OpKind kind);
/// Whether the call is between two ranks: a send or a receive.
bool is_message(OpKind kind);

/// Of parts: how many elements they have together, which messages say, and above that a hash of
/// how many each has.
inline constexpr std::uint64_t kMostElements = (std::uint64_t{1} << 40) - 1;
constexpr std::uint64_t parts_count(std::uint64_t elements, std::uint64_t hash) {
  return (elements & kMostElements) | (hash | 1) << 40;
}

/// 64 bytes, trivially copyable: it lies in shared memory and in message headers as it is.
struct Fingerprint {
  std::uint64_t sequence = 0;  ///< the group's count of collectives, from 1
  OpKind kind = OpKind::none;
  tensors::DType dtype = tensors::DType::u8;
  ReduceOp reduce_op = ReduceOp::sum;
  std::uint8_t reserved = 0;
  std::int32_t root = -1;    ///< source or destination, group rank; -1: none. Of a message the peer
  std::uint64_t counts = 0;  ///< the element count, or, of parts that must be equal on all ranks,
                             ///< parts_count(); 0: free
  std::uint32_t shape = 0;   ///< hash of the tensor's sizes where they must be equal; 0: free. Of a
                             ///< message the tag
  char site[36] = {};        ///< "train.cc:212", NUL-terminated; never compared

  /// Everything but the site.
  bool agrees_with(const Fingerprint& other) const;
  /// Of the same: equal where they agree, hardly ever where they do not.
  std::uint64_t digest() const;
  /// "all_reduce #41 (f32 x 1024, sum) at train.cc:212".
  std::string describe() const;
};
static_assert(sizeof(Fingerprint) == 64);

void set_site(Fingerprint& fingerprint, const base::CallSite& where);

}  // namespace dtrun::collectives
