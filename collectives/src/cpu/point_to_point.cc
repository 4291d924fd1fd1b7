#include "point_to_point.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "disagreement.h"
#include "letter.h"

namespace dtrun::collectives::cpu {

namespace {

/// Whether the message is what such a receive asks for.
bool is_asked_for(const MessageHeader& header, const Fingerprint& ours, std::size_t bytes) {
  return header.magic == MessageHeader::kMagic && header.fingerprint.dtype == ours.dtype &&
         header.fingerprint.counts == ours.counts && header.bytes == bytes;
}

Bytes bytes_given_by(const ShortMessage& message) {
  return {static_cast<const std::byte*>(message.buffer.data), message.buffer.bytes()};
}

}  // namespace

SendOperation::SendOperation(std::shared_ptr<GroupEngine> engine, Call call, Buffer buffer,
                             int destination, std::uint32_t tag)
    : Operation(std::move(engine), std::move(call), Lane::point_to_point),
      buffer_(buffer),
      tag_(tag),
      message_(destination, fingerprint(), tag,
               {static_cast<const std::byte*>(buffer.data), buffer.bytes()}) {}

bool SendOperation::step(GroupChannels& channels) {
  const int peer = destination();
  // Asked first: what the peer fetched before it left is seen below.
  const bool has_left = channels.has_left(peer);
  if (has_left && !message_.is_written()) throw LeftError{peer};
  SendChannel& channel = channels.to(peer, Lane::point_to_point);
  const Progress progress = message_.step(channel);
  channels.count_sent(peer, Lane::point_to_point, progress);
  if (message_.complete()) {
    complete();
  } else if (has_left) {
    throw LeftError{peer};
  } else if (channel.broken()) {
    throw BrokenConnection{peer};
  }
  return progress.bytes != 0;
}

void ReceiveOperation::match(int peer, const MessageHeader& header) {
  const Fingerprint& theirs = header.fingerprint;
  if (!is_asked_for(header, fingerprint(), buffer_.bytes()))
    throw Disagreement{peer, theirs, fingerprint(), UnequalBytes{header.bytes, buffer_.bytes()}};
  matched_ = true;
  matched_from_ = peer;
  possible_sources_ = {peer};
}

PointToPoint::PointToPoint(int rank, int size, Finished finished)
    : rank_(rank), finished_(std::move(finished)), peers_(static_cast<std::size_t>(size)) {}

PointToPoint::Sent PointToPoint::send_now(const ShortMessage& message, GroupChannels& channels) {
  SendChannel* const channel = channels.made_to(message.peer, Lane::point_to_point);
  if (channel == nullptr) return Sent::nothing;
  if (!channels.shares_memory(message.peer)) return write_now(message, *channel, channels);
  const Bytes payload = bytes_given_by(message);
  if (payload.size() >= channel->least_lent() ||
      !channel->has_room(sizeof(MessageHeader) + payload.size()))
    return Sent::nothing;
  if (Letter::may_hold(payload.size())) {
    MessageHeader header;
    header.tag = message.tag;
    header.bytes = payload.size();
    header.fingerprint = message.fingerprint;
    std::array<std::byte, Letter::kMostMessage> whole;
    std::memcpy(whole.data(), &header, sizeof(header));
    if (!payload.empty())
      std::memcpy(whole.data() + sizeof(header), payload.data(), payload.size());
    const std::size_t bytes = sizeof(header) + payload.size();
    channel->write_letter(Letter::of(message.tag, message.fingerprint.dtype, payload),
                          Bytes(whole).first(bytes));
    channels.count_sent(message.peer, Lane::point_to_point, {bytes, payload.size()});
    return Sent::all;
  }
  OutgoingMessage out(message.peer, message.fingerprint, message.tag, payload,
                      OutgoingMessage::kNeverLent);
  channels.count_sent(message.peer, Lane::point_to_point, out.step(*channel));
  return Sent::all;
}

/// By a connection.
PointToPoint::Sent PointToPoint::write_now(const ShortMessage& message, SendChannel& channel,
                                           GroupChannels& channels) {
  std::optional<OutgoingMessage>& begun = peers_[static_cast<std::size_t>(message.peer)].begun;
  const Bytes payload = bytes_given_by(message);
  if (begun || payload.size() > kMostBySocket) return Sent::nothing;
  OutgoingMessage out(message.peer, message.fingerprint, message.tag, payload,
                      OutgoingMessage::kNeverLent);
  channels.count_sent(message.peer, Lane::point_to_point, out.step(channel));
  if (out.complete()) return Sent::all;
  if (!out.is_begun()) return Sent::nothing;
  begun = out;
  return Sent::a_part;
}

bool PointToPoint::is_after_a_lost_rest(const SendOperation& send) const {
  const std::optional<OutgoingMessage>& begun =
      peers_[static_cast<std::size_t>(send.destination())].begun;
  return begun && (begun->fingerprint().sequence != send.fingerprint().sequence ||
                   begun->fingerprint().kind != send.fingerprint().kind);
}

Taken PointToPoint::receive_now(const ShortMessage& message, GroupChannels& channels) {
  if (message.peer < 0) return Taken::other_way;
  const std::size_t bytes = message.buffer.bytes();
  if (bytes > kMostBySocket && !channels.shares_memory(message.peer)) return Taken::other_way;
  Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
  ReceiveChannel* const channel = channels.made_from(message.peer, Lane::point_to_point);
  if (channel == nullptr || peer.active() || !peer.unexpected.empty()) return Taken::other_way;
  const auto count = [&](const Progress& progress) {
    channels.count_received(message.peer, Lane::point_to_point, progress);
  };
  const std::span<std::byte> target(static_cast<std::byte*>(message.buffer.data), bytes);
  const auto is_awaited = [&](const MessageHeader& header) {
    return header.tag == message.tag && header.lent_at == 0 &&
           is_asked_for(header, message.fingerprint, bytes);
  };
  if (!peer.incoming.is_begun()) {
    // In one look, as a rule.
    const Letter* const letter = channel->see_letter();
    if (letter != nullptr && Letter::may_hold(bytes) &&
        letter->head == Letter::head_of(message.tag, message.fingerprint.dtype, bytes)) {
      if (bytes != 0) std::memcpy(target.data(), letter->payload, bytes);
      channel->drop_letter();
      count({sizeof(MessageHeader) + bytes, bytes});
      return Taken::done;
    }
    if (channel->has(sizeof(MessageHeader) + bytes)) {
      const Progress taken = take_whole_message(*channel, target, is_awaited);
      if (taken.bytes != 0) {
        count(taken);
        return Taken::done;
      }
    } else if (!channel->has(sizeof(MessageHeader))) {
      return Taken::not_yet;
    }
  }
  if (!peer.incoming.has_header()) count(peer.incoming.step_header(*channel));
  if (!peer.incoming.has_header()) return Taken::not_yet;
  // An operation says what is wrong, and waits for what is long.
  if (bytes > channel->most_at_once() || !is_awaited(peer.incoming.header()))
    return Taken::other_way;
  if (!channel->has(bytes)) return Taken::not_yet;
  count(peer.incoming.step_payload(*channel, target));
  peer.incoming.begin_next();
  return Taken::done;
}

void PointToPoint::add(std::shared_ptr<SendOperation> send) {
  Peer& peer = peers_[static_cast<std::size_t>(send->destination())];
  if (send->destination() != rank_) {
    if (peer.begun) send->go_on(*std::exchange(peer.begun, std::nullopt));
    peer.sends.push_back(std::move(send));
    ++sending_;
    return;
  }
  // To oneself: the message waits for its receive aside.
  Unexpected message;
  message.header.tag = send->tag();
  message.header.bytes = send->buffer().bytes();
  message.header.fingerprint = send->fingerprint();
  const auto* begin = static_cast<const std::byte*>(send->buffer().data);
  message.payload.assign(begin, begin + send->buffer().bytes());
  peer.unexpected.push_back(std::move(message));
  send->complete();
  finished_(*send);
}

void PointToPoint::add(std::shared_ptr<ReceiveOperation> receive) {
  receives_.push_back(std::move(receive));
}

std::vector<std::shared_ptr<Operation>> PointToPoint::operations() const {
  std::vector<std::shared_ptr<Operation>> all(receives_.begin(), receives_.end());
  for (const Peer& peer : peers_) all.insert(all.end(), peer.sends.begin(), peer.sends.end());
  return all;
}

void PointToPoint::clear() {
  receives_.clear();
  sending_ = 0;
  for (Peer& peer : peers_) peer = Peer();
}

bool PointToPoint::step(GroupChannels& channels) {
  bool moved = false;
  for (Peer& peer : peers_)
    if (!peer.sends.empty()) moved |= step_sends(channels, peer);
  if (receives_.empty()) return moved;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (wanted(rank)) moved |= step_receives(channels, rank);
  if (!moved) check_any_source(channels);
  return moved;
}

/// A receive from any rank is in vain once all have left and said all.
void PointToPoint::check_any_source(GroupChannels& channels) const {
  const bool waiting = std::any_of(receives_.begin(), receives_.end(), [](const auto& receive) {
    return receive->source() < 0 && !receive->matched();
  });
  if (!waiting || peers_.size() == 1) return;
  int last = -1;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank == rank_) continue;
    if (!channels.exhausted(rank, Lane::point_to_point)) return;
    last = rank;
  }
  throw LeftError{last};
}

