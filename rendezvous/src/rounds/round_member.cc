#include "dtrun/rendezvous/round_member.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/deadline.h"
#include "rounds/planted_bug.h"

namespace dtrun::rendezvous::rounds {
namespace {

using base::Error;
using base::ErrorCode;

// Over etcd any node can be the head.
std::string_view title_of_head(const MemberSettings& settings) {
  return settings.after_loss == AfterLoss::kRejoin ? "the head" : "node 0";
}

Error unreachable(const MemberSettings& settings, Moment waited, const std::string& cause) {
  const std::string what =
      fmt::format("cannot reach {} for {}", settings.head_name, base::format_duration(waited));
  if (settings.why_not_me.empty())
    return Error(ErrorCode::kConnection, what, cause,
                 "start node 0 first; check --master_addr, --master_port and the firewall");
  return Error(ErrorCode::kConnection, fmt::format("no dtrun hosts the rendezvous: {}", what),
               fmt::format("{}; {}", cause, settings.why_not_me),
               "--rdzv_endpoint must name one of the job's nodes: name it as all of them know it, "
               "start dtrun there, too, and see that no firewall is between");
}

Error no_dtrun_there(const MemberSettings& settings, const std::string& why) {
  return Error(
      ErrorCode::kConnection,
      fmt::format("what listens at {} is no dtrun that this job could join", settings.head_name),
      why,
      "another program holds that port (ss -ltnp there shows it): end it, or choose "
      "another port for all nodes");
}

Error not_started(const MemberSettings& settings) {
  return Error(ErrorCode::kTimeout,
               fmt::format("{} at {} has not started the job for {}", title_of_head(settings),
                           settings.head_name, base::format_duration(settings.join_timeout)),
               "it waits for other nodes; its own message names them",
               "start dtrun on all nodes; a longer --join_timeout waits longer");
}

Error refused(const MemberSettings& settings, const std::string& text) {
  return Error(
      ErrorCode::kUsage,
      fmt::format("{} at {} refused this node", title_of_head(settings), settings.head_name), text,
      "start all nodes with the same dtrun, --nnodes and --rdzv_id, and jobs that run at "
      "the same time with different ports");
}

// When the operator is told that the head is silent.
Moment silence_limit(const MemberState& state) {
  if (!state.accepted || state.silence_told) return Moment::max();
  return state.head_heard + 2 * state.silence_window;
}

// When an accepted member gives up waiting for the start. A little after its patience: the head,
// whose own is as long, knows better what is missing.
Moment start_limit(const MemberState& state) {
  if (state.phase != MemberPhase::kWaiting || !state.join_deadline) return Moment::max();
  return *state.join_deadline + std::chrono::seconds(1);
}

class MemberStep {
 public:
  MemberStep(MemberState& state, Moment now) : s_(state), now_(now) {}

  void join() {
    s_.since = now_;
    s_.join_deadline = now_ + s_.settings.join_timeout;
    do_(Connect{});
  }

  void on(const Connected&) {
    if (s_.phase != MemberPhase::kJoining) return do_(Disconnect{});
    s_.connected = true;
    s_.accepted = false;
    s_.answer_deadline = now_ + s_.settings.read_timeout;
    ++s_.settings.hello.connection;
    Hello hello = s_.settings.hello;
    if (planted(PlantedBug::kDoneIsNotSaidAgain)) hello.done_round = kNoRound;
    say(std::move(hello));
  }

  void on(const Unreachable& event) {
    if (s_.phase != MemberPhase::kJoining) return;
    s_.why_unreachable = event.why;
    const bool too_long = !was_in_a_round() && now_ - s_.since >= s_.settings.reach_timeout;
    if (too_long || (s_.join_deadline && now_ >= *s_.join_deadline))
      return give_up_joining(event.why);
    do_(Connect{});
  }

  void on(const Disconnected& event) {
    const bool was_told_nothing = s_.accepted && s_.phase != MemberPhase::kEnding;
    be_disconnected();
    if (s_.left && was_told_nothing) return hear(*s_.left);
    switch (s_.phase) {
      case MemberPhase::kJoining:
        if (!was_in_a_round() && event.kind != LossKind::kReset)
          return fail_with(no_dtrun_there(s_.settings, event.why));
        // Another program may listen there by now: it takes each connection, and ends it.
        if (s_.join_deadline && now_ >= *s_.join_deadline) return give_up_joining(event.why);
        return do_(Connect{});
      case MemberPhase::kWaiting:
        if (is_done() || comes_back_after(event)) return ask_again();
        if (was_in_a_round()) return lose_head(event);
        return fail_with(lost_before_the_start(event));
      case MemberPhase::kRunning:
      case MemberPhase::kStopping:
        return lose_head(event);
      case MemberPhase::kDone:
        return ask_again();
      case MemberPhase::kEnding:
        return hurry_to_end();
      case MemberPhase::kRejoining:
      case MemberPhase::kEnded:
        return;
    }
  }

