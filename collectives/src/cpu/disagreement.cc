#include "disagreement.h"

namespace dtrun::collectives::cpu {

namespace {
bool between_two_ranks(const Fingerprint& fingerprint) {
  return fingerprint.kind == OpKind::send || fingerprint.kind == OpKind::receive;
}
}  // namespace

std::string difference(const Fingerprint& a, const Fingerprint& b) {
  const bool pair = between_two_ranks(a) && between_two_ranks(b);
  if (a.kind != b.kind && !pair) return "the operation";
  if (a.sequence != b.sequence && !pair) return "the order of the calls";
  if (a.dtype != b.dtype) return "the dtype";
  if (a.reduce_op != b.reduce_op) return "the reduce op";
  if (a.root != b.root && !pair) return "the root";
  if (a.counts != b.counts) return "the element counts";
  if (a.shape != b.shape && !pair) return "the shape";
  return "the sizes of the buffers";
}

}  // namespace dtrun::collectives::cpu
