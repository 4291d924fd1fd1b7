#include "delivery_steps.h"

#include <array>
#include <cstring>

#include "reduction.h"

namespace dtrun::collectives::cpu {

namespace {

constexpr Lane kLane = Lane::prompt;

std::span<std::byte> bytes_in(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), buffer.bytes()};
}

/// @param list of a call's buffers
std::span<std::byte> part_in(std::span<const Buffer> list, int index) {
  if (index == Deliveries::kNoBuffer) return {};
  return bytes_in(list[static_cast<std::size_t>(index)]);
}

/// Whether the header is that message's, and its payload follows.
bool announces(const MessageHeader& header, std::size_t bytes, const Fingerprint& print) {
  return header.magic == MessageHeader::kMagic && header.lent_at == 0 && header.bytes == bytes &&
         header.fingerprint.agrees_with(print);
}

}  // namespace

std::size_t DeliverySteps::bytes_of_rows(const Deliveries& all, const CollectiveView& collective) {
  if (!all.combines()) return 0;
  return static_cast<std::size_t>(all.receives()) *
         Deliveries::row_bytes(collective.outputs[0].bytes());
}

std::span<std::byte> DeliverySteps::target(const Deliveries& all, const CollectiveView& collective,
                                           int index) const {
  if (!all.combines()) return part_in(collective.outputs, index);
  const std::size_t bytes = collective.outputs[0].bytes();
  return rows_.subspan(static_cast<std::size_t>(index) * Deliveries::row_bytes(bytes), bytes);
}

bool DeliverySteps::can_begin_messages(const Deliveries& all, const CollectiveView& collective,
                                       std::size_t least_lent, GroupChannels& channels) const {
  if (all.combines() && all.receives() > kMostRows) return false;
  std::size_t at_once = 0;
  for (int i = 0; sends_messages() && i < all.sends(); ++i) {
    const auto [peer, index] = all.send(i);
    const std::size_t bytes = part_in(collective.inputs, index).size();
    if (!all.travels(bytes == 0)) continue;
    SendChannel* const channel = channels.made_to(peer, kLane);
    at_once += bytes;
    if (channel == nullptr || bytes >= least_lent || at_once > kMostAtOnce) return false;
    const bool has_room = channels.shares_memory(peer)
                              ? channel->has_room(sizeof(MessageHeader) + bytes)
                              : bytes <= kMostBySocket;
    if (!has_room) return false;
  }
  const bool all_combined = all.combines();
  for (int i = 0; i < all.receives(); ++i) {
    const auto [peer, index] = all.receive(i);
    const std::size_t bytes = part_in(collective.outputs, all_combined ? 0 : index).size();
    if (!all.travels(bytes == 0)) continue;
    const bool may_lie_beside_post = parcels_ != nullptr && bytes <= kMostParcelBytes;
    const bool can_come = may_lie_beside_post || channels.made_from(peer, kLane) != nullptr;
    at_once += bytes;
    const bool is_short = bytes < least_lent && at_once <= 2 * kMostAtOnce &&
                          (channels.shares_memory(peer) || bytes <= kMostBySocket);
    if (!can_come || !is_short) return false;
  }
  return true;
}

bool DeliverySteps::send(const Deliveries& all, const CollectiveView& collective,
                         GroupChannels& channels) {
  for (int i = 0; sends_messages() && !unsent_ && i < all.sends(); ++i) {
    const auto [peer, index] = all.send(i);
    const std::span<std::byte> part = part_in(collective.inputs, index);
    if (!all.travels(part.empty())) continue;
    send_message(peer, *channels.made_to(peer, kLane), part, collective.fingerprint, channels);
  }
  if (all.copies_own()) {
    const std::span<std::byte> from = part_in(collective.inputs, all.own_input());
    const std::span<std::byte> to = part_in(collective.outputs, all.own_output());
    if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
  }
  return !unsent_;
}

bool DeliverySteps::receive(const Deliveries& all, const CollectiveView& collective,
                            GroupChannels& channels) {
  for (; next_ < all.receives(); ++next_) {
    const auto [peer, index] = all.receive(next_);
    const std::span<std::byte> part = target(all, collective, index);
    if (!all.travels(part.empty())) continue;
    const Parcels::Found found = parcels_ == nullptr
                                     ? Parcels::Found::word_of_message
                                     : parcels_->take(peer, part, channels.meeting(Lane::prompt));
    if (found == Parcels::Found::nothing) return false;
    if (found == Parcels::Found::word_of_message) {
      ReceiveChannel* const channel = channels.from(peer, kLane);
      if (channel == nullptr ||
          !receive_message(peer, *channel, part, collective.fingerprint, channels))
        return false;
    }
    ++parts_;
  }
  if (all.combines()) combine(all, collective);
  if (parcels_ != nullptr) parcels_->end(channels.meeting(Lane::prompt));
  return true;
}

void DeliverySteps::combine(const Deliveries& all, const CollectiveView& collective) const {
  const Buffer& result = collective.outputs[0];
  if (result.count == 0) return;
  std::array<const void*, kMostRows + 1> pieces;
  int pieces_count = 0;
  const auto add = [&](const void* piece) {
    pieces[static_cast<std::size_t>(pieces_count++)] = piece;
  };
  const int own = all.own_place();
  for (int i = 0; i <= all.receives(); ++i) {
    if (i == own) add(part_in(collective.inputs, all.own_input()).data());
    if (i < all.receives()) add(target(all, collective, i).data());
  }
  reduce_pieces(collective.fingerprint.reduce_op, result.dtype, result.data, pieces.data(),
                pieces_count, result.count);
}

bool DeliverySteps::send_message(int peer, SendChannel& channel, std::span<std::byte> part,
                                 const Fingerprint& print, GroupChannels& channels) {
  OutgoingMessage message(peer, print, 0, part, OutgoingMessage::kNeverLent);
  channels.count_sent(peer, kLane, message.step(channel));
  if (message.complete()) {
    ++sent_;
  } else {
    unsent_ = message;
  }
  return !unsent_;
}

void DeliverySteps::give_whole(int peer, SendChannel& channel, Bytes part, const Fingerprint& print,
                               GroupChannels& channels) {
  OutgoingMessage message(peer, print, 0, part, OutgoingMessage::kNeverLent);
  channels.count_sent(peer, kLane, message.step(channel));
}

bool DeliverySteps::take_whole(int peer, ReceiveChannel& channel, std::span<std::byte> target,
                               const Fingerprint& print, GroupChannels& channels) {
  const Progress taken = take_whole_message(channel, target, [&](const MessageHeader& header) {
    return announces(header, target.size(), print);
  });
  if (taken.bytes != 0) channels.count_received(peer, kLane, taken);
  return taken.bytes != 0;
}

bool DeliverySteps::receive_message(int peer, ReceiveChannel& channel, std::span<std::byte> target,
                                    const Fingerprint& print, GroupChannels& channels) {
  if (!begun_.is_begun() && channel.has(sizeof(MessageHeader) + target.size()) &&
      take_whole(peer, channel, target, print, channels))
    return true;
  Progress progress;
  if (!begun_.has_header()) progress = begun_.step_header(channel);
  const bool is_awaited = begun_.has_header() && announces(begun_.header(), target.size(), print);
  if (is_awaited) progress += begun_.step_payload(channel, target);
  if (progress.bytes != 0) channels.count_received(peer, kLane, progress);
  if (!is_awaited || !begun_.complete()) return false;
  begun_.begin_next();
  return true;
}

}  // namespace dtrun::collectives::cpu
