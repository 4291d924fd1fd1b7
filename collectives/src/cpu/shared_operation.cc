#include "shared_operation.h"

#include <utility>

#include "collective_operation.h"
#include "disagreement.h"
#include "group_channels.h"
#include "group_engine.h"

namespace dtrun::collectives::cpu {

SharedOperation::SharedOperation(const std::shared_ptr<GroupEngine>& engine, Collective collective,
                                 const Situation& situation, Way way, SharedSteps steps)
    : Operation(engine, std::move(collective.call), lane_of(situation)),
      meeting_(engine->meeting(lane())),
      situation_(situation),
      inputs_(std::move(collective.inputs)),
      outputs_(std::move(collective.outputs)),
      plan_({fingerprint(), inputs_, outputs_}, meeting_.rank(), situation, way),
      bytes_(plan_.collective().bytes()),
      steps_(steps),
      late_(meeting_) {}

void SharedOperation::begin_rest() {
  const Way way = way_of_messages(situation_);
  if (engine().says_ways()) engine().log_elsewhere(fingerprint(), way);
  Collective collective{inputs_, outputs_, {.fingerprint = fingerprint()}};
  rest_ = make_collective_operation(shared_engine(), std::move(collective), situation_, way);
}

bool SharedOperation::step_rest(GroupChannels& channels) {
  const bool moved = rest_->step(channels);
  if (rest_->done()) complete();
  return moved;
}

bool SharedOperation::step(GroupChannels& channels) {
  if (rest_) return step_rest(channels);
  late_.require_come(channels, steps_.shown());
  const SharedSteps::Progress progress =
      is_taken_ ? SharedSteps::Progress::done : steps_.advance(plan_, meeting_);
  if (progress == SharedSteps::Progress::elsewhere) {
    begin_rest();
    step_rest(channels);
    return true;
  }
  if (progress == SharedSteps::Progress::waiting) late_.compare(*this, steps_.shown());
  if (steps_.is_in_place() && !std::exchange(is_told_, true) && engine().says_ways())
    engine().log_in_place(fingerprint());
  is_taken_ = progress == SharedSteps::Progress::done;
  // Of a call that has failed on a member, what was read there may have been overwritten. The
  // reason is heard by whoever waits.
  void_by_ = is_taken_ && steps_.is_in_place() ? channels.withdrawn_by(*this) : -1;
  if (is_taken_ && void_by_ < 0) complete();
  if (progress != SharedSteps::Progress::waiting && void_by_ < 0) return true;
  // What a member did before it left can be seen by whoever knows that it has left.
  const auto matters = [&](int peer) {
    return void_by_ >= 0 ? peer == void_by_ : steps_.waits_for(peer, plan_, meeting_);
  };
  for (int peer = 0; peer < plan_.size(); ++peer)
    if (channels.has_left(peer) && matters(peer)) late_.report_left(peer);
  return false;
}

std::vector<int> SharedOperation::missing() const {
  if (rest_) return rest_->missing();
  if (void_by_ >= 0) return {void_by_};
  std::vector<int> peers;
  for (int peer = 0; peer < plan_.size(); ++peer)
    if (steps_.waits_for(peer, plan_, meeting_)) peers.push_back(peer);
  return peers;
}

}  // namespace dtrun::collectives::cpu
