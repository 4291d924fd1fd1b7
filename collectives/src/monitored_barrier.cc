// ProcessGroup::monitored_barrier: every rank sends rank 0 a word and waits for its answer.
#include <fmt/core.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "group_call.h"
#include "group_failure_texts.h"

namespace dtrun::collectives {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// Not a user's, whose messages must not be taken for these.
constexpr std::uint32_t kTag = ProcessGroup::kLastTag + 1;

/// One monitored barrier on one rank.
class MonitoredBarrier {
 public:
  MonitoredBarrier(const GroupCore& core, Backend& backend, const Fingerprint& print,
                   Deadline::Duration timeout)
      : core_(core), backend_(backend), print_(print), timeout_(timeout) {}

  void lead(const MonitoredBarrierOptions& options) {
    const Deadline deadline = Deadline::after(timeout_);
    std::vector<Work> words;
    for (int rank = 1; rank < core_.size(); ++rank)
      words.push_back(backend_.start(word(OpKind::receive, rank, deadline)));
    const std::vector<int> missing = wait_for(words);
    if (!missing.empty()) {
      const Error error = missing_error(missing, options.wait_all_ranks);
      core_.reject(print_, error);
      throw error;
    }
    std::vector<Work> answers;
    for (int rank = 1; rank < core_.size(); ++rank)
      answers.push_back(backend_.start(word(OpKind::send, rank, deadline)));
    for (const Work& answer : answers) answer.wait();
  }

  void follow() {
    // Rank 0's verdict names whom it missed: it must come before this rank's own deadline.
    const Deadline deadline =
        Deadline::after(timeout_ > Deadline::Duration::max() / 2 ? timeout_ : 2 * timeout_);
    backend_.start(word(OpKind::send, 0, deadline)).wait();
    backend_.start(word(OpKind::receive, 0, deadline)).wait();
  }

 private:
  /// Of no bytes.
  Message word(OpKind kind, int peer, Deadline deadline) const {
    return {kind, {}, peer, kTag, {.fingerprint = print_, .deadline = deadline, .async = true}};
  }

  /// @return the global ranks whose word has not come in time
  std::vector<int> wait_for(const std::vector<Work>& words) const {
    std::vector<int> missing;
    for (std::size_t i = 0; i < words.size(); ++i) {
      try {
        words[i].wait();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) throw;
        missing.push_back(core_.options().global_ranks[i + 1]);
      }
    }
    return missing;
  }

  Error missing_error(const std::vector<int>& missing, bool all) const {
    const bool one = missing.size() == 1 || !all;
    return Error(
        ErrorCode::kTimeout,
        waited_text(core_.options().global_ranks[0], timeout_, print_, core_.options().name,
                    rank_list(one ? std::vector<int>{missing.front()} : missing)),
        missing.size() > 1 && !all
            ? "it is the first one missing; with wait_all_ranks all are named"
            : "",
        "look at the missing ranks' output; raise the timeout if they only need longer");
  }

  const GroupCore& core_;
  Backend& backend_;
  const Fingerprint print_;
  const Deadline::Duration timeout_;
};

}  // namespace

void ProcessGroup::monitored_barrier(MonitoredBarrierOptions options, Site site) const {
  const CallOptions call_options{.timeout = options.timeout};
  GroupCall call(core(), OpKind::monitored_barrier, call_options, site);
  call.check([&](const GroupShape& group) {
    if (group.device == tensors::DeviceType::cpu) return;
    throw Error(
        ErrorCode::kUnavailable,
        fmt::format("group '{}' of backend '{}' has no monitored_barrier", name(), group.backend),
        "its messages go over the cpu", "make the group with cpu:cpu,cuda:nccl");
  });
  core_->meter().count(OpKind::monitored_barrier, 0);
  CallTimer timer = core_->timer_of(OpKind::monitored_barrier);
  MonitoredBarrier barrier(*core_, call.backend(), call.print, options.timeout.value_or(timeout()));
  try {
    if (rank() == 0) {
      barrier.lead(options);
    } else {
      barrier.follow();
    }
  } catch (...) {
    timer.end(CallTimer::Outcome::failed);
    throw;
  }
  timer.end(CallTimer::Outcome::done);
}

}  // namespace dtrun::collectives
