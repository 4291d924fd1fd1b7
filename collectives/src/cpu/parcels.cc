#include "parcels.h"

#include <cstring>

#include "disagreement.h"

namespace dtrun::collectives::cpu {

Parcels::Parcels(const CollectiveView& collective, const Situation& situation, int rank)
    : collective_(collective),
      all_(situation.kind, rank, situation.place.ranks, collective.root(), situation.empty_parts),
      size_(situation.place.ranks),
      part_bytes_(parcel_of(collective_, collective_.kind(), rank, situation.item_bytes,
                            most_beside_posts(size_, *situation.limits))) {}

bool Parcels::show(Meeting& meeting, Meeting::Room room) {
  const std::size_t laid = laid_bytes();
  if (!meeting.begin_turn(laid, room)) return false;
  if (laid != 0) {
    std::byte* area = meeting.payload(laid);
    for (int i = 0; i < all_.sends(); ++i, area += part_bytes_)
      std::memcpy(area, collective_.inputs[static_cast<std::size_t>(all_.send(i).index)].data,
                  part_bytes_);
    meeting.counters().shared_memory_bytes_sent += laid;
  }
  meeting.set_parcel(part_bytes_);
  // The others of a scatter wait for the root only.
  const bool alone = collective_.kind() == OpKind::scatter && all_.sends() > 0;
  meeting.post(collective_.fingerprint, alone ? Meeting::Needed::alone : Meeting::Needed::with_all);
  is_shown_ = true;
  return true;
}

Parcels::Found Parcels::take(int peer, std::span<std::byte> part, Meeting& meeting) const {
  if (!meeting.look(peer)) return Found::nothing;
  if (collective_.kind() != OpKind::all_to_all) meeting.fetch_early(peer);
  const std::uint16_t bytes = meeting.parcel(peer);
  if (bytes == Post::kInMessages) return Found::word_of_message;
  if (bytes != part.size())
    throw Disagreement{peer, meeting.fingerprint(peer), collective_.fingerprint,
                       UnequalBytes{bytes, part.size()}};
  if (bytes == 0) return Found::part;
  const auto parts = static_cast<std::size_t>(all_.parts_of_giver());
  const auto number = static_cast<std::size_t>(all_.number_at(peer));
  std::memcpy(part.data(), meeting.payload(peer, parts * bytes) + number * bytes, bytes);
  meeting.counters().shared_memory_bytes_received += bytes;
  return Found::part;
}

}  // namespace dtrun::collectives::cpu
