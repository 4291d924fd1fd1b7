#include "delivery_steps.h"

#include <cstring>

namespace dtrun::collectives::cpu {

namespace {

constexpr Lane kLane = Lane::prompt;

const Buffer& entry_of(std::span<const Buffer> list, int index) {
  return list[static_cast<std::size_t>(index)];
}

std::span<std::byte> bytes_in(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), buffer.bytes()};
}

}  // namespace

bool DeliverySteps::can_begin_messages(const Deliveries& all, const CollectiveView& collective,
                                       std::size_t least_lent, GroupChannels& channels) const {
  for (int i = 0; sends_messages() && i < all.sends(); ++i) {
    const auto [peer, index] = all.send(i);
    const Buffer& part = entry_of(collective.inputs, index);
    if (!all.travels(part.count)) continue;
    SendChannel* const channel = channels.made_to(peer, kLane);
    const std::size_t bytes = sizeof(MessageHeader) + part.bytes();
    if (channel == nullptr || part.bytes() >= least_lent || !channel->has_room(bytes)) return false;
  }
  for (int i = 0; i < all.receives(); ++i) {
    const auto [peer, index] = all.receive(i);
    const Buffer& part = entry_of(collective.outputs, index);
    if (!all.travels(part.count)) continue;
    const bool may_lie_beside_post = parcels_ != nullptr && part.bytes() <= Parcels::kMostBytes;
    const bool can_come = may_lie_beside_post || channels.made_from(peer, kLane) != nullptr;
    if (!can_come || part.bytes() >= least_lent) return false;
  }
  return true;
}

void DeliverySteps::send(const Deliveries& all, const CollectiveView& collective,
                         GroupChannels& channels) {
  for (int i = 0; sends_messages() && i < all.sends(); ++i) {
    const auto [peer, index] = all.send(i);
    const Buffer& part = entry_of(collective.inputs, index);
    if (!all.travels(part.count)) continue;
    OutgoingMessage message(peer, collective.fingerprint, 0, bytes_in(part),
                            OutgoingMessage::kNeverLent);
    channels.count_sent(peer, kLane, message.step(*channels.made_to(peer, kLane)));
  }
  if (!all.copies_own()) return;
  const Buffer& from = entry_of(collective.inputs, all.own_input());
  const Buffer& to = entry_of(collective.outputs, all.own_output());
  if (from.count != 0 && to.data != from.data) std::memcpy(to.data, from.data, from.bytes());
}

bool DeliverySteps::receive(const Deliveries& all, const CollectiveView& collective,
                            GroupChannels& channels) {
  for (; next_ < all.receives(); ++next_) {
    const auto [peer, index] = all.receive(next_);
    const Buffer& part = entry_of(collective.outputs, index);
    if (!all.travels(part.count)) continue;
    const Parcels::Found found =
        parcels_ == nullptr ? Parcels::Found::word_of_message
                            : parcels_->take(peer, bytes_in(part), channels.meeting(Lane::prompt));
    if (found == Parcels::Found::nothing) return false;
    if (found == Parcels::Found::word_of_message &&
        !receive_message(peer, bytes_in(part), collective.fingerprint, channels))
      return false;
    ++parts_;
  }
  if (parcels_ != nullptr) parcels_->end(channels.meeting(Lane::prompt));
  return true;
}

bool DeliverySteps::receive_message(int peer, std::span<std::byte> target, const Fingerprint& print,
                                    GroupChannels& channels) {
  ReceiveChannel* const channel = channels.from(peer, kLane);
  if (channel == nullptr) return false;
  if (!begun_.has_header()) {
    channels.count_received(peer, kLane, begun_.step_header(*channel));
    if (!begun_.has_header()) return false;
  }
  const MessageHeader& header = begun_.header();
  if (header.magic != MessageHeader::kMagic || header.lent_at != 0 ||
      header.bytes != target.size() || !header.fingerprint.agrees_with(print))
    return false;
  channels.count_received(peer, kLane, begun_.step_payload(*channel, target));
  if (!begun_.complete()) return false;
  begun_ = {};
  return true;
}

}  // namespace dtrun::collectives::cpu
