#include "collective_operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "channel.h"
#include "disagreement.h"
#include "dtrun/base/check.h"
#include "group_channels.h"
#include "group_engine.h"
#include "large_copy.h"
#include "reduction.h"

namespace dtrun::collectives::cpu {

using tensors::DType;

namespace {

std::vector<std::int64_t> counts_of(std::span<const Buffer> buffers) {
  std::vector<std::int64_t> counts;
  for (const Buffer& buffer : buffers) counts.push_back(buffer.count);
  return counts;
}

}  // namespace

CollectiveOperation::CollectiveOperation(const std::shared_ptr<GroupEngine>& engine,
                                         Collective collective, const Situation& situation, Way way,
                                         Schedule schedule, const DeliverySteps* begun)
    : Operation(engine, std::move(collective.call), lane_of(situation)),
      schedule_(std::move(schedule)),
      inputs_(std::move(collective.inputs)),
      outputs_(std::move(collective.outputs)),
      size_(engine->size()),
      least_lent_(engine->least_lent_in(fingerprint().kind)),
      scratch_(schedule_.scratch_bytes == 0 ? nullptr : new std::byte[schedule_.scratch_bytes]),
      bytes_(CollectiveView{fingerprint(), inputs_, outputs_}.bytes()),
      late_(engine->meeting(lane())) {
  if (way == Way::parcels)
    parcels_.emplace(CollectiveView{fingerprint(), inputs_, outputs_}, situation,
                     engine->spec().rank);
  if (begun != nullptr) go_on_from(*begun);
}

std::span<std::byte> CollectiveOperation::resolve(const Slice& slice) const {
  if (slice.region == Region::scratch) {
    DT_CHECK(slice.offset + slice.bytes <= schedule_.scratch_bytes);
    return {scratch_.get() + slice.offset, slice.bytes};
  }
  if (slice.bytes == 0) return {};
  const std::vector<Buffer>& list = slice.region == Region::input ? inputs_ : outputs_;
  const Buffer& buffer = list[static_cast<std::size_t>(slice.index)];
  DT_CHECK(slice.offset + slice.bytes <= buffer.bytes());
  return {static_cast<std::byte*>(buffer.data) + slice.offset, slice.bytes};
}

bool CollectiveOperation::step(GroupChannels& channels) {
  if (!parcels_) return step_schedule(channels);
  Meeting& meeting = channels.meeting(lane());
  late_.require_come(channels, parcels_->is_shown());
  const bool shows = !parcels_->is_shown();
  bool moved = shows && parcels_->show(meeting, Meeting::Room::least);
  if (parcels_->is_shown()) moved |= step_schedule(channels);
  if (done()) parcels_->end(meeting);
  if (!moved) late_.compare(*this, parcels_->is_shown());
  return moved;
}

bool CollectiveOperation::step_schedule(GroupChannels& channels) {
  bool moved = false;
  while (step_ < schedule_.steps.size()) {
    if (!step_begun_) begin_step();
    moved |= move_step(channels);
    if (!std::exchange(beside_done_, true))
      for (const LocalWork& local : schedule_.steps[step_].beside) do_local(local);
    if (!sends_.empty() || !receives_.empty()) return moved;
    for (const LocalWork& local : schedule_.steps[step_].local) do_local(local);
    step_begun_ = false;
    ++step_;
  }
  complete();
  return true;
}

void CollectiveOperation::begin_step() {
  const Step& step = schedule_.steps[step_];
  if (!parcels_ || parcels_->are_in_messages()) {
    for (const Transfer& transfer : step.sends)
      sends_.emplace_back(transfer.peer, fingerprint(), 0, resolve(transfer.slice), least_lent_);
  }
  for (const Transfer& transfer : step.receives)
    receives_.push_back({.peer = transfer.peer,
                         .target = resolve(transfer.slice),
                         .message = {},
                         .is_message = !parcels_});
  step_begun_ = true;
  beside_done_ = false;
}

/// What is sent, and the parts that have come, are the first of the only step's.
void CollectiveOperation::go_on_from(const DeliverySteps& begun) {
  if (parcels_) parcels_->set_shown();
  begin_step();
  beside_done_ = true;
  sends_.erase(sends_.begin(), sends_.begin() + begun.sent());
  if (begun.unsent()) sends_.front() = *begun.unsent();
  // What is to be combined has come, or comes, into rows like these.
  if (const std::span<const std::byte> rows = begun.rows(); !rows.empty())
    std::memcpy(scratch_.get(), rows.data(), rows.size());
  receives_.erase(receives_.begin(), receives_.begin() + begun.complete());
  if (!receives_.empty()) receives_.front().message = begun.begun();
}

namespace {

/// Transfers of one peer lie side by side: one waits for the one before it.
template <typename Transfers, typename PeerOf, typename IsComplete>
bool has_turn(const Transfers& transfers, std::size_t i, PeerOf peer_of, IsComplete is_complete) {
  return i == 0 || peer_of(transfers[i - 1]) != peer_of(transfers[i]) ||
         is_complete(transfers[i - 1]);
}

}  // namespace

bool CollectiveOperation::move_step(GroupChannels& channels) {
  const auto is_sent = [](const OutgoingMessage& send) { return send.complete(); };
  const auto is_written = [](const OutgoingMessage& send) { return send.is_written(); };
  const auto has_come = [](const Receive& receive) { return receive.is_over; };
  std::size_t moved = 0;
  for (std::size_t i = 0; i < sends_.size(); ++i)
    if (has_turn(
            sends_, i, [](const OutgoingMessage& send) { return send.peer(); }, is_written))
      moved += step_send(channels, sends_[i]);
  for (std::size_t i = 0; i < receives_.size(); ++i)
    if (has_turn(
            receives_, i, [](const Receive& receive) { return receive.peer; }, has_come))
      moved += step_receive(channels, receives_[i]);
  if (moved == 0) return false;
  std::erase_if(sends_, is_sent);
  std::erase_if(receives_, has_come);
  return true;
}

std::size_t CollectiveOperation::step_send(GroupChannels& channels, OutgoingMessage& send) {
  // Asked first: what the peer fetched before it left is seen below.
  const bool has_left = channels.has_left(send.peer());
  if (has_left && !send.is_written()) throw LeftError{send.peer()};
  SendChannel& channel = channels.to(send.peer(), lane());
  const Progress progress = send.step(channel);
  channels.count_sent(send.peer(), lane(), progress);
  if (!send.complete() && has_left) throw LeftError{send.peer()};
  if (!send.complete() && channel.broken()) throw BrokenConnection{send.peer()};
  return progress.bytes;
}

/// Takes the part where it lies beside the post. @return whether anything is new
std::size_t CollectiveOperation::look_at_post(GroupChannels& channels, Receive& receive) {
  // Asked first: what the peer has posted before it left is seen below.
  const bool has_left = channels.has_left(receive.peer);
  switch (parcels_->take(receive.peer, receive.target, channels.meeting(lane()))) {
    case Parcels::Found::nothing:
      if (has_left) throw LeftError{receive.peer};
      return 0;
    case Parcels::Found::word_of_message:
      receive.is_message = true;
      return 1;
    case Parcels::Found::part:
      receive.is_over = true;
      return 1;
  }
  return 0;
}

std::size_t CollectiveOperation::step_receive(GroupChannels& channels, Receive& receive) {
  if (!receive.is_message) return look_at_post(channels, receive);
  ReceiveChannel* channel = channels.from(receive.peer, lane());
  std::size_t moved = 0;
  const auto count = [&](const Progress& progress) {
    channels.count_received(receive.peer, lane(), progress);
    moved += progress.bytes;
  };
  if (channel != nullptr && !receive.message.has_header()) {
    count(receive.message.step_header(*channel));
  }
  if (receive.message.has_header() && !std::exchange(receive.is_checked, true)) check(receive);
  if (receive.message.has_header() && !receive.message.complete())
    count(receive.message.step_payload(*channel, receive.target));
  receive.is_over = receive.message.complete();
  if (receive.is_over) return moved;
  if (channels.exhausted(receive.peer, lane())) throw LeftError{receive.peer};
  if (channel != nullptr && channel->broken()) throw BrokenConnection{receive.peer};
  return moved;
}

void CollectiveOperation::check(const Receive& receive) const {
  const MessageHeader& header = receive.message.header();
  if (header.magic != MessageHeader::kMagic || !header.fingerprint.agrees_with(fingerprint()))
    throw Disagreement{receive.peer, header.fingerprint, fingerprint()};
  if (header.bytes != receive.target.size())
    throw Disagreement{receive.peer, header.fingerprint, fingerprint(),
                       UnequalBytes{header.bytes, receive.target.size()}};
}

void CollectiveOperation::do_local(const LocalWork& work) {
  const std::span<std::byte> destination = resolve(work.destination);
  using Kind = LocalWork::Kind;
  if (work.kind == Kind::copy || (work.kind == Kind::combine && work.sources.size() == 1)) {
    const std::span<std::byte> source = resolve(work.sources[0]);
    if (source.data() != destination.data())
      copy_large(destination.data(), source.data(), source.size());
    return;
  }
  const DType dtype = fingerprint().dtype;
  const ReduceOp op = fingerprint().reduce_op;
  const std::size_t item =
      work.kind == Kind::combine_part ? part_item_size(dtype) : tensors::item_size(dtype);
  const auto count = static_cast<std::int64_t>(destination.size() / item);
  std::vector<const void*> sources;
  for (const Slice& source : work.sources) sources.push_back(resolve(source).data());
  const int n = static_cast<int>(sources.size());
  if (work.kind == Kind::combine_part)
    return reduce_to_part(op, dtype, destination.data(), sources.data(), n, count);
  if (work.kind == Kind::combine_parts)
    return reduce_parts(op, dtype, destination.data(), sources.data(), n, count, size_);
  DT_CHECK(n == size_);
  reduce_pieces(op, dtype, destination.data(), sources.data(), n, count);
}

std::vector<int> CollectiveOperation::missing() const {
  if (parcels_ && !parcels_->is_shown()) return late_.behind();
  std::vector<int> peers;
  for (const Receive& receive : receives_) peers.push_back(receive.peer);
  if (peers.empty())
    for (const OutgoingMessage& send : sends_) peers.push_back(send.peer());
  std::sort(peers.begin(), peers.end());
  return peers;
}

CollectiveShape shape_of(const CollectiveView& collective, int rank, const Situation& situation,
                         Way way, const MachineLists& machines) {
  const Fingerprint& print = collective.fingerprint;
  return {.kind = collective.kind(),
          .way = way,
          .machines = &machines,
          .part_bytes = part_item_size(print.dtype),
          .rank = rank,
          .size = situation.place.ranks,
          .root = collective.root(),
          .empty_parts = empty_parts_of(print),
          .item_bytes = tensors::item_size(print.dtype),
          .input_counts = counts_of(collective.inputs),
          .output_counts = counts_of(collective.outputs)};
}

std::shared_ptr<Operation> make_collective_operation(const std::shared_ptr<GroupEngine>& engine,
                                                     Collective collective,
                                                     const Situation& situation, Way way,
                                                     const DeliverySteps* begun) {
  Schedule schedule = make_schedule(
      shape_of(collective.view(), engine->spec().rank, situation, way, engine->machine_lists()));
  return std::make_shared<CollectiveOperation>(engine, std::move(collective), situation, way,
                                               std::move(schedule), begun);
}

}  // namespace dtrun::collectives::cpu
