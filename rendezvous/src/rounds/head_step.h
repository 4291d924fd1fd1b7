// HeadStep: one step of the head's state machine (round_head.h): the state, the time, and what is
// to be done. Lives for one step(). Its words are in round_head.cc (events, and what follows from
// the state), round_head_members.cc (who comes, says something, goes), round_head_gathering.cc (to
// the start of a round) and round_head_end.cc (to its end, and that of the job). Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dtrun/rendezvous/round_head.h"
#include "rounds/round_places.h"

namespace dtrun::rendezvous::rounds {

struct Objection;

/// Until then a closed head stays, unless more happens.
Moment end_of(const HeadState& state);
/// No round may open: some were done in the last one of the head before.
bool somebody_was_done(const HeadState& state);

class HeadStep {
 public:
  HeadStep(HeadState& state, Moment now) : s_(state), now_(now) {}

  void on(const Said& said);
  void on(const Lost& lost);
  void on(const Tick&);
  /// Does what follows from the present state. Every step ends here.
  void settle();
  /// A head that was stopped (or a machine that was) has heard nobody in that time.
  void forgive_own_pause();

  std::vector<HeadAction> actions;

 private:
  static constexpr int kUnreachableCode = 69, kTemporaryCode = 75;  // as the launcher's exit codes
  static constexpr int kUsageCode = 64;
  // For agents that are about to come to a job that cannot begin.
  static constexpr Moment kFarewell = std::chrono::seconds(5);

  template <typename Action>
  void do_(Action action) {
    actions.emplace_back(std::move(action));
  }
  template <typename Message>
  void send(MemberId id, Message message) {
    do_(Send{id, HeadMessage(std::move(message))});
  }
  void note(Note::Weight weight, std::string text) { do_(Note{weight, std::move(text)}); }

  // --- coming
  void on_hello(MemberId id, const Hello& hello);
  bool is_out_of_date(const Hello& hello) const;
  bool take_back(MemberId id, const Hello& hello);
  void admit(MemberId id, const Hello& hello);
  bool is_owed_the_verdict(const Hello& hello) const;
  void learn_of_the_past(const Hello& hello);
  void learn_who_was_done(const Hello& hello);
  void send_away(MemberId id, const Hello& hello, const Objection& objection);
  void tell_standing(MemberId id, Standing::Kind kind);

  // --- words of members
  void on_word(MemberId, HeadMember&, const Hello&);
  void on_word(MemberId id, HeadMember&, const Beat&);
  void on_word(MemberId, HeadMember& member, const StoreReady& ready);
  void on_word(MemberId id, HeadMember& member, const Stopped& stopped);
  void on_word(MemberId, HeadMember& member, const Done& done);
  void on_word(MemberId id, HeadMember& member, const Failed& failed);
  void on_word(MemberId, HeadMember& member, const WorkerEnd& end);
  void on_word(MemberId id, HeadMember& member, const Leaving& leaving);
  bool is_of_this_round(const HeadMember& member, int round) const;
  void has_stopped(HeadMember& member);

  // --- going
  void lose(MemberId id, LossKind kind, const std::string& why);
  void forget(MemberId id, const HeadMember& member);
  void miss(MemberId id, const HeadMember& member, DrainCause cause, const JobFailure& failure);
  static bool holds_store(const HeadMember& member) { return member.group_rank == 0; }
  bool was_in_last_round(const HeadMember& member) const;
  static std::string name_of(const HeadMember& member);
  std::string host_of_head() const;
  static JobFailure end_of_host(const std::string& why);
  static JobFailure failure_of_node(const Hello& hello, std::string text);

  // --- gathering
  void gather_again();
  void gather();
  void judge_former_round();
  void fail_with_former_head();
  void give_up_gathering();
  std::vector<Candidate> choose() const;
  void give_first_place_to_own(std::vector<Candidate>& chosen) const;
  void prepare();
  bool is_out_of_date_by_now() const;
  void start_round(const StoreReady& ready);

  // --- running, draining, closed
  void run();
  void interrupt(DrainCause cause, const JobFailure& failure, MemberId who, std::uint64_t agent);
  int& spent_for(DrainCause cause);
  void close_for_good(const JobFailure& failure, const std::string& why);
  bool fails_alike_again(DrainCause cause, const JobFailure& failure);
  void begin_drain(DrainCause cause, const JobFailure& failure);
  void drain();
  bool pay_for_restart();
  void close(Close::Outcome outcome, const JobFailure& failure);
  void note_told(std::uint64_t agent);
  void leave();

  HeadState& s_;
  const Moment now_;
};

}  // namespace dtrun::rendezvous::rounds
