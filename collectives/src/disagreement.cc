#include "disagreement.h"

#include <fmt/core.h>

#include <string>

namespace dtrun::collectives {

namespace {

constexpr const char* kRemedy = "every rank of a group must make the same calls in the same order";

/// In what two calls differ, for people. Where they do not, an earlier one did, of which no more is
/// known.
const char* difference(const Fingerprint& a, const Fingerprint& b, bool sizes_differ) {
  const bool messages = is_message(a.kind) && is_message(b.kind);
  if (a.kind != b.kind && !messages) return "the operation";
  if (a.sequence != b.sequence && !messages) return "the order of the calls";
  if (a.dtype != b.dtype) return "the dtype";
  if (a.reduce_op != b.reduce_op) return "the reduce op";
  if (a.root != b.root && !messages) return "the root";
  if (a.counts != b.counts) return "the element counts";
  if (a.shape != b.shape && !messages) return "the shape";
  return sizes_differ ? "the sizes of the buffers" : "a call before these";
}

}  // namespace

base::Error disagreement_error(std::string_view group, RankCall theirs, RankCall ours,
                               const std::optional<UnequalBytes>& bytes) {
  const RankCall& first = theirs.rank < ours.rank ? theirs : ours;
  const RankCall& second = theirs.rank < ours.rank ? ours : theirs;
  std::string detail;
  if (bytes) {
    detail = fmt::format(": rank {} sent {} bytes, rank {} expected {}",
                         bytes->peer_sent ? theirs.rank : ours.rank, bytes->sent,
                         bytes->peer_sent ? ours.rank : theirs.rank, bytes->expected);
  }
  return base::Error(
      base::ErrorCode::kDisagreement,
      fmt::format("ranks of group '{}' disagree: rank {} called {}, rank {} called {}", group,
                  first.rank, first.fingerprint.describe(), second.rank,
                  second.fingerprint.describe()),
      fmt::format("the calls differ in {}{}",
                  difference(first.fingerprint, second.fingerprint, bytes.has_value()), detail),
      kRemedy);
}

base::Error passed_by_error(std::string_view group, RankCall ours, int passed_by) {
  return base::Error(
      base::ErrorCode::kDisagreement,
      fmt::format("ranks of group '{}' disagree: rank {} waits in {} for rank {}, which is past "
                  "that call and has sent nothing",
                  group, ours.rank, ours.fingerprint.describe(), passed_by),
      fmt::format("rank {} called something else in that place; it has made so many calls since "
                  "that the call is no longer known",
                  passed_by),
      kRemedy);
}

}  // namespace dtrun::collectives
