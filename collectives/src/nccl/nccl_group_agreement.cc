// What the members of a group do together besides operations: compare their calls, split.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "disagreement.h"
#include "nccl/nccl_group.h"
#include "nccl/nccl_types.h"

namespace dtrun::collectives::nccl {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// A wait for a peer's word is cut into these: the job may end meanwhile.
constexpr auto kSlice = std::chrono::milliseconds(200);

}  // namespace

std::string NcclGroup::hear(const std::string& key, Deadline deadline) {
  for (;;) {
    const Deadline slice = deadline.earlier(Deadline::after(kSlice));
    try {
      return world_->store->get(key, slice);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout || deadline.expired()) throw;
    }
    if (const std::optional<Error> failure = job_failure()) throw *failure;
    {
      Lock lock(mutex_);
      throw_if_failed(lock);
    }
    // The watchdog reads it only while operations are in flight.
    if (const std::optional<Error> failure = board_->read_failure(spec_.name)) throw *failure;
  }
}

std::optional<Error> NcclGroup::difference(const Fingerprint& mine, int rank, Deadline deadline) {
  const int their_rank = spec_.global_ranks[static_cast<std::size_t>(rank)];
  std::string bytes;
  try {
    bytes = hear(call_key(mine.sequence, rank), deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) return error;
    return Error(ErrorCode::kTimeout,
                 fmt::format("rank {} has not come to {} of group '{}'", their_rank,
                             mine.describe(), spec_.name),
                 board_->describe_others(mine), "look at that rank's output");
  }
  Fingerprint theirs;
  if (bytes.size() != sizeof(theirs))
    return Error(ErrorCode::kProtocol,
                 fmt::format("rank {} says what this build of dtrun does not know", their_rank));
  std::memcpy(&theirs, bytes.data(), sizeof(theirs));
  if (theirs.agrees_with(mine)) return std::nullopt;
  return disagreement_error(spec_.name, {their_rank, theirs}, {own_rank(), mine});
}

std::string NcclGroup::call_key(std::uint64_t sequence, int rank) const {
  return fmt::format("{}/call/{}/{}", spec_.key, sequence, rank);
}

void NcclGroup::compare(const Call& call) {
  const Fingerprint& mine = call.fingerprint;
  world_->store->set(call_key(mine.sequence, spec_.rank),
                     {reinterpret_cast<const char*>(&mine), sizeof(mine)});
  std::optional<Error> found;
  for (int rank = 0; rank < size() && !found; ++rank)
    if (rank != spec_.rank) found = difference(mine, rank, call.deadline);
  if (!found) {
    // All have come to this call, so all have read what this rank said in the one before.
    if (mine.sequence > 1) world_->store->delete_key(call_key(mine.sequence - 1, spec_.rank));
    return;
  }
  Lock lock(mutex_);
  fail(*found, Tell::members);
  throw_if_failed(lock);
}

Queue* NcclGroup::group_queue() {
  Queue* result = nullptr;
  for (const auto& [key, queue] : queues_) {
    if (key.from >= 0) continue;
    if (result != nullptr) return nullptr;  // which one, the members could answer differently
    result = queue.get();
  }
  return result;
}

std::unique_ptr<Communicator> NcclGroup::split_communicator(Lock& lock, Queue& parent,
                                                            std::optional<int> color, int key,
                                                            const Call& call) {
  const auto started = Deadline::Clock::now();
  const auto wait_while = [&](const auto& busy) {
    for (int looks = 0; busy();) {
      throw_if_failed(lock);
      const bool is_late = call.deadline.expired();
      if (is_late) {
        const Waiting split{&call, call.fingerprint, started, &parent};
        if (const std::optional<Error> late = lateness(split)) throw *late;
      }
      pause(lock, looks, is_late ? Deadline::never() : call.deadline);
    }
  };
  // NCCL may still write the handle when this has failed: the group keeps where it points to.
  lost_slots_.push_back(std::make_unique<Communicator>(nullptr));
  Communicator* const slot = lost_slots_.back().get();
  const CurrentDevice current(*world_->device, parent.device());
  try {
    // NCCL may deadlock where a kernel of the parent runs. All have come to this call, and so to
    // the calls before it: these end.
    wait_while([&] {
      if (!failure_) advance_all();
      return failure_ || !parent.is_idle();
    });
    // Making a communicator may stand behind other kernels of the device as well, for a while.
    wait_while([&] {
      if (!failure_) advance_all();
      return failure_ || (world_->activity.oldest(parent.device()) &&
                          Deadline::Clock::now() - started < world_->quiet_patience);
    });
    check(*world_->nccl, world_->nccl->split(parent.communicator(), color, key, slot),
          "split a communicator", parent.communicator());
    // The child's handle is not there before.
    wait_while([&] { return failure_ || parent.is_busy("split a communicator"); });
  } catch (const Error& error) {
    if (!lock.owns_lock()) lock.lock();
    fail(error, Tell::members);
    throw_if_failed(lock);
  }
  const auto place = std::find_if(lost_slots_.begin(), lost_slots_.end(),
                                  [&](const auto& kept) { return kept.get() == slot; });
  std::unique_ptr<Communicator> made = std::move(*place);
  lost_slots_.erase(place);
  return made;
}

std::shared_ptr<NcclGroup> NcclGroup::split(NcclGroupSpec child, std::optional<int> color,
                                            const Call& call) {
  require_own_process();
  std::unique_ptr<Communicator> slot;
  int device = -1;
  const std::uint64_t number = world_->record->begin(call.fingerprint, recorded_group_, 0);
  try {
    compare(call);
    Lock lock(mutex_);
    throw_if_failed(lock);
    // Calls are in the same order everywhere: either all members have a communicator, or none has.
    if (Queue* const parent = group_queue()) {
      device = parent->device();
      slot = split_communicator(lock, *parent, color, child.rank, call);
    }
  } catch (...) {
    world_->record->end(number, RankRecord::Outcome::failed);
    throw;
  }
  world_->record->end(number, RankRecord::Outcome::done);
  if (!color) return nullptr;
  auto group = std::make_shared<NcclGroup>(world_, std::move(child));
  if (slot && *slot != nullptr) group->add_split_queue(device, std::move(slot));
  return group;
}

}  // namespace dtrun::collectives::nccl
