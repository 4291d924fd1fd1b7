#include "worker_group.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <ctime>

namespace dtrun::launcher {

using base::Deadline;
using rendezvous::RankState;
using std::chrono::seconds;

namespace {

// Ranks that only report another's failure leave it this long to come to light.
constexpr auto kVictimPatience = seconds(1);
// How long a process may take to die of SIGKILL before we say so and go on.
constexpr auto kKillPatience = seconds(10);

OutputDrain::Patience patience_of(const StopOrder& order) {
  if (order.afterwards == Afterwards::kAnotherRound) return OutputDrain::Patience::kBriefly;
  // Who told us to stop is not kept longer than the grace by a reader that has stopped.
  return order.urgency == Urgency::kNow ? OutputDrain::Patience::kNone
                                        : OutputDrain::Patience::kForGrace;
}

}  // namespace

WorkerGroup::WorkerGroup(const GroupSurroundings& surroundings, base::EventLoop::Callback on_end)
    : plan_(surroundings.plan),
      errors_(surroundings.errors),
      loop_(surroundings.loop),
      link_(surroundings.link),
      output_(surroundings.output),
      on_end_(std::move(on_end)),
      page_(rendezvous::JobPage::create(plan_.local_ranks)),
      ladder_(loop_, plan_.options.shutdown_grace),
      leftovers_(loop_),
      drain_(loop_, output_),
      patience_(loop_) {
  ladder_.on_step([this](int signal_number) { on_ladder_step(signal_number); });
}

WorkerGroup::~WorkerGroup() {
  // Whoever is left by now was reaped by kill_descendants(), or cannot be killed.
  for (Rank& rank : ranks_) rank.process.mark_reaped();
}

// --- starting

rendezvous::WorkerEnv WorkerGroup::worker_env(int local_rank) const {
  rendezvous::WorkerEnv env;
  env.rank = order_.base_rank + local_rank;
  env.local_rank = local_rank;
  env.world_size = order_.world_size;
  env.local_world_size = plan_.local_ranks;
  env.group_rank = order_.group_rank;
  env.group_world_size = order_.group_world_size;
  env.role_rank = order_.role_base_rank + local_rank;
  env.role_world_size = order_.role_world_size;
  env.role_name = plan_.options.role;
  env.master_addr = order_.master_addr;
  env.master_port = order_.master_port;
  env.restart_count = order_.restart_count;
  env.max_restarts = order_.max_restarts;
  env.run_id = plan_.run_id;
  env.error_file = errors_.file_of(order_.round, local_rank);
  env.job_page_fd = page_.fd();
  return env;
}

void WorkerGroup::start(const StartOrder& order) {
  order_ = order;
  output_.begin_round();
  ranks_.resize(static_cast<std::size_t>(plan_.local_ranks));
  int local_rank = 0;
  try {
    errors_.make(order.round);
    for (; local_rank < plan_.local_ranks; ++local_rank) start_rank(local_rank);
  } catch (const base::Error& error) {
    on_spawn_failure(local_rank, error);
  }
}

void WorkerGroup::start_rank(int local_rank) {
  base::Pipe out = base::make_pipe(), err = base::make_pipe();
  base::ChildSetup setup;
  setup.environment = rank_environment(plan_, worker_env(local_rank));
  setup.stdout_fd = out.write_end.get();
  setup.stderr_fd = err.write_end.get();
  setup.inherited_fds = {page_.fd()};
  setup.group = base::ChildSetup::Group::kProcessGroup;
  const RankBinding& binding = plan_.bindings[static_cast<std::size_t>(local_rank)];
  setup.cpus = binding.cpus;
  setup.memory_node = binding.memory_node;
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
  output_.add({order_.group_rank, order_.base_rank + local_rank}, std::move(out.read_end),
              std::move(err.read_end));
}

void WorkerGroup::on_spawn_failure(int local_rank, const base::Error& error) {
  const auto* spawn = dynamic_cast<const base::SpawnError*>(&error);
  link_.send(MessageKind::kSpawnFailure,
             SpawnFailure{local_rank, spawn != nullptr ? spawn->error_number() : 0}, error.what());
  ladder_.kill_now();
  if (alive_ == 0) finish();
}

// --- the ranks' ends

void WorkerGroup::on_exit(pid_t pid, const base::ExitStatus& status) {
  const auto found = by_pid_.find(pid);
  if (found == by_pid_.end()) return leftovers_.on_child_end();
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

void WorkerGroup::record_end(int local_rank, Rank& rank, const base::ExitStatus& status) {
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

const WorkerGroup::Rank* WorkerGroup::first_to_fail() const {
  const Rank* root = nullptr;
  for (const Rank& rank : ranks_) {
    if (!rank.end || rank.end->success() || rank.end->victim_of >= 0) continue;
    const bool before =
        root == nullptr || (rank.end->signal != 0) > (root->end->signal != 0) ||
        ((rank.end->signal != 0) == (root->end->signal != 0) && rank.end->order < root->end->order);
    if (before) root = &rank;
  }
  return root;
}

void WorkerGroup::decide() {
  deciding_ = false;
  if (ladder_.started()) return;
  if (const Rank* root = first_to_fail()) {
    end_group_for(*root);
  } else if (const Rank* victim = victim_of_a_clean_exit()) {
    const RankView exited = view(victim->end->victim_of - order_.base_rank);
    end_group_for_missing(exited,
                          missing_rank_cause_by_victim(view(victim->end->local_rank), exited));
  } else if (!waiting_for_root_) {
    wait_for_root();
  }
  look_for_missing_ranks();
}

void WorkerGroup::wait_for_root() {
  waiting_for_root_ = true;
  patience_.start(Deadline::after(kVictimPatience), [this] {
    for (const Rank& rank : ranks_)
      if (rank.end && !rank.end->success() && !ladder_.started()) end_group_for(rank);
    if (alive_ == 0) finish();
  });
}

// A rank that failed because one on this node had exited with 0.
const WorkerGroup::Rank* WorkerGroup::victim_of_a_clean_exit() const {
  for (const Rank& rank : ranks_) {
    if (!rank.end || rank.end->success() || rank.end->victim_of < 0) continue;
    const int local_rank = rank.end->victim_of - order_.base_rank;
    if (local_rank < 0 || local_rank >= static_cast<int>(ranks_.size())) continue;
    const Rank& cause = ranks_[static_cast<std::size_t>(local_rank)];
    if (cause.end && cause.end->success()) return &rank;
  }
  return nullptr;
}

void WorkerGroup::end_group_for(const Rank& rank) {
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

RankView WorkerGroup::view(int local_rank) const {
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

std::vector<RankView> WorkerGroup::views() const {
  std::vector<RankView> result;
  for (int i = 0; i < plan_.local_ranks; ++i) result.push_back(view(i));
  return result;
}

// Ranks that come to wait only later find the exited one in the job page by themselves.
void WorkerGroup::look_for_missing_ranks() {
  // A rank that failed is decide()'s, and a cause before any that exited with 0.
  if (ladder_.started() || deciding_) return;
  const std::vector<RankView> all = views();
  for (const RankView& exited : all) {
    if (exited.alive ||
        !ranks_[static_cast<std::size_t>(exited.rank - order_.base_rank)].end->success())
      continue;
    const std::string text = missing_rank_cause(all, exited);
    if (!text.empty()) return end_group_for_missing(exited, text);
  }
}

void WorkerGroup::end_group_for_missing(const RankView& exited, const std::string& text) {
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

void WorkerGroup::stop(const StopOrder& order) {
  drain_.set_patience(patience_of(order));
  if (order.cause[0] != '\0') {
    rendezvous::Cause cause;
    cause.global_rank = order.failed_rank;
    std::copy(std::begin(order.cause), std::end(order.cause), std::begin(cause.text));
    page_.abort(cause);
  }
  if (order.urgency == Urgency::kNow) {
    ladder_.kill_now();
  } else {
    ladder_.start(order.signal);
  }
  if (alive_ == 0 && !finishing_) finish();
}

void WorkerGroup::on_ladder_step(int signal_number) {
  last_signal_ = signal_number;
  // Processes whose rank is gone are children of this process now, in groups without a leader.
  if (alive_ < static_cast<int>(ranks_.size())) Leftovers::signal(signal_number, by_pid_);
  if (signal_number == SIGKILL && !finishing_)
    patience_.start(Deadline::after(kKillPatience), [this] { on_unkillable(); });
}

void WorkerGroup::finish() {
  if (finishing_) return;
  // All are gone, and only as victims of a rank on another node: its word may be on its way, and
  // is waited for as long as the patience lasts.
  if (waiting_for_root_ && !ladder_.started()) return;
  finishing_ = true;
  patience_.cancel();
  leftovers_.sweep(last_signal_, [this](int unkillable) {
    unkillable_ += unkillable;
    drain();
  });
}

void WorkerGroup::on_unkillable() {
  unkillable_ = alive_;
  finishing_ = true;
  drain();
}

void WorkerGroup::drain() {
  drain_.start(plan_.options.shutdown_grace, [this] { report(); });
}

bool WorkerGroup::succeeded() const {
  return !ladder_.started() && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.end && rank.end->success();
  });
}

void WorkerGroup::report() {
  patience_.cancel();
  for (const Rank& rank : ranks_)
    if (rank.end)
      link_.send(MessageKind::kRankEnd, *rank.end, output_.error_tail(rank.end->local_rank));
  GroupEnd end;
  end.round = order_.round;
  end.success = succeeded() ? 1 : 0;
  end.lost_output_bytes = output_.lost_bytes();
  end.output_error = output_.error_number();
  end.unkillable = unkillable_;
  end.output_pending = output_.ended() && output_.idle() ? 0 : 1;
  link_.send(MessageKind::kGroupEnd, end);
  on_end_();
}

}  // namespace dtrun::launcher
