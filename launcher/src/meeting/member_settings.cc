#include "meeting/member_settings.h"

#include <sys/random.h>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "meeting/elected_meeting_point.h"

namespace dtrun::launcher {

namespace rounds = rendezvous::rounds;

namespace {

std::uint64_t new_agent_id() {
  std::uint64_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != sizeof id) throw base::system_error("get random bytes");
  return id;
}

}  // namespace

rounds::MemberSettings member_settings(const LaunchPlan& plan, const Head& head) {
  const Options& options = plan.options;
  rounds::MemberSettings settings;
  settings.hello.run_id = plan.run_id;
  settings.hello.host = base::host_name();
  settings.hello.role = options.role;
  settings.hello.node_rank = options.node_rank.value_or(rounds::kNoNodeRank);
  settings.hello.local_ranks = plan.local_ranks;
  settings.hello.min_nodes = options.rounds.min_nodes;
  settings.hello.max_nodes = options.rounds.max_nodes;
  settings.hello.agent = new_agent_id();
  // If the head is in this process, its own timeout comes first, with a better text.
  constexpr auto kHeadStart = std::chrono::seconds(60);
  settings.join_timeout =
      options.rounds.join_timeout + (head.is_here() ? kHeadStart : kHeadStart * 0);
  settings.reach_timeout = head.patience;
  settings.read_timeout = options.answer_timeout;
  const bool another_may_follow = options.rendezvous == Rendezvous::kEtcd;
  // A head whose connections were reset listens at the same place, or is gone.
  constexpr auto kSameHeadPatience = std::chrono::seconds(2);
  settings.rejoin_timeout = another_may_follow ? election_patience(options) : kSameHeadPatience;
  settings.after_loss = another_may_follow           ? rounds::AfterLoss::kRejoin
                        : options.rounds.one_round() ? rounds::AfterLoss::kEnd
                                                     : rounds::AfterLoss::kMakeRoom;
  settings.head_name = head.name();
  settings.why_not_me = head.reason;
  return settings;
}

}  // namespace dtrun::launcher
