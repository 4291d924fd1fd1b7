#include "guard.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <unordered_map>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/kill_ladder.h"
#include "dtrun/base/line_relay.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/rendezvous/job_page.h"
#include "exit_code.h"
#include "output.h"
#include "rank_watch.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using rendezvous::RankState;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Ranks that only report another's failure leave it this long to come to light.
constexpr auto kVictimPatience = seconds(1);
// What a rank left running gets to end by itself, after SIGTERM: Python's resource tracker, say.
constexpr auto kLeftoverGrace = milliseconds(500);
// How long a process may take to die of SIGKILL before we say so and go on.
constexpr auto kKillPatience = seconds(10);
// When nothing is left that could write, the pipes end at once; one that does not is held by
// somebody who is none of ours.
constexpr auto kPipePatience = seconds(1);

struct Rank {
  base::ChildProcess process;
  int pid = 0;
  std::optional<RankEnd> end;
  RankState state_at_end = RankState::kNone;
};

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

class Guard {
 public:
  Guard(const LaunchPlan& plan, const ErrorFolder& errors, GuardLink link)
      : plan_(plan),
        errors_(errors),
        link_(std::move(link)),
        page_(rendezvous::JobPage::create(plan.local_ranks)),
        reaper_(loop_, [this](pid_t pid, base::ExitStatus status) { on_exit(pid, status); }),
        ladder_(loop_, plan.options.shutdown_grace),
        output_(loop_, plan),
        agent_watch_(loop_, link_.fd()),
        patience_(loop_) {
    ladder_.on_step([this](int signal_number) { on_ladder_step(signal_number); });
    agent_watch_.on_readable([this] { on_agent_message(); });
  }

  int run() {
    loop_.run();
    // Whoever is left by now was reaped by kill_descendants(), or cannot be killed.
    for (Rank& rank : ranks_) rank.process.mark_reaped();
    return agent_gone_ ? kExitLauncherFailed : 0;
  }

 private:
  // --- the agent's word
  void on_agent_message() {
    const std::optional<GuardMessage> message = link_.receive();
    if (!message) {
      on_agent_gone();
    } else if (message->kind == MessageKind::kStart && !started_) {
      start_ranks(message->as<StartOrder>());
    } else if (message->kind == MessageKind::kStop) {
      on_stop(message->as<StopOrder>());
    }
  }

  void on_agent_gone() {
    agent_gone_ = true;
    ladder_.kill_now();
    base::kill_descendants({}, Deadline::after(kKillPatience));
    errors_.remove();
    loop_.stop();
  }

  void on_stop(const StopOrder& order) {
    stopped_ = true;
    if (order.cause[0] != '\0') {
      rendezvous::Cause cause;
      cause.global_rank = order.failed_rank;
      std::copy(std::begin(order.cause), std::end(order.cause), std::begin(cause.text));
      page_.abort(cause);
    }
    if (order.urgency == Urgency::kNow) {
      hurry_ = true;
      ladder_.kill_now();
    } else {
      ladder_.start(order.signal);
    }
    if (started_ && alive_ == 0 && !finishing_) finish();
    if (!started_) send_job_end();
  }

  // --- starting
  rendezvous::WorkerEnv worker_env(int local_rank) const {
    rendezvous::WorkerEnv env;
    env.rank = order_.base_rank + local_rank;
    env.local_rank = local_rank;
    env.world_size = order_.world_size;
    env.local_world_size = plan_.local_ranks;
    env.group_rank = order_.node_rank;
    env.group_world_size = plan_.options.node_count;
    env.role_rank = env.rank;
    env.role_world_size = env.world_size;
    env.role_name = plan_.options.role;
    env.master_addr = order_.master_addr;
    env.master_port = order_.master_port;
    env.run_id = plan_.run_id;
    env.error_file = errors_.file_of(local_rank);
    env.job_page_fd = page_.fd();
    return env;
  }

  void start_ranks(const StartOrder& order) {
    order_ = order;
    started_ = true;
    ranks_.resize(static_cast<std::size_t>(plan_.local_ranks));
    int local_rank = 0;
    try {
      errors_.make();
      for (; local_rank < plan_.local_ranks; ++local_rank) start_rank(local_rank);
    } catch (const base::Error& error) {
      on_spawn_failure(local_rank, error);
    }
  }

