// DeliverySteps: how far one rank has come in a collective of parcels and short messages, whose
// Deliveries it carries out on the caller's stack. What travels is what a CollectiveOperation sends
// and expects, so each rank goes this way or that as it can, and an operation can go on from here.
// A value that borrows its rows. Used under the engine's lock.
#pragma once

#include <optional>
#include <span>

#include "deliveries.h"
#include "dtrun/collectives/backend.h"
#include "group_channels.h"
#include "message.h"
#include "parcels.h"

namespace dtrun::collectives::cpu {

class DeliverySteps {
 public:
  /// What rank combines comes from so few others, and together in so many bytes.
  static constexpr int kMostRows = 15;
  static constexpr std::size_t kMostRowBytes = 64 << 10;

  /// @param parcels where the ranks' posts say how the parts go; else null: all go in messages
  explicit DeliverySteps(Parcels* parcels = nullptr) : parcels_(parcels) {}

  /// Of the rows in which parts wait to be combined; 0 where none do.
  static std::size_t bytes_of_rows(const Deliveries& all, const CollectiveView& collective);
  /// @param rows as many bytes as bytes_of_rows() says
  void set_rows(std::span<std::byte> rows) { rows_ = rows; }

  /// Whether all that this rank sends finds room in rings now, or is short enough for a connection,
  /// all rings and connections are there, and no message is lent. @param bytes of all buffers
  /// @param least_lent of fewer bytes none is
  bool can_begin(const Deliveries& all, const CollectiveView& collective, std::uint64_t bytes,
                 std::size_t least_lent, GroupChannels& channels) const {
    // No part is longer than all of them together.
    const bool all_lie_beside_posts =
        !sends_messages() && bytes <= kMostParcelBytes && bytes < least_lent;
    return all_lie_beside_posts || can_begin_messages(all, collective, least_lent, channels);
  }
  /// Everything, after this rank's post where there are any, and the own part's copy.
  /// @return false: a connection has not taken all. An operation does the rest
  bool send(const Deliveries& all, const CollectiveView& collective, GroupChannels& channels);
  /// Takes what has come, and combines it once that is all. @return whether that is all. A message
  /// that is not the awaited one, and one that is lent, are left to an operation, which goes on
  /// with begun()
  /// @throws as Parcels::take()
  bool receive(const Deliveries& all, const CollectiveView& collective, GroupChannels& channels);

  /// Writes a whole message at once. @param channel which has_room() for it
  static void give_whole(int peer, SendChannel& channel, Bytes part, const Fingerprint& print,
                         GroupChannels& channels);
  /// Takes a message that has come whole. @param channel which has() it
  /// @return false: it is not the awaited one, or its header not in one piece; nothing was done
  static bool take_whole(int peer, ReceiveChannel& channel, std::span<std::byte> target,
                         const Fingerprint& print, GroupChannels& channels);

  /// So many messages are written whole, in the order of the deliveries.
  int sent() const { return sent_; }
  /// The one after them, which is not.
  const std::optional<OutgoingMessage>& unsent() const { return unsent_; }
  /// So many parts have come whole, in the order of the deliveries.
  int complete() const { return parts_; }
  /// Of the next one.
  const IncomingMessage& begun() const { return begun_; }
  /// Empty where nothing is combined.
  std::span<const std::byte> rows() const { return rows_; }

 private:
  bool can_begin_messages(const Deliveries& all, const CollectiveView& collective,
                          std::size_t least_lent, GroupChannels& channels) const;
  /// @param channel to the peer @return whether all of it is written
  bool send_message(int peer, SendChannel& channel, std::span<std::byte> part,
                    const Fingerprint& print, GroupChannels& channels);
  /// @param channel from the peer @return whether all of it has come
  bool receive_message(int peer, ReceiveChannel& channel, std::span<std::byte> target,
                       const Fingerprint& print, GroupChannels& channels);
  bool sends_messages() const { return parcels_ == nullptr || parcels_->are_in_messages(); }
  /// Where a part that is received goes.
  std::span<std::byte> target(const Deliveries& all, const CollectiveView& collective,
                              int index) const;
  void combine(const Deliveries& all, const CollectiveView& collective) const;

  Parcels* parcels_;
  std::span<std::byte> rows_;
  int sent_ = 0;
  std::optional<OutgoingMessage> unsent_;
  int next_ = 0;   ///< of the deliveries that are received
  int parts_ = 0;  ///< that have come; fewer than next_ where empty parts stay
  IncomingMessage begun_;
};

}  // namespace dtrun::collectives::cpu
