#include "ranks/rank_births.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "dtrun/base/cpu_list.h"
#include "dtrun/base/cpu_quota.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"

namespace dtrun::launcher {
namespace {

// More at once are no faster: the exec of the first is over by then.
constexpr std::size_t kAtOnce = 8;

/// That the ranks have together.
double cpus() {
  const auto allowed = static_cast<double>(base::allowed_cpus().size());
  const std::optional<base::CpuQuota> quota = base::cpu_quota();
  return quota ? std::min(quota->cpus, allowed) : allowed;
}

/// Where it is refused, the session stays what others are.
void weigh_own_session(int programs) {
  // A step of nice is a quarter more; the nearest one. Without std::log(), because libm is static.
  constexpr double kStep = 1.25, kHalfStep = 1.118;
  constexpr int kMostSteps = 20;
  int steps = 0;
  for (double weight = kHalfStep; weight < programs && steps < kMostSteps; weight *= kStep) ++steps;
  if (steps == 0) return;
  const std::string nice = std::to_string(-steps);
  const base::UniqueFd fd(::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));
  if (fd && ::write(fd.get(), nice.data(), nice.size()) >= 0) return;
  const int reason = errno;
  base::log::debug(
      base::log::Component::kLauncher,
      "the session of the ranks keeps nice 0, so that together they get as much of the CPUs as one "
      "other session: the kernel refused nice {} in /proc/self/autogroup ({}); {}",
      nice, std::generic_category().message(reason),
      reason == EAGAIN ? "it takes one in 100 ms from all who lack CAP_SYS_ADMIN, start it again"
                       : "give dtrun CAP_SYS_NICE, or raise RLIMIT_NICE (ulimit -e)");
}

}  // namespace

// Where the kernel schedules sessions (sched_autogroup_enabled, see sched(7)), the CPUs are shared
// among sessions first, and among the processes of each then: ranks in one session would get
// together what any other session gets. But a rank that yields (sched_yield) yields to its own
// session only. Where ranks share CPUs, one that waits for another must let that one run: so they
// have one session, which gets as much as one for each would while all run, where the kernel allows
// that.
base::ChildSetup::Group RankBirths::usual_group(int ranks) {
  const base::UniqueFd fd(::open("/proc/sys/kernel/sched_autogroup_enabled", O_RDONLY | O_CLOEXEC));
  char digit = '0';
  const bool sessions_share = fd && ::read(fd.get(), &digit, 1) == 1 && digit == '1';
  if (!sessions_share) return base::ChildSetup::Group::kProcessGroup;
  try {
    if (ranks <= cpus()) return base::ChildSetup::Group::kSession;
    weigh_own_session(ranks);
  } catch (const base::Error& error) {
    base::log::debug(base::log::Component::kLauncher,
                     "the ranks have one session, as it is not known how many CPUs they have: {}",
                     error.what());
  }
  return base::ChildSetup::Group::kProcessGroup;
}

rendezvous::WorkerEnv RankBirths::worker_env(int local_rank) const {
  rendezvous::WorkerEnv env;
  env.rank = place_.order.base_rank + local_rank;
  env.local_rank = local_rank;
  env.world_size = place_.order.world_size;
  env.local_world_size = place_.plan.local_ranks;
  env.group_rank = place_.order.group_rank;
  env.group_world_size = place_.order.group_world_size;
  env.role_rank = place_.order.role_base_rank + local_rank;
  env.role_world_size = place_.order.role_world_size;
  env.role_name = place_.plan.options.role;
  env.master_addr = place_.order.master_addr;
  env.master_port = place_.order.master_port;
  env.restart_count = place_.order.restart_count;
  env.max_restarts = place_.order.max_restarts;
  env.run_id = place_.plan.run_id;
  env.error_file = place_.errors.file_of(place_.order.round, local_rank);
  env.store_token = place_.plan.store_token;
  env.job_page_fd = place_.page.fd();
  env.job_page_id = place_.page.id();
  return env;
}

void RankBirths::begin(int local_rank, const base::UniqueFd& birthplace, RankEnds ends) {
  const LaunchPlan& plan = place_.plan;
  const int global_rank = place_.order.base_rank + local_rank;
  base::ChildSetup setup;
  setup.environment = rank_environment(plan, worker_env(local_rank));
  if (plan.options.output.stdin_rank == global_rank) setup.stdin_fd = STDIN_FILENO;
  if (ends.in) setup.stdin_fd = ends.in.get();
  setup.stdout_fd = ends.out.get();
  setup.stderr_fd = ends.err.get();
  setup.inherited_fds = {place_.page.fd()};
  setup.group = place_.group;
  if (plan.options.debug_rank == local_rank) {
    setup.stdin_fd = setup.stdout_fd = setup.stderr_fd = plan.debug_terminal->rank_end();
    setup.group = base::ChildSetup::Group::kSession;
    setup.takes_terminal = true;
  }
  setup.cgroup_fd = birthplace.get();
  const RankBinding& binding = plan.bindings[static_cast<std::size_t>(local_rank)];
  setup.cpus = binding.cpus;
  setup.memory_node = binding.memory_node;
  rendezvous::RankSlot& slot = place_.page.slot(local_rank);
  slot.global_rank = global_rank;
  slot.state = static_cast<std::uint32_t>(rendezvous::RankState::kSpawned);
  if (births_.size() == kAtOnce) finish_oldest();
  whose_turn_ = local_rank;
  base::ChildBirth child(command_of_rank(plan, local_rank), std::move(setup));
  births_.push_back({local_rank, std::move(ends), std::move(child)});
}

void RankBirths::finish() {
  while (!births_.empty()) finish_oldest();
}

void RankBirths::finish_oldest() {
  Birth birth = std::move(births_.front());
  births_.pop_front();
  whose_turn_ = birth.local_rank;
  on_born_(birth.local_rank, birth.child.finish());
}

}  // namespace dtrun::launcher