  void start_rank(int local_rank) {
    base::Pipe out = base::make_pipe(), err = base::make_pipe();
    base::ChildSetup setup;
    setup.environment = rank_environment(plan_, worker_env(local_rank));
    setup.stdout_fd = out.write_end.get();
    setup.stderr_fd = err.write_end.get();
    setup.inherited_fds = {page_.fd()};
    setup.group = base::ChildSetup::Group::kProcessGroup;
    rendezvous::RankSlot& slot = page_.slot(local_rank);
    slot.global_rank = order_.base_rank + local_rank;
    slot.state = static_cast<std::uint32_t>(RankState::kSpawned);
    Rank& rank = ranks_[static_cast<std::size_t>(local_rank)];
    rank.process = base::ChildProcess::spawn(command_of_rank(plan_, local_rank), setup);
    rank.pid = rank.process.pid();
    slot.pid = rank.pid;
    by_pid_[rank.pid] = local_rank;
    ++alive_;
    ladder_.add(rank.pid);
    output_.add({order_.node_rank, order_.base_rank + local_rank}, std::move(out.read_end),
                std::move(err.read_end), [this] { on_stream_end(); });
  }

  void on_spawn_failure(int local_rank, const base::Error& error) {
    const auto* spawn = dynamic_cast<const base::SpawnError*>(&error);
    link_.send(MessageKind::kSpawnFailure,
               SpawnFailure{local_rank, spawn != nullptr ? spawn->error_number() : 0},
               error.what());
    ladder_.kill_now();
    if (alive_ == 0) finish();
  }

  // --- the ranks' ends
  void on_exit(pid_t pid, const base::ExitStatus& status) {
    const auto found = by_pid_.find(pid);
    if (found == by_pid_.end()) {
      if (finishing_) on_leftover_end();
      return;
    }
    const int local_rank = found->second;
    Rank& rank = ranks_[static_cast<std::size_t>(local_rank)];
    by_pid_.erase(found);
    ladder_.remove(pid);
    rank.process.mark_reaped();
    --alive_;
    record_end(local_rank, rank, status);
    if (rank.end->success()) {
      look_for_missing_ranks();
    } else if (!ladder_.started() && !deciding_) {
      // After all that have ended by now have been reaped: the first cause may be among them.
      deciding_ = true;
      loop_.post([this] { decide(); });
    }
    if (alive_ == 0) loop_.post([this] { finish(); });
  }

  void record_end(int local_rank, Rank& rank, const base::ExitStatus& status) {
    rendezvous::RankSlot& slot = page_.slot(local_rank);
    rank.state_at_end = static_cast<RankState>(slot.state.load());
    if (rank.state_at_end != RankState::kLeft)
      slot.state = static_cast<std::uint32_t>(RankState::kExited);
    RankEnd end;
    end.local_rank = local_rank;
    end.pid = rank.pid;
    end.code = status.code;
    end.signal = status.signal;
    end.order = ends_++;
    end.victim_of = slot.victim_of.load();
    // A SIGKILL that was not ours is a cause even now: it was under way when the ladder began.
    const bool foreign_kill = status.signal == SIGKILL && last_signal_ != SIGKILL;
    end.stopped = ladder_.started() && !foreign_kill ? 1 : 0;
    end.time = static_cast<std::int64_t>(std::time(nullptr));
    rank.end = end;
  }

  void decide() {
    deciding_ = false;
    if (ladder_.started()) return;
    const Rank* root = nullptr;
    for (const Rank& rank : ranks_) {
      if (!rank.end || rank.end->success() || rank.end->victim_of >= 0) continue;
      const bool before = root == nullptr || (rank.end->signal != 0) > (root->end->signal != 0) ||
                          ((rank.end->signal != 0) == (root->end->signal != 0) &&
                           rank.end->order < root->end->order);
      if (before) root = &rank;
    }
    if (root != nullptr) {
      end_job_for(*root);
    } else if (const Rank* victim = victim_of_a_clean_exit()) {
      const RankView exited = view(victim->end->victim_of - order_.base_rank);
      end_job_for_missing(exited,
                          missing_rank_cause_by_victim(view(victim->end->local_rank), exited));
    } else if (!waiting_for_root_) {
      waiting_for_root_ = true;
      patience_.start(Deadline::after(kVictimPatience), [this] {
        for (const Rank& rank : ranks_)
          if (rank.end && !rank.end->success() && !ladder_.started()) end_job_for(rank);
        if (alive_ == 0) finish();
      });
    }
    look_for_missing_ranks();
  }

