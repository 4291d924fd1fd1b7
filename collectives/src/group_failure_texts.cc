#include "group_failure_texts.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <utility>

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

Error forked_child_error(std::string_view group, std::string_view belongings) {
  return Error(ErrorCode::kUsage, fmt::format("group '{}' is used in a forked child", group),
               fmt::format("its {} belong to the parent process", belongings),
               "fork before joining the job, or use the group in the parent only");
}

Error left_error(std::string_view group) {
  return Error(ErrorCode::kAborted, fmt::format("this rank has left group '{}'", group));
}

GroupFailure rejected_failure(const Card& member, const Fingerprint& fingerprint,
                              std::string_view group, const Error& error) {
  return {Error(ErrorCode::kPeerFailed,
                fmt::format("{} rejected its {} of group '{}': {}", describe_member(member),
                            fingerprint.describe(), group, error.summary()),
                error.why(), error.remedy()),
          member.global_rank};
}

GroupFailure member_left_failure(const Card& member, std::string_view group, int needed_by,
                                 std::string why) {
  return {Error(ErrorCode::kPeerFailed,
                fmt::format("{} has left group '{}', and rank {} still needs it",
                            describe_member(member), group, needed_by),
                std::move(why), "let all ranks make the same number of calls before they leave"),
          member.global_rank};
}

Error member_lost_error(const Card& member, std::string why) {
  return Error(ErrorCode::kPeerFailed,
               describe_member(member) + " ended without leaving its groups", std::move(why),
               "look at that rank's output first");
}

std::string waited_text(int rank, base::Deadline::Duration waited, const Fingerprint& fingerprint,
                        std::string_view group, std::string_view whom) {
  return fmt::format("rank {} waited {} in {} of group '{}'{}{}", rank,
                     base::format_duration(waited), fingerprint.describe(), group,
                     whom.empty() ? "" : " for ", whom);
}

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::optional<GroupFailure> job_failure(const rendezvous::JobPage* page) {
  if (page == nullptr || !page->aborted()) return std::nullopt;
  const std::string cause = page->describe_cause();
  const int failed = page->header().cause.global_rank;
  if (cause.empty() || failed < 0)
    return GroupFailure{Error(ErrorCode::kAborted, "the job is being stopped", cause), -1};
  return GroupFailure{Error(ErrorCode::kPeerFailed, cause, "", "look at that rank's output first"),
                      failed};
}

}  // namespace dtrun::collectives
