#include "ranks/progress_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace dtrun::launcher {

using base::Deadline;
using rendezvous::FlightFinding;
using rendezvous::FlightRecord;
using rendezvous::RankState;
using std::chrono::milliseconds;

namespace {

/// A stall is found at most this much later than its time. A look copies 48 KiB a rank.
constexpr Deadline::Duration kLongestInterval = std::chrono::seconds(5);
constexpr Deadline::Duration kShortestInterval = milliseconds(50);

/// Here, or on another node for a rank that is here.
bool somebody_waits(const rendezvous::JobPage& page) {
  for (int i = 0; i < page.slot_count(); ++i) {
    const rendezvous::RankSlot& slot = page.slot(i);
    if (slot.state.load() == static_cast<std::uint32_t>(RankState::kInCollective) ||
        slot.awaited_since_ns.load() != 0)
      return true;
  }
  return false;
}

}  // namespace

std::optional<FlightFinding> find_stall(const FlightRecord& record,
                                        std::chrono::nanoseconds timeout) {
  const double latest = record.written - std::chrono::duration<double>(timeout).count();
  std::vector<FlightFinding> findings =
      rendezvous::explain_flights(record.ranks, record.world_size, record.written);
  // A message may have been posted ahead of the work; in a circle somebody waits for it.
  const auto is_old = [&](const FlightFinding& finding) {
    return finding.since > 0 && finding.since <= latest && !finding.is_message;
  };
  const auto found = std::find_if(findings.begin(), findings.end(), is_old);
  return found == findings.end() ? std::nullopt : std::optional(std::move(*found));
}

ProgressWatch::ProgressWatch(base::EventLoop& loop, const rendezvous::JobPage& page,
                             std::chrono::nanoseconds timeout, OnStall on_stall)
    : page_(page), timeout_(timeout), on_stall_(std::move(on_stall)), timer_(loop) {}

void ProgressWatch::start(int world_size) {
  world_size_ = world_size;
  started_ = Deadline::Clock::now();
  if (timeout_ > std::chrono::nanoseconds::zero()) plan_look();
}

void ProgressWatch::plan_look() {
  const Deadline::Duration interval =
      std::clamp<Deadline::Duration>(timeout_ / 4, kShortestInterval, kLongestInterval);
  timer_.start(Deadline::after(interval), [this] { look(); });
}

void ProgressWatch::look() {
  plan_look();
  // Operations that began before a pause may have waited for its end only.
  if (Deadline::Clock::now() - started_ < timeout_ || !somebody_waits(page_)) return;
  FlightRecord record = rendezvous::read_flight(page_);
  record.world_size = world_size_;
  const std::optional<FlightFinding> stall = find_stall(record, timeout_);
  if (!stall) return;
  const std::string which =
      fmt::format("{} {} #{}", static_cast<int>(stall->kind), stall->group, stall->sequence);
  times_ = std::exchange(told_, which) == which ? times_ + 1 : 1;
  on_stall_(*stall, times_);
}

}  // namespace dtrun::launcher