  // A rank that failed because one on this node had exited with 0.
  const Rank* victim_of_a_clean_exit() const {
    for (const Rank& rank : ranks_) {
      if (!rank.end || rank.end->success() || rank.end->victim_of < 0) continue;
      const int local_rank = rank.end->victim_of - order_.base_rank;
      if (local_rank < 0 || local_rank >= static_cast<int>(ranks_.size())) continue;
      const Rank& cause = ranks_[static_cast<std::size_t>(local_rank)];
      if (cause.end && cause.end->success()) return &rank;
    }
    return nullptr;
  }

  void end_job_for(const Rank& rank) {
    rendezvous::Cause cause;
    cause.global_rank = order_.base_rank + rank.end->local_rank;
    cause.local_rank = rank.end->local_rank;
    cause.pid = rank.pid;
    cause.exit_code = rank.end->code;
    cause.signal = rank.end->signal;
    cause.state_at_death = static_cast<std::int32_t>(rank.state_at_end);
    // Who waited for it is known only before they are woken.
    const std::string waiting =
        rank.end->signal == 0 ? missing_rank_cause(views(), view(rank.end->local_rank)) : "";
    page_.abort(cause);
    link_.send(MessageKind::kFirstFailure, *rank.end, waiting);
    ladder_.start(SIGTERM);
  }

  RankView view(int local_rank) const {
    const Rank& rank = ranks_[static_cast<std::size_t>(local_rank)];
    const rendezvous::RankSlot& slot = page_.slot(local_rank);
    RankView result;
    result.rank = order_.base_rank + local_rank;
    result.pid = rank.pid;
    result.alive = !rank.end.has_value();
    result.code = rank.end ? rank.end->code : 0;
    result.state = result.alive ? static_cast<RankState>(slot.state.load()) : rank.state_at_end;
    const std::uint64_t count = slot.operations.load();
    if (count > 0) {
      const rendezvous::Operation& last = slot.ring[(count - 1) % rendezvous::kOperationRing];
      result.operation =
          fmt::format("{:.24} #{} of group '{:.24}'", last.name, last.sequence, last.group);
    }
    return result;
  }

  std::vector<RankView> views() const {
    std::vector<RankView> result;
    for (int i = 0; i < plan_.local_ranks; ++i) result.push_back(view(i));
    return result;
  }

  // Ranks that come to wait only later find the exited one in the job page by themselves.
  void look_for_missing_ranks() {
    // A rank that failed is decide()'s, and a cause before any that exited with 0.
    if (ladder_.started() || deciding_) return;
    const std::vector<RankView> all = views();
    for (const RankView& exited : all) {
      if (exited.alive ||
          !ranks_[static_cast<std::size_t>(exited.rank - order_.base_rank)].end->success())
        continue;
      const std::string text = missing_rank_cause(all, exited);
      if (!text.empty()) return end_job_for_missing(exited, text);
    }
  }

  void end_job_for_missing(const RankView& exited, const std::string& text) {
    rendezvous::Cause cause;
    cause.global_rank = exited.rank;
    cause.local_rank = exited.rank - order_.base_rank;
    cause.pid = exited.pid;
    cause.state_at_death = static_cast<std::int32_t>(exited.state);
    text.copy(cause.text, sizeof cause.text - 1);
    page_.abort(cause);
    RankEnd end = *ranks_[static_cast<std::size_t>(cause.local_rank)].end;
    link_.send(MessageKind::kFirstFailure, end, text);
    ladder_.start(SIGTERM);
  }

