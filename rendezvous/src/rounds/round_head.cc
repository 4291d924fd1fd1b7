#include "dtrun/rendezvous/round_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/deadline.h"
#include "rounds/head_step.h"
#include "rounds/planted_bug.h"

namespace dtrun::rendezvous::rounds {
namespace {

// So often the silent are looked for, and so long a head that runs does not sleep.
Moment sweep_interval(const RoundSettings& settings) {
  return std::min(settings.keep_alive_interval, settings.silence_window / 4);
}

}  // namespace

void HeadStep::on(const Said& said) {
  if (const auto* hello = std::get_if<Hello>(&said.message)) return on_hello(said.id, *hello);
  const auto found = s_.members.find(said.id);
  if (found == s_.members.end()) return do_(HangUp{said.id});  // no Hello yet
  if (!planted(PlantedBug::kBeatsDoNotCount) || !std::holds_alternative<Beat>(said.message))
    found->second.heard = now_;
  std::visit([&](const auto& message) { on_word(said.id, found->second, message); }, said.message);
}

void HeadStep::on(const Lost& lost) {
  lose(lost.id, lost.kind, lost.why);
}

void HeadStep::on(const Tick&) {
  if (now_ < s_.next_sweep) return;
  s_.next_sweep = now_ + sweep_interval(s_.settings);
  if (planted(PlantedBug::kNobodyIsEvicted)) return;
  std::vector<MemberId> silent;
  for (const auto& [id, member] : s_.members)
    if (now_ - member.heard >= s_.settings.silence_window) silent.push_back(id);
  for (const MemberId id : silent) {
    const std::string why = fmt::format("nothing was heard of it for {}",
                                        base::format_duration(s_.settings.silence_window));
    send(id, Evicted{fmt::format("{} was given up by the head{}: {}", name_of(s_.members.at(id)),
                                 host_of_head(), why)});
    do_(HangUp{id});
    lose(id, LossKind::kSilent, why);
  }
}

void HeadStep::settle() {
  HeadPhase before;
  do {
    before = s_.phase;
    switch (s_.phase) {
      case HeadPhase::kGathering:
        gather();
        break;
      case HeadPhase::kPreparing:
        if (is_out_of_date_by_now()) gather_again();
        break;
      case HeadPhase::kRunning:
        run();
        break;
      case HeadPhase::kDraining:
        drain();
        break;
      case HeadPhase::kClosed:
        leave();
        break;
    }
  } while (s_.phase != before);
}

// Somebody has come who knows of a later round of the last head: its workers may live, or are done.
bool HeadStep::is_out_of_date_by_now() const {
  return somebody_was_done(s_) || s_.latest_seen >= s_.round;
}

void HeadStep::forgive_own_pause() {
  // A head that runs takes a step at least each sweep interval. What is more it stood still, and
  // heard nobody: that counts against no agent, and every deadline moves on by it.
  const Moment pause = now_ - s_.last_step - sweep_interval(s_.settings);
  if (pause > Moment::zero() && !planted(PlantedBug::kNoPauseCompensation)) {
    for (auto& [id, member] : s_.members) member.heard += pause;
    for (std::optional<Moment>* deadline : {&s_.join_deadline, &s_.last_call, &s_.done_deadline})
      if (*deadline) **deadline += pause;
  }
  s_.last_step = now_;
}

HeadState make_head(const RoundSettings& settings, std::string run_id, Moment now) {
  HeadState state;
  state.settings = settings;
  state.run_id = std::move(run_id);
  state.gathering_since = now;
  state.join_deadline = now + settings.join_timeout;
  state.last_step = now;
  state.next_sweep = now + sweep_interval(settings);
  return state;
}

std::vector<HeadAction> step(HeadState& state, const HeadEvent& event, Moment now) {
  HeadStep step(state, now);
  step.forgive_own_pause();
  std::visit([&](const auto& what) { step.on(what); }, event);
  step.settle();
  return std::move(step.actions);
}

void take_over(HeadState& state, int last_round, Moment now) {
  state.head_loss = HeadLoss::kMovesTheHead;
  state.latest_seen = std::max(state.latest_seen, last_round);
  if (last_round == kNoRound) return;
  // The workers of the last head's round may still run. Each agent ends its own within a window of
  // having lost that head, and they are dead death_grace later: no round before.
  state.took_over = true;
  state.fence =
      std::max(state.fence, now + state.settings.silence_window + state.settings.death_grace);
}

std::vector<HeadAction> step_down(HeadState& state) {
  std::vector<HeadAction> actions;
  for (const auto& [id, member] : state.members)
    if (id != state.own) actions.emplace_back(HangUp{id});
  actions.emplace_back(End{});
  state.phase = HeadPhase::kClosed;
  state.ended = state.resigned = true;
  return actions;
}

Moment fence_of(const HeadState& state) {
  return std::max(state.fence, state.absent.latest());
}

Moment head_deadline(const HeadState& state) {
  if (state.ended) return Moment::max();
  Moment due = state.next_sweep;
  const auto by = [&](std::optional<Moment> when) {
    if (when) due = std::min(due, *when);
  };
  const Moment fence = fence_of(state);
  const bool fenced = fence > state.last_step;
  const Moment held = std::max(fence, state.pause_until);
  switch (state.phase) {
    case HeadPhase::kGathering:
      if (somebody_was_done(state)) {
        by(state.done_deadline);
        break;
      }
      if (held > state.last_step) return std::min(due, held);
      by(state.join_deadline);
      by(state.last_call);
      break;
    case HeadPhase::kPreparing:
      break;
    case HeadPhase::kRunning:
      if (state.newcomers_since &&
          (!state.somebody_done || planted(PlantedBug::kDeadlineInThePast)))
        by(*state.newcomers_since + state.settings.last_call_timeout);
      break;
    case HeadPhase::kDraining:
      if (fenced && state.busy == 0) by(fence);
      break;
    case HeadPhase::kClosed:
      by(end_of(state));
      break;
  }
  return due;
}

}  // namespace dtrun::rendezvous::rounds
