#include "direct_operation.h"

#include "disagreement.h"
#include "group_channels.h"

namespace dtrun::collectives::cpu {

DirectOperation::DirectOperation(std::shared_ptr<GroupEngine> engine, Meeting& meeting,
                                 Collective collective, std::size_t shown_bytes, Way way,
                                 OneShot one_shot)
    : Operation(std::move(engine), std::move(collective.call)),
      meeting_(meeting),
      inputs_(std::move(collective.inputs)),
      outputs_(std::move(collective.outputs)),
      shape_{{fingerprint(), inputs_, outputs_}, meeting.rank(), meeting.size(), shown_bytes, way},
      bytes_(shape_.collective.bytes()),
      one_shot_(one_shot),
      staged_(shape_) {}

bool DirectOperation::step(GroupChannels& channels) {
  // Who has left will not come any more, even where this rank could go on without it.
  for (int peer = 0; channels.anybody_left() && peer < shape_.size; ++peer)
    if (channels.has_left(peer) && !one_shot_.has_come(peer, meeting_)) throw LeftError{peer};
  if (advance()) return true;
  // What a member did before it left can be seen by whoever knows that it has left.
  for (int peer = 0; peer < shape_.size; ++peer)
    if (channels.has_left(peer) && waits_for(peer)) throw LeftError{peer};
  return false;
}

bool DirectOperation::advance() {
  if (met_) {
    const Staged::Progress progress = staged_.advance(shape_, meeting_);
    if (progress == Staged::Progress::done) complete();
    return progress != Staged::Progress::waiting;
  }
  const bool show = !one_shot_.shown();
  if (show) {
    if (shape_.way == Way::stages) meeting_.open_stage();
    if (!one_shot_.show(shape_, meeting_)) return false;
  }
  if (!one_shot_.take(shape_, meeting_)) return show;
  met_ = true;
  if (shape_.way == Way::post) complete();
  return true;
}

bool DirectOperation::waits_for(int peer) const {
  return met_ ? staged_.waits_for(peer, shape_, meeting_)
              : one_shot_.waits_for(peer, shape_, meeting_);
}

std::vector<int> DirectOperation::missing() const {
  std::vector<int> peers;
  for (int peer = 0; peer < shape_.size; ++peer)
    if (waits_for(peer)) peers.push_back(peer);
  return peers;
}

}  // namespace dtrun::collectives::cpu