bool PointToPoint::step_sends(GroupChannels& channels, Peer& peer) {
  bool moved = false;
  for (auto next = peer.sends.begin(); next != peer.sends.end();) {
    const std::shared_ptr<SendOperation> send = *next;
    moved |= send->step(channels);
    if (!send->is_written()) break;
    if (!send->done()) {  // lent
      ++next;
      continue;
    }
    next = peer.sends.erase(next);
    --sending_;
    finished_(*send);
  }
  return moved;
}

/// Whether something that may come from that rank is waited for.
bool PointToPoint::wanted(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.active()) return true;
  return std::any_of(receives_.begin(), receives_.end(),
                     [&](const auto& receive) { return receive->may_come_from(rank); });
}

bool PointToPoint::step_receives(GroupChannels& channels, int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  bool moved = false;
  const std::vector<std::shared_ptr<ReceiveOperation>> posted = receives_;
  if (!peer.unexpected.empty())
    for (const auto& receive : posted) moved |= take_unexpected(receive, rank);
  if (rank == rank_) return moved;
  const auto step = [&](const Progress& progress) {
    channels.count_received(rank, Lane::point_to_point, progress);
    moved |= progress.bytes != 0;
  };
  ReceiveChannel* channel = channels.from(rank, Lane::point_to_point);
  while (channel != nullptr && wanted(rank)) {
    if (!peer.incoming.has_header()) {
      step(peer.incoming.step_header(*channel));
      if (!peer.incoming.has_header()) break;
    }
    if (!peer.active()) place(rank);
    step(peer.incoming.step_payload(
        *channel, peer.receive ? peer.receive->target() : std::span(peer.aside->payload)));
    if (!peer.incoming.complete()) break;
    end_message(peer);
  }
  if (!wanted(rank) || moved) return moved;
  // Someone waits for this peer in particular, and nothing comes.
  const bool in_particular =
      peer.active() || std::any_of(receives_.begin(), receives_.end(), [rank](const auto& receive) {
        return receive->source() == rank;
      });
  if (in_particular && channels.exhausted(rank, Lane::point_to_point)) throw LeftError{rank};
  if (in_particular && channel != nullptr && channel->broken()) throw BrokenConnection{rank};
  return moved;
}