  // --- the end
  void on_ladder_step(int signal_number) {
    last_signal_ = signal_number;
    // Processes whose rank is gone are children of this process now, in groups without a leader.
    if (alive_ < static_cast<int>(ranks_.size())) signal_leftovers(signal_number);
    if (signal_number == SIGKILL && !finishing_)
      patience_.start(Deadline::after(kKillPatience), [this] { on_unkillable(); });
  }

  void signal_leftovers(int signal_number) {
    if (!has_children()) return;
    for (const pid_t pid : base::child_pids()) {
      if (by_pid_.count(pid) != 0) continue;
      if (::getpgid(pid) == pid) ::kill(-pid, signal_number);
      ::kill(pid, signal_number);
    }
  }

  void finish() {
    if (finishing_) return;
    // All are gone, and only as victims of a rank on another node: its word may be on its way, and
    // is waited for as long as the patience lasts.
    if (waiting_for_root_ && !ladder_.started()) return;
    finishing_ = true;
    if (!has_children()) {
      drain();
    } else if (last_signal_ == SIGKILL) {
      kill_leftovers();
    } else {
      signal_leftovers(SIGTERM);
      patience_.start(Deadline::after(kLeftoverGrace), [this] { kill_leftovers(); });
    }
  }

  void on_leftover_end() {
    if (!draining_ && !has_children()) drain();
  }

  void kill_leftovers() {
    job_end_.unkillable += base::kill_descendants({}, Deadline::after(kKillPatience));
    drain();
  }

  void on_unkillable() {
    job_end_.unkillable = alive_;
    finishing_ = true;
    drain();
  }

  void drain() {
    if (draining_) return;
    draining_ = true;
    drain_limit_ = Deadline::after(plan_.options.shutdown_grace);
    watch_drain();
    on_stream_end();
  }

  void watch_drain() {
    patience_.start(Deadline::after(kPipePatience), [this] {
      // Who told us to stop is not kept longer than the grace by a reader that has stopped.
      if (hurry_ || (stopped_ && drain_limit_.expired())) output_.abandon();
      // A reader of ours that takes its time is waited for; a pipe that nobody of ours holds is
      // not.
      if (output_.idle()) output_.finish();
      watch_drain();
    });
  }

  void on_stream_end() {
    if (!draining_ || !output_.ended() || reported_) return;
    if (output_.idle()) {
      report();
    } else {
      output_.on_idle([this] { on_stream_end(); });
    }
  }

  void report() {
    reported_ = true;
    for (const Rank& rank : ranks_)
      if (rank.end)
        link_.send(MessageKind::kRankEnd, *rank.end, output_.error_tail(rank.end->local_rank));
    send_job_end();
  }

  void send_job_end() {
    job_end_.lost_output_bytes = output_.lost_bytes();
    job_end_.output_error = output_.error_number();
    link_.send(MessageKind::kJobEnd, job_end_);
    loop_.stop();
  }

  const LaunchPlan& plan_;
  const ErrorFolder& errors_;
  base::EventLoop loop_;
  GuardLink link_;
  rendezvous::JobPage page_;
  base::ChildReaper reaper_;
  base::KillLadder ladder_;
  Output output_;
  base::FdWatch agent_watch_;
  base::Timer patience_;
  StartOrder order_;
  std::vector<Rank> ranks_;
  std::unordered_map<pid_t, int> by_pid_;
  JobEnd job_end_;
  int alive_ = 0;
  int ends_ = 0;
  int last_signal_ = 0;
  bool started_ = false;
  bool agent_gone_ = false;
  bool deciding_ = false;
  bool waiting_for_root_ = false;
  bool finishing_ = false;
  bool draining_ = false;
  bool reported_ = false;
  bool hurry_ = false;
  bool stopped_ = false;
  Deadline drain_limit_ = Deadline::never();
};

}  // namespace

int run_guard(const LaunchPlan& plan, const ErrorFolder& errors, GuardLink link) {
  ::setsid();
  ::prctl(PR_SET_NAME, "dtrun-guard");
  ::signal(SIGPIPE, SIG_IGN);
  base::become_subreaper();
  return Guard(plan, errors, std::move(link)).run();
}

}  // namespace dtrun::launcher