  void on(const Received& event) {
    if (!s_.connected) return;
    s_.answer_deadline.reset();
    hear_of_head();
    std::visit([&](const auto& message) { hear(message); }, event.message);
  }

  void on(const StoreOpened& event) {
    if (event.round == s_.prepared && s_.connected)
      say(StoreReady{event.round, event.address, event.port});
  }

  void on(const StoreFailed& event) {
    if (event.round != s_.prepared || !s_.connected) return;
    say(Failed{event.round, own_failure(event.why)});
  }

  void on(const WorkersFailed& event) {
    if (event.round != s_.round || s_.phase != MemberPhase::kRunning) return;
    s_.phase = MemberPhase::kStopping;
    say(Failed{event.round, event.failure});
  }

  void on(const WorkersGone& event) {
    if (event.round != s_.round || !s_.workers) return;
    s_.workers = false;
    switch (s_.phase) {
      case MemberPhase::kRunning:
        if (event.how == WorkersGone::How::kAllSucceeded) {
          s_.phase = MemberPhase::kDone;
          s_.settings.hello.done_round = s_.round;
          return say(Done{s_.round});
        }
        [[fallthrough]];  // they were ended without a word of failure
      case MemberPhase::kStopping:
        s_.phase = MemberPhase::kWaiting;
        if (planted(PlantedBug::kStoppedIsNotSaid) && s_.group_rank == 1) return;
        return say_stopped(event);
      case MemberPhase::kRejoining:
        if (event.how == WorkersGone::How::kAllSucceeded) s_.settings.hello.done_round = s_.round;
        return join_again();
      case MemberPhase::kEnding:
        say_stopped(event);  // nobody need wait for what may be left of them
        return finish(s_.verdict);
      default:
        return;
    }
  }

  // Never reports that the workers are gone: the end of the connection tells the head only that
  // this agent is lost.
  void on(const WorkersStuck& event) {
    if (event.round != s_.round || !s_.workers) return;
    s_.workers = false;
    if (s_.phase == MemberPhase::kEnding) return finish(s_.verdict);
    if (s_.connected && s_.accepted) say(Leaving{event.failure});
    finish({Finish::Kind::kFailed, event.failure, {}});
  }

  void on(const OperatorStop& event) {
    if (s_.phase == MemberPhase::kEnded) return;
    const bool again = s_.stop_signal != 0;
    s_.stop_signal = event.signal;
    JobFailure why =
        own_failure(!event.why.empty() ? event.why
                                       : fmt::format("dtrun on {} was {} by {}", own_name(),
                                                     event.code != 0 ? "drained" : "stopped",
                                                     base::signal_name(event.signal)));
    (event.code != 0 ? why.code : why.signal) = event.code != 0 ? event.code : event.signal;
    if (!again && s_.connected) say(Leaving{why});
    end_with({Finish::Kind::kStopped, why, {}}, again ? StopUrgency::kNow : StopUrgency::kClean,
             event.signal);
  }

  void on(const HeadMoved& event) {
    s_.settings.head_name = event.head_name;
    if (!s_.connected) return;
    do_(Disconnect{});
    if (s_.phase != MemberPhase::kJoining) return on(Disconnected{"another head was elected"});
    // The former head's silence says nothing about the new one.
    be_disconnected();
    do_(Connect{});
  }

  // As long as the head is there, its own message comes.
  void on(const VerdictLeft& event) {
    if (!s_.taken) {
      if (s_.phase == MemberPhase::kJoining && !s_.connected)
        fail_with(Error(ErrorCode::kUsage,
                        fmt::format("job '{}' is over", s_.settings.hello.run_id),
                        event.verdict.describe(), "start another one with another --rdzv_id"));
      return;
    }
    s_.left = event.verdict;
    if (s_.phase == MemberPhase::kJoining && !s_.accepted) return take_verdict_left();
    if (s_.silence_told) give_up_head();
  }

  void on(const MemberTick&) {
    if (s_.beat_at && now_ >= *s_.beat_at) say(Beat{});
    if (now_ >= silence_limit(s_)) judge_silence();
    if (s_.answer_deadline && now_ >= *s_.answer_deadline) {
      do_(Disconnect{});
      s_.connected = false;
      return fail_with(no_dtrun_there(
          s_.settings,
          fmt::format("it did not answer in {}", base::format_duration(s_.settings.read_timeout))));
    }
    if (now_ >= start_limit(s_)) fail_with(not_started(s_.settings));
  }