/// Decides where the message whose header has come goes.
void PointToPoint::place(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const MessageHeader& header = peer.incoming.header();
  for (const auto& receive : receives_) {
    if (!receive->wants(rank, header.tag)) continue;
    receive->match(rank, header);
    peer.receive = receive;
    return;
  }
  peer.aside = Unexpected{header, std::vector<std::byte>(header.bytes)};
}

void PointToPoint::end_message(Peer& peer) {
  peer.incoming.begin_next();
  if (peer.receive) {
    finish(std::exchange(peer.receive, nullptr));
    return;
  }
  peer.unexpected.push_back(std::move(*peer.aside));
  peer.aside.reset();
  // It may have been asked for since it began to come.
  const std::vector<std::shared_ptr<ReceiveOperation>> posted = receives_;
  const int rank = static_cast<int>(&peer - peers_.data());
  for (const auto& receive : posted)
    if (take_unexpected(receive, rank)) return;
}

bool PointToPoint::take_unexpected(const std::shared_ptr<ReceiveOperation>& receive, int rank) {
  std::list<Unexpected>& unexpected = peers_[static_cast<std::size_t>(rank)].unexpected;
  const auto found = std::find_if(unexpected.begin(), unexpected.end(), [&](const auto& message) {
    return receive->wants(rank, message.header.tag);
  });
  if (found == unexpected.end()) return false;
  receive->match(rank, found->header);
  if (!found->payload.empty())
    std::memcpy(receive->target().data(), found->payload.data(), found->payload.size());
  unexpected.erase(found);
  finish(receive);
  return true;
}

void PointToPoint::finish(const std::shared_ptr<ReceiveOperation>& receive) {
  std::erase(receives_, receive);
  receive->complete();
  finished_(*receive);
}

}  // namespace dtrun::collectives::cpu
