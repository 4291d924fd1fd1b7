// ProcessGroup::shrink: those that are left of a group make a new one. The group itself may have
// failed, so they meet in the store, in attempts that have numbers. What an attempt comes to is
// said by one key each, which whoever comes first writes and all others read: who is in, and
// whether the new group is there. So all agree, whoever dies meanwhile, and each wait has a
// deadline.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/split.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "group_core.h"
#include "group_failure.h"
#include "group_failure_texts.h"
#include "rank_record.h"

namespace dtrun::collectives {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// One call of shrink() on one rank. Ranks are the old group's, but in texts.
class Shrinking {
 public:
  Shrinking(GroupCore& core, ShrinkOptions options)
      : core_(core),
        options_(std::move(options)),
        timeout_(
            options_.timeout.value_or(std::min<Deadline::Duration>(core.timeout(), kPatience))),
        arrival_(Deadline::after(time_to_come())),
        end_(Deadline::after(timeout_)) {
    if (!core_.options().store)
      throw Error(ErrorCode::kUnavailable, "a group without a store cannot be shrunk",
                  "its ranks would have nowhere to meet", "make the group with create()");
    require_timeout(timeout_, "shrink");
    require_excluded();
    pass_failed_attempts();
  }

  ProcessGroup run() {
    announce();
    const std::vector<int> members = decide();
    require_membership(members);
    require_first_time();
    const Deadline deadline = end_of_making();
    GroupOptions child = child_of(members, deadline);
    BackendSet backends = make(members, child, deadline);
    core_.shrinks() = {attempt_ + 1, members};
    child.join_by.reset();
    // The old group's failure is overcome: from here on it explains nothing that happens to this
    // rank.
    if (child.record) child.record->set_victim_of(-1);
    if (child.rank == 0)
      base::log::warning(base::log::Component::kCollectives,
                         "group '{}' goes on as '{}' with {} of {} ranks: {}", core_.options().name,
                         child.name, members.size(), core_.size(), names_of(members));
    auto made = std::make_shared<GroupCore>(std::move(child), core_.spec(), std::move(backends));
    made->meter().set_timing(core_.meter().timing());
    return ProcessGroup(std::move(made));
  }

 private:
  static constexpr Deadline::Duration kPatience = std::chrono::seconds(30);
  /// A wait for others is cut into these: some may have ended meanwhile, or the job.
  static constexpr Deadline::Duration kSlice = std::chrono::milliseconds(100);
  /// What is left of the timeout may be too little to make backends in.
  static constexpr Deadline::Duration kLeastForMaking = std::chrono::seconds(1);
  static constexpr std::string_view kMade = "made";
  static constexpr char kFailed = '!';  ///< a GroupFailure follows

  rendezvous::Store& store() const { return *core_.options().store; }
  bool names_who_is_left_out() const { return !options_.excluded_ranks.empty(); }
  std::string key(std::string_view word) const {
    return fmt::format("shrink/{}/{}", attempt_, word);
  }
  std::vector<std::string> keys(std::string_view word, const std::vector<int>& ranks) const {
    std::vector<std::string> all;
    for (const int rank : ranks) all.push_back(fmt::format("{}/{}", key(word), rank));
    return all;
  }
  std::string names_of(const std::vector<int>& ranks) const {
    std::vector<int> global;
    for (const int rank : ranks)
      global.push_back(core_.options().global_ranks[static_cast<std::size_t>(rank)]);
    return rank_list(global);
  }

