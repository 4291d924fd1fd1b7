// CrossedParts: what one rank has on both sides of a crossing, by what becomes of it.
#pragma once

#include <vector>

#include "dtrun/tensor/tensor.h"
#include "mesh/crossing.h"
#include "move/exchange.h"

namespace dtrun::dtensor {

/// Views, in the order of the crossing's boxes.
struct CrossedParts {
  struct Kept {
    tensors::LocalTensor from, into;
  };

  std::vector<Kept> kept;
  std::vector<tensors::LocalTensor> sent;
  std::vector<tensors::LocalTensor> received;

  CrossedParts() = default;
  /// @param local holds crossing.given
  /// @param result holds crossing.wanted
  CrossedParts(const Crossing& crossing, const tensors::LocalTensor& local,
               const tensors::LocalTensor& result) {
    for (const Box& box : crossing.kept)
      kept.push_back(
          {shared_part(local, crossing.given, box), shared_part(result, crossing.wanted, box)});
    sent.reserve(crossing.sent.boxes.size());
    for (const Box& box : crossing.sent.boxes)
      sent.push_back(shared_part(local, crossing.given, box));
    received.reserve(crossing.received.boxes.size());
    for (const Box& box : crossing.received.boxes)
      received.push_back(shared_part(result, crossing.wanted, box));
  }
};

/// The parts of a crossing without their memory, for one that comes again. To lay a pattern over
/// memory takes a third of the time that a view takes. They own nothing of a tensor, whose owners
/// in-place operators count.
class PartPatterns {
 public:
  /// @param local of the first side @param result a pattern of the second
  PartPatterns(const Crossing& crossing, const tensors::LocalTensor& local,
               const tensors::LocalTensor& result)
      : local_(local.over(nowhere(local))), parts_(crossing, local_, result) {}

  /// Whether the elements lie as those did that the patterns are of.
  bool are_of(const tensors::LocalTensor& local) const {
    return local.offset() == local_.offset() && local.strides() == local_.strides() &&
           local.storage()->bytes() >= local_.storage()->bytes();
  }
  /// @param local which they are_of() @param result like the pattern
  CrossedParts over(const tensors::LocalTensor& local, const tensors::LocalTensor& result) const {
    CrossedParts parts;
    parts.kept.reserve(parts_.kept.size());
    for (const CrossedParts::Kept& part : parts_.kept)
      parts.kept.push_back({part_in(local, part.from), part_in(result, part.into)});
    parts.sent.reserve(parts_.sent.size());
    for (const tensors::LocalTensor& part : parts_.sent) parts.sent.push_back(part_in(local, part));
    parts.received.reserve(parts_.received.size());
    for (const tensors::LocalTensor& part : parts_.received)
      parts.received.push_back(part_in(result, part));
    return parts;
  }

 private:
  static tensors::StoragePointer nowhere(const tensors::LocalTensor& like) {
    return tensors::Storage::wrap(nullptr, like.storage()->bytes(), like.device(), {});
  }
  static tensors::LocalTensor part_in(const tensors::LocalTensor& whole,
                                      const tensors::LocalTensor& pattern) {
    // A box of as many elements as the whole is the whole.
    return pattern.numel() == whole.numel() ? whole : pattern.over(whole.storage());
  }

  const tensors::LocalTensor local_;
  const CrossedParts parts_;
};

}  // namespace dtrun::dtensor
