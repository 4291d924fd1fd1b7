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

bool DeliverySteps::can_begin(const Deliveries& all, const CollectiveView& collective,
                              std::size_t least_lent, GroupChannels& channels) {
  for (int i = 0; i < all.sends(); ++i) {
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
    if (channels.made_from(peer, kLane) == nullptr || part.bytes() >= least_lent) return false;
  }
  return true;
}

void DeliverySteps::send(const Deliveries& all, const CollectiveView& collective,
                         GroupChannels& channels) {
  for (int i = 0; i < all.sends(); ++i) {
    const auto [peer, index] = all.send(i);
    const Buffer& part = entry_of(collective.inputs, index);
    if (!all.travels(part.count)) continue;
    OutgoingMessage message(peer, collective.fingerprint, 0, bytes_in(part));
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
    const std::span<std::byte> target = bytes_in(part);
    ReceiveChannel& channel = *channels.made_from(peer, kLane);
    if (!begun_.has_header()) {
      channels.count_received(peer, kLane, begun_.step_header(channel));
      if (!begun_.has_header()) return false;
    }
    const MessageHeader& header = begun_.header();
    if (header.magic != MessageHeader::kMagic || header.lent_at != 0 ||
        header.bytes != target.size() || !header.fingerprint.agrees_with(collective.fingerprint))
      return false;
    channels.count_received(peer, kLane, begun_.step_payload(channel, target));
    if (!begun_.complete()) return false;
    begun_ = {};
    ++messages_;
  }
  return true;
}

}  // namespace dtrun::collectives::cpu
