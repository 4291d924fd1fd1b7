// PointToPoint: a group's sends and receives. Messages to one peer travel in the order of the
// sends; a receive takes the first message with its tag. What comes before it with other tags is
// kept aside. Receives and sends in flight do not hold up each other. Owned by the group's engine
// and used under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "group_channels.h"
#include "message.h"
#include "operation.h"

namespace dtrun::collectives::cpu {

class SendOperation : public Operation {
 public:
  SendOperation(std::shared_ptr<GroupEngine> engine, Call call, Buffer buffer, int destination,
                std::uint32_t tag);

  bool step(GroupChannels& channels) override;
  std::vector<int> missing() const override { return {message_.peer()}; }
  std::uint64_t bytes() const override { return buffer_.bytes(); }

  int destination() const { return message_.peer(); }
  bool is_written() const { return message_.is_written(); }
  /// Its message is under way already.
  void go_on(const OutgoingMessage& begun) { message_ = begun; }
  std::uint32_t tag() const { return tag_; }
  const Buffer& buffer() const { return buffer_; }

 private:
  Buffer buffer_;
  std::uint32_t tag_;
  OutgoingMessage message_;
};

class ReceiveOperation : public Operation {
 public:
  /// @param source -1: any
  ReceiveOperation(std::shared_ptr<GroupEngine> engine, Call call, Buffer buffer, int source,
                   std::uint32_t tag, std::vector<int> possible_sources)
      : Operation(std::move(engine), std::move(call), Lane::point_to_point),
        buffer_(buffer),
        source_(source),
        tag_(tag),
        possible_sources_(std::move(possible_sources)) {}

  /// PointToPoint moves it.
  bool step(GroupChannels&) override { return false; }
  std::vector<int> missing() const override { return possible_sources_; }
  std::uint64_t bytes() const override { return buffer_.bytes(); }
  int source_rank() override { return done() && matched_ ? matched_from_ : -1; }

  bool wants(int peer, std::uint32_t tag) const {
    return !matched_ && tag == tag_ && (source_ < 0 || source_ == peer);
  }
  bool may_come_from(int peer) const { return !matched_ && (source_ < 0 || source_ == peer); }
  int source() const { return source_; }
  bool matched() const { return matched_; }
  /// @throws Disagreement when the message is not what this receive asks for
  void match(int peer, const MessageHeader& header);
  std::span<std::byte> target() const {
    return {static_cast<std::byte*>(buffer_.data), buffer_.bytes()};
  }

 private:
  Buffer buffer_;
  int source_;
  std::uint32_t tag_;
  std::vector<int> possible_sources_;
  bool matched_ = false;
  int matched_from_ = -1;
};

/// What came of looking for a message once.
enum class Taken : std::uint8_t {
  done,
  not_yet,
  other_way,  ///< an operation has to take it, however often one looks
};

class PointToPoint {
 public:
  using Finished = std::function<void(Operation&)>;
  /// @param finished called for every operation that has completed
  PointToPoint(int rank, int size, Finished finished);

  // The short way of a message, while nothing is in flight.
  /// What came of trying to send a message at once.
  enum class Sent : std::uint8_t {
    all,
    nothing,
    a_part,  ///< an operation has to send the rest before anything else is sent to that peer
  };
  /// @return all: wake() of the peer's channel must follow, behind a mutex
  Sent send_now(const ShortMessage& message, GroupChannels& channels);
  Taken receive_now(const ShortMessage& message, GroupChannels& channels);

  /// Whether the operation that was to send the rest of a message has not come, and this is another
  /// one to that peer.
  bool is_after_a_lost_rest(const SendOperation& send) const;
  void add(std::shared_ptr<SendOperation> send);
  void add(std::shared_ptr<ReceiveOperation> receive);
  bool step(GroupChannels& channels);
  bool idle() const { return receives_.empty() && sending_ == 0; }
  /// Every operation in flight.
  std::vector<std::shared_ptr<Operation>> operations() const;
  /// Forgets them all; for a group that has failed.
  void clear();

 private:
  struct Unexpected {
    MessageHeader header;
    std::vector<std::byte> payload;
  };
  struct Peer {
    std::deque<std::shared_ptr<SendOperation>> sends;
    std::optional<OutgoingMessage> begun;  ///< by send_now(), for an operation that is to come
    std::list<Unexpected> unexpected;
    // The message on its way in: into a receive, or aside; neither while only its header is here.
    IncomingMessage incoming;
    std::shared_ptr<ReceiveOperation> receive;
    std::optional<Unexpected> aside;
    bool active() const { return receive != nullptr || aside.has_value(); }
  };

  Sent write_now(const ShortMessage& message, SendChannel& channel, GroupChannels& channels);
  bool step_sends(GroupChannels& channels, Peer& peer);
  bool step_receives(GroupChannels& channels, int rank);
  bool take_unexpected(const std::shared_ptr<ReceiveOperation>& receive, int rank);
  void place(int rank);
  void end_message(Peer& peer);
  void finish(const std::shared_ptr<ReceiveOperation>& receive);
  bool wanted(int rank) const;
  void check_any_source(GroupChannels& channels) const;

  const int rank_;
  const Finished finished_;
  std::vector<Peer> peers_;
  std::size_t sending_ = 0;                                  ///< sends in flight
  std::vector<std::shared_ptr<ReceiveOperation>> receives_;  ///< in the order they were posted
};

}  // namespace dtrun::collectives::cpu