  std::vector<MemberAction> actions;

 private:
  template <typename Action>
  void do_(Action action) {
    actions.emplace_back(std::move(action));
  }

  void say(AgentMessage message) {
    if (!s_.connected) return;
    if (s_.keep_alive_interval > Moment::zero()) s_.beat_at = now_ + s_.keep_alive_interval;
    do_(Say{std::move(message)});
  }

  void say_stopped(const WorkersGone& event) {
    for (const WorkerEnd& end : event.ends) say(end);
    say(Stopped{s_.round});
  }

  // --- the head's silence: it may be stopped, and go on, so that nothing follows from it
  void judge_silence() {
    // A tick that comes so late says that this agent itself was stopped.
    if (now_ >= silence_limit(s_) + s_.silence_window) {
      s_.head_heard = now_;
      return;
    }
    if (s_.left) return give_up_head();
    s_.silence_told = true;
    do_(MemberNote{fmt::format(
        "nothing was heard of {} ({}) for {}: its dtrun or its machine may be stopped; this "
        "node goes on",
        title_of_head(s_.settings), s_.settings.head_name,
        base::format_duration(now_ - s_.head_heard))});
  }

  // The head has a verdict and stands still; no other head is elected.
  void give_up_head() {
    do_(Disconnect{});
    on(Disconnected{"nothing is heard of it", LossKind::kSilent});
  }

  void hear_of_head() {
    if (std::exchange(s_.silence_told, false))
      do_(MemberNote{fmt::format("{} ({}) is heard again after {}", title_of_head(s_.settings),
                                 s_.settings.head_name,
                                 base::format_duration(now_ - s_.head_heard))});
    s_.head_heard = now_;
  }

  // --- the head's words
  void hear(const Echo&) {}

  void hear(const Accepted& message) {
    s_.accepted = s_.taken = true;
    s_.prepared = kNoRound;  // by the head before this one
    s_.phase = MemberPhase::kWaiting;
    s_.keep_alive_interval = beat_interval(message);
    s_.silence_window = message.silence_window;
    s_.beat_at = now_ + s_.keep_alive_interval;
    s_.join_deadline.reset();
    if (!was_in_a_round()) s_.join_deadline = now_ + s_.settings.join_timeout;
  }

  void hear(const Refused& message) {
    if (!was_in_a_round()) return fail_with(refused(s_.settings, message.text));
    end_with(
        {Finish::Kind::kFailed,
         own_failure(fmt::format("the job does not take {} back: {}", own_name(), message.text)),
         {}},
        StopUrgency::kClean);
  }

  void hear(const Standing& message) {
    if (s_.phase != MemberPhase::kWaiting || is_done()) return;
    s_.join_deadline.reset();
    switch (message.kind) {
      case Standing::Kind::kWaiting:
        return do_(MemberNote{"a round is running: this node will be in the next one"});
      case Standing::Kind::kSpare:
        return do_(MemberNote{"all places of the job are taken: this node is a spare"});
      case Standing::Kind::kLastCall:
        return do_(
            MemberNote{"enough nodes are here: others may come until the last call is over"});
    }
  }

  void hear(const Prepare& message) {
    if (s_.phase != MemberPhase::kWaiting) return;
    const int latest = std::max(s_.round, s_.prepared);
    if (message.round <= latest && !planted(PlantedBug::kStalePrepare)) return;
    s_.prepared = message.round;
    do_(OpenStore{message.round});
  }

  void hear(const Start& message) {
    if (s_.phase != MemberPhase::kWaiting) return;
    if (message.round <= s_.round && !planted(PlantedBug::kStaleStart)) return;
    s_.phase = MemberPhase::kRunning;
    s_.round = message.round;
    s_.group_rank = message.group_rank;
    s_.settings.hello.last_round = message.round;
    s_.settings.hello.last_group_rank = message.group_rank;
    s_.settings.hello.last_group_size = message.group_world_size;
    s_.settings.hello.done_round = kNoRound;
    s_.settings.hello.restarts = message.restart_count;
    s_.workers = true;
    s_.join_deadline.reset();
    do_(StartWorkers{message});
  }

