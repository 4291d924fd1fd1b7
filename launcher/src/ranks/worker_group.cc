#include "ranks/worker_group.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/rendezvous/flight_explanation.h"
#include "ranks/timing.h"

namespace dtrun::launcher {

using base::Deadline;
using rendezvous::RankState;
using std::chrono::seconds;
using supervision::Action;
using supervision::Event;
using supervision::Phase;
using supervision::Time;

namespace {

// On a busy machine the agent may act on a signal so much later than its guard.
constexpr auto kWordPatience = seconds(2);
// How long ranks that only report another's failure wait for that failure to become known.
constexpr auto kVictimPatience = seconds(1);
// A rank whose wait is over runs again within this time.
constexpr auto kStillWaiting = seconds(1);

OutputFlush::Patience patience_of(const StopOrder& order) {
  if (order.afterwards == Afterwards::kAnotherRound) return OutputFlush::Patience::kBriefly;
  // A stop does not wait for a stopped reader longer than the grace.
  return order.urgency == Urgency::kNow ? OutputFlush::Patience::kNone
                                        : OutputFlush::Patience::kForGrace;
}

// Empty if the output's thread hangs, because it has not reported the last lines then.
std::string tail_of(const OutputState& output, int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < output.error_tails.size() ? output.error_tails[index] : "";
}

constexpr std::size_t kOperationsTold = 5;

std::string time_between(double from, double to) {
  return base::format_duration(std::chrono::milliseconds(
      std::max(std::int64_t{0}, static_cast<std::int64_t>((to - from) * 1000))));
}

std::string how_it_went(const rendezvous::FlightOperation& operation, double ended) {
  if (!operation.ended || operation.state == rendezvous::FlightState::running) {
    std::string text = operation.started > 0
                           ? " had run for " + time_between(operation.started, ended)
                           : std::string(" had begun");
    if (operation.waiting_for >= 0)
      text += fmt::format(", waited for rank {}", operation.waiting_for);
    return text;
  }
  return fmt::format(" {} {} before",
                     operation.state == rendezvous::FlightState::failed ? "failed" : "ended",
                     time_between(*operation.ended, ended));
}

// The newest five of the record, oldest first, a line each: "all_reduce #41 of group 'world'
// (f32 x 1024, sum) at train.cc:12 had run for 3.0 s, waited for rank 1". Empty: it called none.
std::string last_operations(const rendezvous::RankFlight& flight, double ended) {
  const std::size_t count = flight.operations.size();
  std::string text;
  for (std::size_t i = count - std::min(kOperationsTold, count); i < count; ++i)
    text += fmt::format("{}{}{}", text.empty() ? "" : "\n", describe(flight.operations[i]),
                        how_it_went(flight.operations[i], ended));
  return text;
}

}  // namespace

void tell_losses(const OutputState& output, GroupEnd& end) {
  end.lost_output_bytes = output.lost_bytes;
  end.output_error = output.error_number;
  end.lost_file_bytes = output.file_loss.bytes;
  end.file_error = output.file_loss.error_number;
}

WorkerGroup::WorkerGroup(const GroupSurroundings& surroundings, base::EventLoop::Callback on_end)
    : plan_(surroundings.plan),
      errors_(surroundings.errors),
      containment_(surroundings.containment),
      loop_(surroundings.loop),
      link_(surroundings.link),
      output_(surroundings.output),
      relay_(surroundings.relay),
      stdin_copies_(surroundings.stdin_copies),
      on_end_(std::move(on_end)),
      rank_group_(RankBirths::usual_group(plan_.local_ranks)),
      page_(rendezvous::JobPage::create(plan_.local_ranks, FlightFiles::history_plan(plan_))),
      flights_({plan_, errors_, output_, link_, page_}),
      leftovers_(loop_, containment_),
      oom_(containment_.own_cgroup()),
      flush_(loop_, output_),
      timer_(loop_),
      missing_timer_(loop_),
      progress_(
          loop_, page_, plan_.options.stop.progress_timeout,
          [this](const rendezvous::FlightFinding& stall, int times) { on_stall(stall, times); }),
      first_signal_(SIGTERM) {}

// --- the table

// Actions that are answered at once are the last of their rows.
void WorkerGroup::happen(Event event) {
  const supervision::Row* const row = supervision::row_of(phase_, event);
  DT_CHECK(row != nullptr);
  const Phase before = std::exchange(phase_, row->next);
  if (phase_ != before) set_timer();
  for (const std::optional<Action>& action : row->actions)
    if (action) carry_out(*action);
  settle();
}

// Posted, so that other ranks that have ended by now are reaped first.
void WorkerGroup::settle() {
  const supervision::Row* const row = supervision::row_of(phase_, Event::kNobodyLeft);
  if (!by_pid_.empty() || row == nullptr || !row->actions[0] || settle_posted_) return;
  settle_posted_ = true;
  loop_.post([this] {
    settle_posted_ = false;
    happen(Event::kNobodyLeft);
  });
}

void WorkerGroup::carry_out(Action action) {
  switch (action) {
    case Action::kSpawn:
      return spawn();
    case Action::kTellStartFailure:
      return tell_start_failure();
    case Action::kLook:
      return post_look();
    case Action::kLookForMissing:
      return look_for_missing_ranks();
    case Action::kBlameRoot:
      return blame(found_);
    case Action::kBlameAccused:
      return blame_accused();
    case Action::kPass:
      return relay_.pass(passed_signal_, [this, number = passed_signal_] { send_signal(number); });
    case Action::kFirstSignal:
      return send_last_signal(first_signal_);
    case Action::kKill:
      return send_last_signal(SIGKILL);
    case Action::kSweep:
      return leftovers_.sweep(last_signal_, [this](int unkillable) {
        unkillable_ += unkillable;
        happen(Event::kSwept);
      });
    case Action::kCountUnkillable:
      unkillable_ = static_cast<int>(by_pid_.size());
      return;
    case Action::kFlush:
      return flush();
    case Action::kReport:
      return report();
  }
}

void WorkerGroup::set_timer() {
  Deadline::Duration time{};
  switch (supervision::time_of(phase_)) {
    case Time::kNone:
      return timer_.cancel();
    case Time::kWordPatience:
      time = kWordPatience;
      break;
    case Time::kVictimPatience:
      time = kVictimPatience;
      break;
    case Time::kYieldTime:
      time = yield_time_;
      break;
    case Time::kGrace:
      time = grace();
      break;
    case Time::kKillPatience:
      time = kKillPatience;
      break;
  }
  timer_.start(Deadline::after(time), [this] { happen(Event::kTimeUp); });
}

Deadline::Duration WorkerGroup::grace() const {
  const StopOptions& options = plan_.options.stop;
  switch (cause_) {
    case StopCause::kOperator:
      break;
    case StopCause::kRestart:
      return options.restart_timeout;
    case StopCause::kFailure:
      return options.failure_timeout;
  }
  return operator_grace_.value_or(options.shutdown_timeout);
}

// --- starting

void WorkerGroup::start(const StartOrder& order) {
  order_ = order;
  cause_ = order.after_failure;
  happen(Event::kStart);
}

void WorkerGroup::spawn() {
  ranks_.resize(static_cast<std::size_t>(plan_.local_ranks));
  Spawned spawned;
  RankBirths births({plan_, errors_, order_, page_, rank_group_},
                    [&](int local_rank, base::ChildProcess child) {
                      register_rank(local_rank, std::move(child));
                      if (local_rank == 0) spawned.first = now_ns();
                    });
  try {
    output_.begin_round(errors_, order_.round);
    if (plan_.options.output.stdin_to_all) stdin_ends_ = stdin_copies_.open(plan_.local_ranks);
    // Of this round, because it may be killed.
    const base::UniqueFd birthplace = containment_.make_birthplace();
    spawned.began = now_ns();
    for (int local_rank = 0; local_rank < plan_.local_ranks; ++local_rank)
      begin_rank(local_rank, birthplace, births);
    births.finish();
    if (plan_.debug_terminal) plan_.debug_terminal->leave_rank_end();
    spawned.last = now_ns();
    if (plan_.options.metrics)
      link_.send_with_file(MessageKind::kSpawned, spawned, page_.fd());
    else
      link_.send(MessageKind::kSpawned, spawned);
  } catch (const base::Error& error) {
    const auto* const spawn = dynamic_cast<const base::SpawnError*>(&error);
    start_failure_ = {births.whose_turn(), spawn != nullptr ? spawn->error_number() : 0};
    start_failure_text_ = error.what();
    return happen(Event::kStartFailed);
  }
  show_status();
  progress_.start(order_.world_size);
  happen(Event::kAllStarted);
}

void WorkerGroup::show_status() {
  output_.show_status({.up = static_cast<int>(by_pid_.size()),
                       .ranks = plan_.local_ranks,
                       .round = order_.round,
                       .restarts = order_.restart_count,
                       .max_restarts = order_.max_restarts});
}

void WorkerGroup::begin_rank(int local_rank, const base::UniqueFd& birthplace, RankBirths& births) {
  RankEnds ends = output_.add({order_.group_rank, order_.base_rank + local_rank, local_rank});
  if (!stdin_ends_.empty()) ends.in = std::move(stdin_ends_[static_cast<std::size_t>(local_rank)]);
  births.begin(local_rank, birthplace, std::move(ends));
}

void WorkerGroup::register_rank(int local_rank, base::ChildProcess child) {
  Rank& rank = ranks_[static_cast<std::size_t>(local_rank)];
  // The reaper learns of its end; a pidfd for each would take the low numbers.
  const auto [pid, pidfd] = child.release();
  rank.pid = pid;
  rank.number_outside = containment_.number_outside(pid, pidfd.get());
  page_.slot(local_rank).pid = pid;
  by_pid_[pid] = local_rank;
}

void WorkerGroup::tell_start_failure() {
  link_.send(MessageKind::kSpawnFailure, start_failure_, start_failure_text_);
}

// --- the ranks' ends

void WorkerGroup::on_exit(pid_t pid, const base::ExitStatus& status) {
  const auto found = by_pid_.find(pid);
  if (found == by_pid_.end()) return leftovers_.on_child_end();
  const int local_rank = found->second;
  Rank& rank = ranks_[static_cast<std::size_t>(local_rank)];
  by_pid_.erase(found);
  show_status();
  record_end(local_rank, rank, status);
  if (rank.end->success()) return happen(Event::kRankEndedWell);
  const bool as_told = phase_ == Phase::kRunning && relay_.end_is_due();
  happen(as_told ? Event::kRankEndedAsTold : Event::kRankEndedBadly);
}

void WorkerGroup::record_end(int local_rank, Rank& rank, const base::ExitStatus& status) {
  rendezvous::RankSlot& slot = page_.slot(local_rank);
  rank.state_at_end = state_of(slot);
  if (rank.state_at_end != RankState::kLeft)
    slot.state = static_cast<std::uint32_t>(RankState::kExited);
  RankEnd end;
  end.local_rank = local_rank;
  end.pid = rank.number_outside;
  end.code = status.code;
  end.signal = status.signal;
  end.dumped = status.dumped ? 1 : 0;
  end.order = ends_++;
  // A crash is a failure of its own, whatever the rank has reported before. SIGABRT is no crash: an
  // exception that nobody catches aborts.
  const bool crashed = status.signal != 0 && status.signal != SIGABRT;
  if (const int accused = slot.victim_of.load(); !crashed && accused < order_.world_size)
    end.victim_of = accused;
  // Another's SIGKILL is a cause even now: it was under way when the ranks were told to end.
  const bool foreign_kill = status.signal == SIGKILL && last_signal_ != SIGKILL;
  end.stopped = rank.told_to_end && !foreign_kill ? 1 : 0;
  end.oom = foreign_kill && oom_.claim_one() ? 1 : 0;
  rank.ended =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  end.time = static_cast<std::int64_t>(rank.ended);
  rank.end = end;
  if (plan_.options.metrics) link_.send(MessageKind::kRankGone, RankGone{local_rank});
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

void WorkerGroup::post_look() {
  if (std::exchange(look_posted_, true)) return;
  loop_.post([this] {
    look_posted_ = false;
    // If the ranks are being stopped meanwhile, nobody needs the answer.
    if (phase_ == Phase::kDeciding || phase_ == Phase::kAwaitingRoot) look();
  });
}

void WorkerGroup::look() {
  if (const Rank* root = first_to_fail()) {
    const RankView exited = view(root->end->local_rank);
    // Find the ranks that wait for it now: after they are woken, nothing shows them.
    std::string waiting = root->end->signal == 0 ? missing_rank_cause(views(), exited) : "";
    find(root->end->local_rank, std::move(waiting), Event::kRootFound);
  } else if (const Rank* victim = victim_of_a_clean_exit()) {
    const int local_rank = victim->end->victim_of - order_.base_rank;
    find(local_rank, missing_rank_cause_by_victim(view(victim->end->local_rank), view(local_rank)),
         Event::kMissingFound);
  } else {
    happen(Event::kOnlyVictims);
  }
}

void WorkerGroup::find(int local_rank, std::string text, Event event) {
  found_ = {local_rank, std::move(text)};
  happen(event);
}

// nullptr: it is on another node.
const WorkerGroup::Rank* WorkerGroup::rank_of(int global_rank) const {
  const int local_rank = global_rank - order_.base_rank;
  const bool is_here = local_rank >= 0 && local_rank < static_cast<int>(ranks_.size());
  return is_here ? &ranks_[static_cast<std::size_t>(local_rank)] : nullptr;
}

// A rank that failed because one on this node had exited with 0.
const WorkerGroup::Rank* WorkerGroup::victim_of_a_clean_exit() const {
  for (const Rank& rank : ranks_) {
    if (!rank.end || rank.end->success() || rank.end->victim_of < 0) continue;
    const Rank* const cause = rank_of(rank.end->victim_of);
    if (cause != nullptr && cause->end && cause->end->success()) return &rank;
  }
  return nullptr;
}

// The victim waited in vain for a rank that may itself have waited. Returns the local rank at the
// end of that chain, if it still runs; else -1.
int WorkerGroup::late_rank(const Rank& victim) const {
  const Rank* rank = &victim;
  for (std::size_t steps = 0; steps < ranks_.size() && rank != nullptr; ++steps) {
    if (!rank->end) return static_cast<int>(rank - ranks_.data());
    rank = rank->end->victim_of < 0 ? nullptr : rank_of(rank->end->victim_of);
  }
  return -1;
}

// No rank has failed by itself: blames the rank that the victims wait for, else the first victim.
void WorkerGroup::blame_accused() {
  const Rank* first = nullptr;
  for (const Rank& rank : ranks_) {
    if (!rank.end || rank.end->success()) continue;
    if (first == nullptr || rank.end->order < first->end->order) first = &rank;
    if (const int late = late_rank(rank); late >= 0)
      return blame({late, late_rank_cause(view(rank.end->local_rank), view(late)), *rank.end});
  }
  if (first != nullptr) blame({first->end->local_rank, ""});
}

void WorkerGroup::blame(const Blame& blame) {
  const Rank& rank = ranks_[static_cast<std::size_t>(blame.local_rank)];
  rendezvous::Cause cause;
  cause.global_rank = order_.base_rank + blame.local_rank;
  cause.local_rank = blame.local_rank;
  cause.pid = rank.number_outside;
  RankEnd end = blame.found_by ? *blame.found_by : *rank.end;
  end.local_rank = blame.local_rank;
  end.pid = rank.number_outside;
  cause.exit_code = end.code;
  cause.signal = end.signal;
  cause.state_at_death = static_cast<std::int32_t>(rank.state_at_end);
  if (blame.found_by || end.success()) blame.text.copy(cause.text, sizeof cause.text - 1);
  page_.abort(cause);
  // The part that has been read by now; the report at the end has all of it.
  const std::string tail = output_.error_tail(blame.local_rank);
  FirstFailure first{end, static_cast<int>(tail.size())};
  link_.send(MessageKind::kFirstFailure, first, tail + blame.text);
}

RankView WorkerGroup::view(int local_rank) const {
  const Rank& rank = ranks_[static_cast<std::size_t>(local_rank)];
  const rendezvous::RankSlot& slot = page_.slot(local_rank);
  RankView result;
  result.rank = order_.base_rank + local_rank;
  result.pid = rank.number_outside;
  result.alive = !rank.end.has_value();
  result.code = rank.end ? rank.end->code : 0;
  result.state = result.alive ? state_of(slot) : rank.state_at_end;
  result.operation = rendezvous::describe_newest_operation(slot);
  return result;
}

std::vector<RankView> WorkerGroup::views() const {
  std::vector<RankView> result;
  for (int i = 0; i < plan_.local_ranks; ++i) result.push_back(view(i));
  return result;
}

// Cheap, because it is asked at each of many ends.
bool WorkerGroup::somebody_can_be_missed() const {
  bool missing = false, waiting = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    const RankState state =
        rank.end ? rank.state_at_end
                 : static_cast<RankState>(page_.slot(static_cast<int>(i)).state.load());
    if (rank.end && rank.end->success() && state == RankState::kInCollective) return true;
    if (rank.end) missing |= rank.end->success() && state != RankState::kLeft;
    if (!rank.end) waiting |= state == RankState::kInit || state == RankState::kInCollective;
  }
  return missing && waiting;
}

// Ranks that begin to wait later find the exited one in the job page by themselves.
void WorkerGroup::look_for_missing_ranks() {
  if (!somebody_can_be_missed()) return;
  const std::vector<RankView> all = views();
  bool suspected = false;
  for (const RankView& exited : all) {
    const int local_rank = exited.rank - order_.base_rank;
    if (exited.alive || !ranks_[static_cast<std::size_t>(local_rank)].end->success()) continue;
    std::string text = missing_rank_cause(all, exited);
    if (text.empty()) continue;
    if (exited.state == RankState::kRunning && (suspected || !is_still_so(text))) {
      suspected = true;
      continue;
    }
    return find(local_rank, std::move(text), Event::kMissingFound);
  }
}

// When a rank exits after its last call, peers may seem to wait only because they have not run
// since. A peer that does need it finds out by itself, and fails before this time is over.
bool WorkerGroup::is_still_so(const std::string& suspicion) {
  if (suspicion == suspicion_) return suspected_for_.expired();
  suspicion_ = suspicion;
  suspected_for_ = Deadline::after(kStillWaiting);
  missing_timer_.start(suspected_for_, [this] {
    if (phase_ == Phase::kRunning || phase_ == Phase::kAwaitingRoot) look_for_missing_ranks();
  });
  return false;
}

// --- ranks that make no progress

void WorkerGroup::on_stall(const rendezvous::FlightFinding& stall, int times) {
  if (phase_ != Phase::kRunning) return;
  const bool ends = plan_.options.stop.on_stall == OnStall::kEnd;
  if (times == 1)
    link_.send(
        MessageKind::kNote, GuardNote{order_.round, ends ? -1 : first_here(stall.ranks)},
        fmt::format("no progress for {}: {}{}",
                    base::format_duration(plan_.options.stop.progress_timeout), stall.text,
                    ends ? "; dtrun ends what does not come (--on-progress-timeout=end)" : ""));
  if (!ends) return;
  // A rank that handles SIGABRT may live on; one that writes its core needs time.
  if (times == 1) stalled_until_ = Deadline::after(plan_.options.stop.failure_timeout);
  if (times == 1 || stalled_until_.expired()) end_stalled(stall, times == 1 ? SIGABRT : SIGKILL);
}

// The stack of one that is ended by SIGABRT stands in the report.
int WorkerGroup::first_here(const std::vector<int>& global_ranks) const {
  const auto runs = [this](int global_rank) {
    const Rank* const rank = rank_of(global_rank);
    return rank != nullptr && !rank->end;
  };
  const auto found = std::find_if(global_ranks.begin(), global_ranks.end(), runs);
  return found == global_ranks.end() ? -1 : *found;
}

void WorkerGroup::end_stalled(const rendezvous::FlightFinding& stall, int signal_number) {
  bool any = false;
  for (const int global_rank : stall.ranks) {
    const Rank* const rank = rank_of(global_rank);
    if (rank == nullptr || rank->end || base::has_ended(rank->pid)) continue;
    any = true;
    base::signal_process_group(rank->pid, signal_number);
    base::signal_process_group(rank->pid, SIGCONT);  // a stopped process acts on no other signal
  }
  // Those of other nodes are ended there, where their stacks are. If they are not, the ranks here
  // fail, and name the cause.
  if (any || signal_number != SIGKILL) return;
  rendezvous::Cause cause;
  cause.global_rank = stall.ranks.empty() ? -1 : stall.ranks.front();
  stall.text.copy(cause.text, sizeof cause.text - 1);
  page_.abort(cause);
}

// Of each local rank, from the job page; empty of those that ended well.
std::vector<std::string> WorkerGroup::operations_of_failed() const {
  std::vector<std::string> operations(ranks_.size());
  if (succeeded()) return operations;
  const rendezvous::FlightRecord record = rendezvous::read_flight(page_);
  for (std::size_t i = 0; i < ranks_.size() && i < record.ranks.size(); ++i)
    if (ranks_[i].end && !ranks_[i].end->success())
      operations[i] = last_operations(record.ranks[i], ranks_[i].ended);
  return operations;
}

// --- the end

void WorkerGroup::stop(const StopOrder& order) {
  flush_.set_patience(patience_of(order));
  if (order.cause[0] != '\0') {
    rendezvous::Cause cause;
    cause.global_rank = order.failed_rank;
    std::copy(std::begin(order.cause), std::end(order.cause), std::begin(cause.text));
    page_.abort(cause);
  }
  if (last_signal_ == 0) {
    cause_ = order.why;
    first_signal_ = order.signal;
    if (order.grace >= Deadline::Duration::zero()) operator_grace_ = order.grace;
  }
  const bool no_grace = last_signal_ == 0 && grace() <= Deadline::Duration::zero();
  happen(order.urgency == Urgency::kNow || no_grace ? Event::kStopNow : Event::kStop);
}

void WorkerGroup::fence() {
  // Ranks that have ended may not be reaped yet.
  const bool some_live = std::any_of(by_pid_.begin(), by_pid_.end(),
                                     [](const auto& rank) { return !base::has_ended(rank.first); });
  if (!some_live) {
    containment_.kill();
    return Leftovers::signal(SIGKILL, by_pid_);
  }
  if (last_signal_ == 0)
    link_.send(MessageKind::kFenced, GuardNote{order_.round});
  else if (last_signal_ != SIGKILL)
    link_.send(MessageKind::kNote, GuardNote{order_.round},
               "the ranks that were being stopped are killed before their grace is over, because "
               "other nodes may take their place: node 0 has heard nothing of this dtrun for too "
               "long");
  kill_now();
}

void WorkerGroup::pass(const SignalOrder& order) {
  passed_signal_ = order.signal;
  if (order.yield_time <= Deadline::Duration::zero()) return happen(Event::kForward);
  yield_time_ = order.yield_time;
  if (last_signal_ == 0) cause_ = StopCause::kOperator;
  yielded_ = true;
  happen(Event::kYield);
}

void WorkerGroup::pause() {
  if (phase_ != Phase::kRunning) return;
  paused_ = true;
  progress_.stop();
  send_signal(SIGSTOP);
}

void WorkerGroup::resume() {
  if (std::exchange(paused_, false)) {
    progress_.start(order_.world_size);
    send_signal(SIGCONT);
  }
  if (phase_ == Phase::kRunning) show_status();
}

void WorkerGroup::send_signal(int signal_number) {
  for (const auto& [pid, local_rank] : by_pid_) base::signal_process_group(pid, signal_number);
}

// Signals also processes whose rank is gone: they are children of this process now, in groups
// without a leader.
void WorkerGroup::send_last_signal(int signal_number) {
  last_signal_ = signal_number;
  // A rank that has ended, but is not reaped yet, has failed by itself.
  for (const auto& [pid, local_rank] : by_pid_)
    if (!base::has_ended(pid)) ranks_[static_cast<std::size_t>(local_rank)].told_to_end = true;
  if (signal_number == SIGKILL) containment_.kill();
  send_signal(signal_number);
  // A stopped process acts on a signal only once it goes on.
  if (signal_number != SIGKILL) send_signal(SIGCONT);
  if (by_pid_.size() < ranks_.size()) Leftovers::signal(signal_number, by_pid_);
}

void WorkerGroup::flush() {
  progress_.stop();
  if (!succeeded()) flights_.write_record(order_);
  flights_.write_trace(order_);
  output_.hide_status();
  flush_.start(plan_.options.stop.shutdown_timeout, [this] { happen(Event::kFlushed); });
}

bool WorkerGroup::succeeded() const {
  return last_signal_ == 0 && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
           return rank.end && rank.end->success();
         });
}

void WorkerGroup::report() {
  const OutputState output = output_.state();
  const std::vector<std::string> operations = operations_of_failed();
  for (const Rank& rank : ranks_) {
    if (!rank.end) continue;
    const auto local_rank = static_cast<std::size_t>(rank.end->local_rank);
    RankEnd end = *rank.end;
    const std::string tail = tail_of(output, end.local_rank);
    end.tail_bytes = static_cast<int>(tail.size());
    link_.send(MessageKind::kRankEnd, end, tail + operations[local_rank]);
  }
  GroupEnd end;
  end.round = order_.round;
  end.success = succeeded() ? 1 : 0;
  tell_losses(output, end);
  end.unkillable = unkillable_;
  end.yielded = yielded_ && last_signal_ == 0 ? 1 : 0;
  end.output_pending = output.all_out ? 0 : 1;
  link_.send(MessageKind::kGroupEnd, end);
  on_end_();
}

}  // namespace dtrun::launcher