  void require_excluded() {
    std::vector<int>& ranks = options_.excluded_ranks;
    std::sort(ranks.begin(), ranks.end());
    const GroupShape shape = core_.shape(core_.main_backend().device_type());
    for (const int rank : ranks) require_rank(shape, rank, "a rank to leave out");
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end())
      throw Error(ErrorCode::kInvalidArgument, "a rank to leave out is named twice");
    if (std::find(ranks.begin(), ranks.end(), core_.rank()) != ranks.end())
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is to be left out of group '{}', and calls shrink itself",
                              names_of({core_.rank()}), core_.options().name),
                  "", "only those that stay call it");
  }

  /// Those that may take part: of the last group that came of this one, if there was one.
  std::vector<int> candidates() const {
    std::vector<int> ranks = core_.shrinks().survivors;
    if (ranks.empty())
      for (int rank = 0; rank < core_.size(); ++rank) ranks.push_back(rank);
    std::erase_if(ranks, [&](int rank) {
      return std::binary_search(options_.excluded_ranks.begin(), options_.excluded_ranks.end(),
                                rank);
    });
    return ranks;
  }

  void pass_failed_attempts() {
    for (attempt_ = core_.shrinks().next;; ++attempt_) {
      const auto has_failed = [&](std::string_view word) {
        const std::optional<std::string> text = store().try_get(key(word));
        return text && text->starts_with(kFailed);
      };
      if (!has_failed("members") && !has_failed("verdict")) return;
    }
  }

  /// Writes it unless another rank was first. @return what stands there
  std::string propose(std::string_view word, std::string_view text) {
    return store().compare_set(key(word), "", text);
  }
  static std::string failure_text(const Error& error) {
    return kFailed + GroupFailure{error, -1}.encode();
  }
  static void well_or_throw(const std::string& text) {
    if (text.starts_with(kFailed)) throw GroupFailure::decode(text.substr(1)).error;
  }

  /// Waits a little. @return whether all have said the word
  bool all_have_said(std::string_view word, const std::vector<int>& ranks, Deadline deadline) {
    if (const std::optional<GroupFailure> job = job_failure(core_.options().job_page.get()))
      throw job->error;
    try {
      store().wait(keys(word, ranks), deadline.earlier(Deadline::after(kSlice)));
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      return false;
    }
  }
  std::vector<int> silent(std::string_view word, const std::vector<int>& ranks) {
    std::vector<int> result;
    for (const int rank : ranks)
      if (!store().check(keys(word, {rank}))) result.push_back(rank);
    return result;
  }
  static std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
    std::vector<int> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
  }
  static std::vector<int> without(const std::vector<int>& a, const std::vector<int>& b) {
    std::vector<int> rest;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
    return rest;
  }

  void announce() {
    const auto of = [&](const std::vector<int>& excluded) {
      return excluded.empty() ? std::string("nobody in particular") : names_of(excluded);
    };
    const std::string mine = of(options_.excluded_ranks);
    const std::string first = propose("excluded", mine);
    if (first != mine)
      well_or_throw(propose(
          "members",
          failure_text(Error(
              ErrorCode::kDisagreement,
              fmt::format("ranks disagree about shrinking group '{}': {} leaves out {}, one that "
                          "came before it leaves out {}",
                          core_.options().name, names_of({core_.rank()}), mine, first),
              "", "pass the same ranks everywhere, and call shrink() again"))));
    store().set(keys("here", {core_.rank()}).front(), "1");
  }

  // One timeout for the whole call. A rank that does not come takes three quarters of it.
  Deadline::Duration time_to_come() const { return timeout_ / 4 * 3; }
  Deadline end_of_making() const {
    return Deadline::at(std::max(end_.when(), Deadline::after(kLeastForMaking).when()));
  }

  std::vector<int> decide() {
    for (;;) {
      if (const std::optional<std::string> said = store().try_get(key("members")))
        return read_members(*said);
      const std::vector<int> ended = common(candidates(), core_.ended_ranks());
      if (names_who_is_left_out() && !ended.empty())
        return read_members(propose(
            "members", failure_text(cannot_come(ErrorCode::kPeerFailed, ended, " has ended"))));
      const std::vector<int> expected = without(candidates(), ended);
      if (all_have_said("here", expected, arrival_))
        return read_members(propose("members", fmt::format("{}", fmt::join(expected, ","))));
      if (!arrival_.expired()) continue;
      const std::vector<int> absent = silent("here", expected);
      if (names_who_is_left_out() && !absent.empty())
        return read_members(propose(
            "members",
            failure_text(cannot_come(
                ErrorCode::kTimeout, absent,
                fmt::format(" did not come in {}", base::format_duration(time_to_come()))))));
      return read_members(
          propose("members", fmt::format("{}", fmt::join(without(expected, absent), ","))));
    }
  }

  Error cannot_come(ErrorCode code, const std::vector<int>& ranks, const std::string& what) const {
    return Error(
        code,
        fmt::format("group '{}' cannot be shrunk without {} alone: {}{}", core_.options().name,
                    names_of(options_.excluded_ranks), names_of(ranks), what),
        "all but those that are to be left out must call shrink()",
        "leave them out as well, or leave the list out");
  }

  static std::vector<int> read_members(const std::string& text) {
    well_or_throw(text);
    std::vector<int> ranks;
    for (const std::string_view part : base::split(text, ','))
      ranks.push_back(static_cast<int>(base::parse_integer(part).value_or(-1)));
    return ranks;
  }

  void require_membership(const std::vector<int>& members) const {
    if (std::find(members.begin(), members.end(), core_.rank()) != members.end()) return;
    throw Error(ErrorCode::kAborted,
                fmt::format("group '{}' was shrunk to {}, and {} is not among them",
                            core_.options().name, names_of(members), names_of({core_.rank()})),
                "it came too late, or they took it for dead",
                "give shrink() a longer timeout; this rank can only leave");
  }

  /// A rank that made its backends in this attempt, and then left it by an error, cannot make them
  /// again: the others hold on to the first ones.
  void require_first_time() {
    if (!store().check(keys("made", {core_.rank()}))) return;
    const std::string why = names_of({core_.rank()}) + " left an attempt, and came again";
    well_or_throw(propose("verdict", failure_text(not_made(why))));
    throw Error(ErrorCode::kAborted,
                fmt::format("group '{}' was shrunk, and has gone on without {}",
                            core_.options().name, names_of({core_.rank()})),
                "its last call of shrink() ended by an error just before the new group was there",
                "this rank can only leave");
  }

  GroupOptions child_of(const std::vector<int>& members, Deadline deadline) const {
    GroupOptions child = core_.options();
    child.name =
        options_.name.value_or(fmt::format("{}-shrink-{}", core_.options().name, attempt_));
    child.backend = core_.spec().to_string();
    child.store = rendezvous::make_prefix_store(key("group"), core_.options().store);
    child.join_by = deadline;
    child.timeout = core_.timeout();
    child.global_ranks.clear();
    for (const int rank : members) {
      if (rank == core_.rank()) child.rank = static_cast<int>(child.global_ranks.size());
      child.global_ranks.push_back(core_.options().global_ranks[static_cast<std::size_t>(rank)]);
    }
    return child;
  }

  /// The backends, once all members have theirs.
  BackendSet make(const std::vector<int>& members, const GroupOptions& child, Deadline deadline) {
    const Deadline::Duration time = deadline.remaining();
    BackendSet backends;
    try {
      backends = make_backends(child);
      store().set(keys("made", {core_.rank()}).front(), "1");
    } catch (const Error& error) {
      propose("verdict", failure_text(not_made(error.summary())));
    }
    for (;;) {
      if (const std::optional<std::string> said = store().try_get(key("verdict"))) {
        well_or_throw(*said);
        return backends;
      }
      const std::vector<int> ended = common(members, core_.ended_ranks());
      if (!ended.empty()) {
        propose("verdict", failure_text(not_made(names_of(ended) + " has ended meanwhile")));
      } else if (all_have_said("made", members, deadline)) {
        propose("verdict", kMade);
      } else if (deadline.expired()) {
        propose("verdict", failure_text(not_made(fmt::format("{} took more than {}",
                                                             names_of(silent("made", members)),
                                                             base::format_duration(time)))));
      }
    }
  }

  Error not_made(const std::string& what) const {
    return Error(ErrorCode::kPeerFailed,
                 fmt::format("group '{}' could not be shrunk: {}", core_.options().name, what), "",
                 "call shrink() again: those that are left try anew");
  }

  GroupCore& core_;
  ShrinkOptions options_;
  const Deadline::Duration timeout_;
  const Deadline arrival_;
  const Deadline end_;
  std::uint64_t attempt_ = 0;
};

}  // namespace

ProcessGroup ProcessGroup::shrink(ShrinkOptions options) const {
  core().require_open("shrink");
  return Shrinking(core(), std::move(options)).run();
}

}  // namespace dtrun::collectives
