// What an AdapterBackend says when its group fails: who, what, where; and how it fails.
#include <fmt/core.h>
#include <unistd.h>

#include "adapter/adapter_backend.h"
#include "dtrun/base/error.h"
#include "dtrun/base/futex.h"
#include "dtrun/base/socket.h"
#include "group_failure_texts.h"

namespace dtrun::collectives::adapter {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// How long a launcher may take to learn of a death that a broken connection told before.
constexpr auto kCauseGrace = std::chrono::seconds(1);

/// The guard's word about a rank of this machine.
std::optional<std::string> cause_of_death(rendezvous::JobPage& page, int global_rank) {
  for (int slot = 0; slot < page.slot_count(); ++slot) {
    if (page.slot(slot).global_rank.load() != global_rank) continue;
    const Deadline grace = Deadline::after(kCauseGrace);
    while (!page.aborted() && !grace.expired()) base::futex_wait(page.header().abort, 0, grace);
    if (page.aborted()) return page.describe_cause();
  }
  return std::nullopt;
}

}  // namespace

std::vector<Card> meet_members(const GroupOptions& options, Deadline deadline) {
  Card mine;
  mine.global_rank = options.global_ranks[static_cast<std::size_t>(options.rank)];
  mine.pid = ::getpid();
  mine.host = base::host_name();
  return exchange_cards(options, mine, deadline);
}

int AdapterBackend::global_rank(int rank) const {
  return members_[static_cast<std::size_t>(rank)].global_rank;
}

std::exception_ptr AdapterBackend::failure() {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

std::exception_ptr AdapterBackend::fail(const GroupFailure& failure) {
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) return failure_;
    failure_ = std::make_exception_ptr(failure.error);
  }
  const ErrorCode code = failure.error.code();
  const bool of_peer = code == ErrorCode::kPeerFailed || code == ErrorCode::kTimeout ||
                       (code == ErrorCode::kAborted && failure.failed_rank != global_rank(rank()));
  if (failure.failed_rank >= 0 && of_peer) record_->set_victim_of(failure.failed_rank);
  library_->fail(failure);
  return this->failure();
}

void AdapterBackend::reject(const Fingerprint& fingerprint, const Error& error) {
  // A child's mistakes are not its parent's.
  if (size() == 1 || fork_mark_.in_child()) return;
  fail(rejected_failure(members_[static_cast<std::size_t>(rank())], fingerprint, options_.name,
                        error));
}

void AdapterBackend::abort(const Error& error) {
  require_own_process();
  fail({error, global_rank(rank())});
}

GroupFailure AdapterBackend::explain(const AdapterOperation& operation,
                                     const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Late& late_peers) {
    return late(operation, late_peers.peers);
  } catch (const PeerLost& peer_lost) {
    return lost(operation, peer_lost.peer);
  } catch (const PeerLeft& peer_left) {
    return left(peer_left.peer);
  } catch (const GroupFailed& failed) {
    return failed.failure;
  } catch (const Disagreement& found) {
    return disagreement(found);
  } catch (const Interrupted&) {
    // Only after the group's failure or end, which then is what the caller gets to see.
    return {left_error(options_.name), -1};
  } catch (const Error& ours) {
    return {ours, -1};
  } catch (const std::exception& other) {
    return {Error(ErrorCode::kSystem,
                  fmt::format("{} of group '{}' failed in backend '{}'",
                              operation.fingerprint().describe(), options_.name, name()),
                  other.what()),
            -1};
  }
}

GroupFailure AdapterBackend::disagreement(const Disagreement& found) const {
  return {disagreement_error(options_.name, {global_rank(found.peer), found.theirs},
                             {global_rank(rank()), found.ours}, found.bytes),
          -1};
}

GroupFailure AdapterBackend::late(const AdapterOperation& operation,
                                  const std::vector<int>& missing) const {
  std::vector<int> ranks;
  std::string who;
  for (const int peer : missing) {
    ranks.push_back(global_rank(peer));
    who += (who.empty() ? "" : ", ") + describe_member(members_[static_cast<std::size_t>(peer)]);
  }
  const auto waited = Deadline::Clock::now() - operation.started();
  return {Error(ErrorCode::kTimeout,
                waited_text(global_rank(rank()), waited, operation.fingerprint(), options_.name,
                            ranks.empty() ? "its peers" : rank_list(ranks)),
                who.empty() ? "" : "no answer came from " + who,
                "raise the timeout if they only need longer"),
          ranks.empty() ? -1 : ranks.front()};
}

std::vector<int> AdapterBackend::ended_ranks() {
  const std::scoped_lock lock(mutex_);
  return {lost_.begin(), lost_.end()};
}

GroupFailure AdapterBackend::lost(const AdapterOperation& operation, int peer) {
  {
    const std::scoped_lock lock(mutex_);
    lost_.insert(peer);
  }
  const Card& member = members_[static_cast<std::size_t>(peer)];
  const std::string met = fmt::format("rank {} was in {} of group '{}'", global_rank(rank()),
                                      operation.fingerprint().describe(), options_.name);
  if (options_.job_page) {
    const std::optional<std::string> cause = cause_of_death(*options_.job_page, member.global_rank);
    if (cause)
      return {Error(ErrorCode::kPeerFailed, *cause, met, "look at that rank's output first"),
              member.global_rank};
  }
  return {member_lost_error(member, met), member.global_rank};
}

GroupFailure AdapterBackend::left(int peer) const {
  return member_left_failure(members_[static_cast<std::size_t>(peer)], options_.name,
                             global_rank(rank()), "");
}

}  // namespace dtrun::collectives::adapter