  void hear(const Stop& message) {
    if (message.round != s_.round && !planted(PlantedBug::kStaleStop)) return;
    if (planted(PlantedBug::kStopIgnoredWhenDone) && s_.phase == MemberPhase::kDone) return;
    if (s_.phase == MemberPhase::kDone || s_.phase == MemberPhase::kWaiting) {
      s_.phase = MemberPhase::kWaiting;
      s_.settings.hello.done_round = kNoRound;
      return say(Stopped{s_.round});
    }
    if (s_.phase != MemberPhase::kRunning) return;
    s_.phase = MemberPhase::kStopping;
    do_(StopWorkers{s_.round, StopUrgency::kClean, kTerm, message.cause, kAnotherRound});
  }

  void hear(const Close& message) {
    if (s_.phase == MemberPhase::kEnding) return;
    if (message.outcome == Close::Outcome::kSucceeded) return end_with({}, StopUrgency::kClean);
    end_with({Finish::Kind::kFailed, message.failure, {}}, StopUrgency::kClean);
  }

  void hear(const Evicted& message) {
    do_(Disconnect{});
    evicted_ = message.text;
    if (s_.settings.after_loss == AfterLoss::kRejoin)
      do_(MemberNote{fmt::format("{}: it joins again", message.text)});
    on(Disconnected{message.text, LossKind::kSilent});
  }

  // --- the head is lost
  // A reset shows that the connection is over, and nothing about the process at its other end.
  bool comes_back_after(const Disconnected& event) const {
    if (s_.settings.after_loss == AfterLoss::kRejoin) return true;
    return event.kind == LossKind::kReset &&
           (s_.settings.after_loss == AfterLoss::kMakeRoom || !was_in_a_round());
  }

  Error lost_before_the_start(const Disconnected& event) const {
    if (!evicted_.empty())
      return Error(ErrorCode::kConnection, evicted_, "",
                   "a machine or a dtrun that stands still longer than --rdzv_conf "
                   "keep_alive_interval times keep_alive_max_attempt is given up: start it again");
    return Error(ErrorCode::kConnection,
                 fmt::format("{} at {} has gone before the job began", title_of_head(s_.settings),
                             s_.settings.head_name),
                 event.why, "look at its own messages");
  }

  void lose_head(const Disconnected& event) {
    const JobFailure failure =
        evicted_.empty()
            ? own_failure(fmt::format("{} ({}) is gone: {}", title_of_head(s_.settings),
                                      s_.settings.head_name, event.why),
                          kNoNodeRank)
            : own_failure(evicted_);
    if (s_.settings.after_loss == AfterLoss::kEnd)
      return end_with({Finish::Kind::kFailed, failure, {}}, StopUrgency::kClean);
    // Others may take its ranks after the silence window: no grace.
    if (!comes_back_after(event))
      return end_with(
          {Finish::Kind::kFailed, failure, {}},
          planted(PlantedBug::kGraceAfterLoss) ? StopUrgency::kClean : StopUrgency::kNow,
          planted(PlantedBug::kGraceAfterLoss) ? kTerm : kKill);
    s_.phase = MemberPhase::kRejoining;
    if (!s_.workers || planted(PlantedBug::kRejoinWithLiveWorkers)) return join_again();
    if (planted(PlantedBug::kGraceAfterLoss))
      return do_(StopWorkers{s_.round, StopUrgency::kClean, kTerm, failure, kAnotherRound});
    do_(StopWorkers{s_.round, StopUrgency::kNow, kKill, failure, kAnotherRound});
  }

  // The same answer that a head with a verdict gives to an agent that comes back
  // (HeadStep::is_owed_the_verdict).
  void take_verdict_left() {
    const bool lost_its_place = was_in_a_round() && !is_done();
    if (s_.left->outcome == Close::Outcome::kFailed || !lost_its_place) return hear(*s_.left);
    finish({Finish::Kind::kFailed,
            own_failure(fmt::format("the job has ended well without {}", own_name())),
            {}});
  }

  // This node is done. Only a head can say whether the job has ended well.
  void ask_again() {
    if (is_done() && planted(PlantedBug::kDoneNeedsNoWord)) return finish({});
    join_again();
  }

  void join_again() {
    s_.phase = MemberPhase::kJoining;
    if (s_.left) return take_verdict_left();
    s_.since = now_;
    if (planted(PlantedBug::kRejoinForEver))
      s_.join_deadline.reset();
    else
      s_.join_deadline = now_ + s_.settings.rejoin_timeout;
    do_(Connect{});
  }

  bool is_done() const { return s_.settings.hello.done_round != kNoRound; }
  bool was_in_a_round() const { return s_.round != kNoRound; }

