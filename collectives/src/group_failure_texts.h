// What errors say when a group fails, whichever backend it has: who, in which call, for how long.
// Of the ranks' disagreement: disagreement.h. Ranks are global. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/fingerprint.h"
#include "dtrun/rendezvous/job_page.h"
#include "group_failure.h"
#include "membership.h"

namespace dtrun::collectives {

/// @param belongings of the parent, which the child must not touch: "connections and shared memory"
base::Error forked_child_error(std::string_view group, std::string_view belongings);
/// Of calls after this rank's own leaving.
base::Error left_error(std::string_view group);
/// For the others: that rank's call failed before its backend saw it.
GroupFailure rejected_failure(const Card& member, const Fingerprint& fingerprint,
                              std::string_view group, const base::Error& error);
/// The member has left, and rank `needed_by` still needs it. @param why may be empty
GroupFailure member_left_failure(const Card& member, std::string_view group, int needed_by,
                                 std::string why);
/// The member's end came without a word. @param why may be empty
base::Error member_lost_error(const Card& member, std::string why);
/// "rank 1 waited 2 s in all_reduce #3 (...) of group 'world' for ranks 2, 3"; without the end
/// where `whom` is empty.
std::string waited_text(int rank, base::Deadline::Duration waited, const Fingerprint& fingerprint,
                        std::string_view group, std::string_view whom);
/// "rank 3", "ranks 1, 2".
std::string rank_list(const std::vector<int>& ranks);
/// Set once the launcher has aborted the job. @param page may be null
std::optional<GroupFailure> job_failure(const rendezvous::JobPage* page);

}  // namespace dtrun::collectives