  void give_up_joining(const std::string& why) {
    if (!was_in_a_round()) return fail_with(unreachable(s_.settings, now_ - s_.since, why));
    const std::string gone =
        fmt::format("{} ({}) is gone: nobody answers there for {}: {}", title_of_head(s_.settings),
                    s_.settings.head_name, base::format_duration(now_ - s_.since), why);
    const std::string unknown = fmt::format(
        "; the ranks of {} have ended well, and how the job has ended it cannot know", own_name());
    finish(
        {Finish::Kind::kFailed, own_failure(is_done() ? gone + unknown : gone, kNoNodeRank), {}});
  }

  // --- the end
  void fail_with(Error error) {
    end_with({Finish::Kind::kError, {}, std::move(error)}, StopUrgency::kClean);
  }

  void end_with(Finish verdict, StopUrgency urgency, int signal = kTerm) {
    if (s_.phase == MemberPhase::kEnded) return;
    const bool first = s_.phase != MemberPhase::kEnding;
    if (first) s_.verdict = std::move(verdict);
    if (!s_.workers || planted(PlantedBug::kEndWithLiveWorkers)) return finish(s_.verdict);
    s_.phase = MemberPhase::kEnding;
    if (first || urgency == StopUrgency::kNow)
      do_(StopWorkers{s_.round, urgency, signal, s_.verdict.failure});
  }

  // The operator stops this agent while the head cannot see it any more. After the silence window
  // other nodes take its ranks, so its workers get no grace.
  void hurry_to_end() {
    if (s_.verdict.kind != Finish::Kind::kStopped || s_.settings.after_loss == AfterLoss::kEnd ||
        planted(PlantedBug::kGraceWhenLeaving))
      return;
    do_(StopWorkers{s_.round, StopUrgency::kNow, kKill, s_.verdict.failure});
  }

  void be_disconnected() {
    s_.connected = false;
    s_.accepted = false;
    s_.beat_at.reset();
    s_.answer_deadline.reset();
  }

  void finish(Finish verdict) {
    s_.phase = MemberPhase::kEnded;
    if (s_.connected) do_(Disconnect{});
    be_disconnected();
    s_.join_deadline.reset();
    do_(std::move(verdict));
  }

  JobFailure own_failure(std::string text) const {
    return own_failure(std::move(text), s_.group_rank);
  }

  JobFailure own_failure(std::string text, int node_rank) const {
    JobFailure failure;
    failure.node_rank = node_rank;
    failure.host = s_.settings.hello.host;
    failure.text = std::move(text);
    return failure;
  }

  std::string own_name() const {
    Hello hello = s_.settings.hello;
    if (s_.group_rank != kNoNodeRank) hello.node_rank = s_.group_rank;
    return hello.describe();
  }

  static constexpr StopWorkers::Then kAnotherRound = StopWorkers::Then::kAnotherRound;
  static constexpr int kTerm = 15;
  static constexpr int kKill = 9;

  MemberState& s_;
  const Moment now_;
  std::string evicted_;  // by what the head has just said
};

}  // namespace

std::vector<MemberAction> begin(MemberState& state, Moment now) {
  MemberStep step(state, now);
  step.join();
  return std::move(step.actions);
}

std::vector<MemberAction> step(MemberState& state, const MemberEvent& event, Moment now) {
  MemberStep step(state, now);
  std::visit([&](const auto& what) { step.on(what); }, event);
  return std::move(step.actions);
}

std::string waiting_text(const MemberState& state) {
  const std::string head = fmt::format("node 0 ({})", state.settings.head_name);
  if (state.phase == MemberPhase::kJoining && !state.accepted)
    return fmt::format("waiting for {}{}{}", head, state.why_unreachable.empty() ? "" : ": ",
                       state.why_unreachable);
  if (state.phase == MemberPhase::kWaiting && state.join_deadline)
    return fmt::format("waiting for other nodes: dtrun on {} says who is missing", head);
  return "";
}

bool others_may_go_on(const MemberState& state) {
  const MemberSettings& settings = state.settings;
  if (settings.hello.max_nodes == 1 || settings.after_loss == AfterLoss::kEnd) return false;
  // A head's verdict is final.
  return state.phase != MemberPhase::kEnding || state.verdict.kind == Finish::Kind::kStopped;
}

Moment member_deadline(const MemberState& state) {
  Moment due = Moment::max();
  const auto by = [&](std::optional<Moment> when) {
    if (when) due = std::min(due, *when);
  };
  by(state.beat_at);
  by(state.answer_deadline);
  by(silence_limit(state));
  by(start_limit(state));
  return due;
}

}  // namespace dtrun::rendezvous::rounds
