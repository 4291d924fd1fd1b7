// Algorithm: which way a collective of the cpu backend goes, and why. Pure, and chosen from what
// all members of the group know, so that all choose the same; only how long a rank polls is its own
// affair. docs/collectives.md has the table.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "deliveries.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/cost_table.h"

namespace dtrun::collectives {

/// What a rank has, in a group of so many, for each half of its stage. To write a cache line that
/// its readers still have in their own caches takes twice as long as to write one that they have
/// evicted since. So few ranks have more than such a cache holds.
inline constexpr std::size_t kLeastAreaBytes = 256 << 10;
constexpr std::size_t area_bytes(std::size_t members) {
  constexpr std::size_t kOfAllMembers = 2 << 20, kMost = 1 << 20;
  return std::clamp(std::bit_floor(kOfAllMembers / members), kLeastAreaBytes, kMost);
}
/// The same for the payloads of its posts. Of two ranks it is as long as both halves of a stage
/// together: of 1 MiB a cache of that size still holds a part when it is used again.
constexpr std::size_t payload_area_bytes(std::size_t members) {
  return members == 2 ? 2 * area_bytes(members) : area_bytes(members);
}
/// The most that lies beside a post of a group of so many; no cost table can say more. It is less
/// than a third of the area, of which the payload of the turn before and the end may be in use, and
/// less than kBulkBytes.
constexpr std::size_t most_post_bytes(std::size_t members) {
  return std::max(area_bytes(members) / 8, kLeastAreaBytes / 4);
}
/// How many times as high the limits of posts are where posts carry no more bytes than stages
/// would.
constexpr std::size_t long_posts(std::size_t members) {
  return most_post_bytes(members) / kDefaultLimits.post_bytes;
}
/// Of a long payload, what others can take before the rest is laid. Of less, the messages between
/// two cores take longer than what they save.
inline constexpr std::size_t kPostPieceBytes = 16 << 10;
/// The same on a stage.
inline constexpr std::size_t kStagePieceBytes = 32 << 10;
/// Of larger groups stages are not known to gain. In an all_reduce and a reduce_scatter half a
/// stage is divided among the members, so a step carries four cache lines for each of so many.
inline constexpr int kMostOnStage = 1024;
/// From so many ranks on each core and so many bytes on, messages are faster than stages: in each
/// step of these every rank waits until all the others have run. Through rings, where the kernel
/// lends nothing, they are no slower.
inline constexpr int kCrowdedOnStage = 6;
inline constexpr std::size_t kCrowdedStageBytes = 1 << 20;
/// The same of a broadcast, whose root alone lays.
inline constexpr int kCrowdedOnRootsStage = 4;
inline constexpr std::size_t kCrowdedRootsStageBytes = 8 << 20;
/// Among ranks that share memory, parts of a reduce_scatter so long come piece by piece: shorter
/// ones are combined sooner when all have come, and take that much memory of each other rank.
inline constexpr std::size_t kCutPartBytes = 1 << 20;
/// Where each rank has a machine of its own, a message to each of the others is faster than rounds
/// between fewer machines than these: a round takes the network's latency. Where all send to all,
/// and where a root does alone.
inline constexpr int kRoundsMachines = 16;
inline constexpr int kRootedRoundsMachines = 32;
/// A message of at least this many bytes is lent to a rank of the machine: of fewer, sender and
/// receiver copy pieces through a ring at the same time.
inline constexpr std::size_t kLentPipedBytes = (1 << 20) + 1;
/// In a larger group the rings of all pairs would take more memory than stages.
inline constexpr int kMostLentTo = 4;
/// Where both sides send, each core is busy with one copy already: in a smaller ring than this they
/// wait for one another so often that all that it cannot hold is lent.
inline constexpr std::size_t kPipeRing = 1 << 20;
/// What a ring holds in a group of so few as kMostLentTo.
constexpr std::size_t pipe_bytes(std::size_t members) {
  return std::clamp(std::bit_floor(4 * kPipeRing / members), kPipeRing, 2 * kPipeRing);
}
/// The same for messages outside of collectives, of which a rank has few at a time: where ranks
/// share cores, one of 1 MiB that is lent takes longer than two copies.
inline constexpr std::size_t kMessagePipe = 2 * kPipeRing;
/// A blocking call by messages sends so many bytes at once, and twice as many with what it
/// receives, before it becomes an operation: the group's lock is held meanwhile.
inline constexpr std::size_t kMostAtOnce = 512 << 10;
/// Where ranks share cores, whoever lends waits until the reader has had its turn: what a ring
/// holds is written there instead, and its writer goes on. But the root of a scatter would copy all
/// parts while others wait for its core, so it lends parts from here on; a gather lends no shorter
/// ones.
inline constexpr std::size_t kLentCrowdedBytes = 512 << 10;
/// From so many bytes on a collective is a long one, which goes beside the short ones: they do not
/// wait for it.
inline constexpr std::size_t kBulkBytes = 256 << 10;
static_assert(most_post_bytes(1) < kBulkBytes && most_post_bytes(kMostOnStage) < kBulkBytes,
              "the posts of the long ones' lane hold no payloads");
/// A blocking call by posts, parcels or short messages looks so often for the others before it
/// becomes an operation: some tens of microseconds, during which other threads cannot take the
/// group's lock.
inline constexpr int kShortLooks = 128;
/// The same where ranks share cores: they yield after each, so the others come on meanwhile, and an
/// operation takes longer to make than they need.
inline constexpr int kCrowdedLooks = 8;

/// post: each rank shows all its bytes at once. stages: the bytes are read in place where all of
/// them lie in shared memory; else they go step by step through a block of fixed size.
/// in_place_or_messages: the same, but else they go by messages or chunks. parcels: each rank shows
/// the parts that it gives to others, or that messages bring them, as it alone decides. messages:
/// as between any two ranks; of a reduction, all bytes to all. rounds: by messages, in which a
/// machine passes on what it has heard. chunks: by messages, in pieces, to each owner its chunk and
/// the result from there. machines: by messages, first among the ranks of each machine, then
/// between the machines.
enum class Way : std::uint8_t {
  post,
  stages,
  in_place_or_messages,
  parcels,
  messages,
  rounds,
  chunks,
  machines
};
const char* way_name(Way way);
/// Whether all meet by posts: then SharedPlan says what is laid and taken.
constexpr bool begins_by_posts(Way way) {
  return way == Way::post || way == Way::stages || way == Way::in_place_or_messages;
}

/// Whether every two ranks of the group share memory.
enum class Sharing : std::uint8_t { all, not_all };

/// Whether this machine has a core for each of the world's ranks on it.
enum class Crowding : std::uint8_t { alone, crowded };

/// Elsewhere counts differ by rank and are not known to all, so the members could choose
/// differently.
constexpr bool all_know_the_bytes(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce:
    case OpKind::broadcast:
    case OpKind::reduce:
    case OpKind::all_gather:
    case OpKind::split:
    case OpKind::reduce_scatter:
    case OpKind::barrier:
      return true;
    default:
      return false;
  }
}

/// The same on all members.
constexpr bool is_bulk(OpKind kind, std::size_t bytes) {
  return all_know_the_bytes(kind) && bytes >= kBulkBytes;
}

/// Smaller messages of such a call are not lent. @param ring the bytes that a ring of the group
/// holds
constexpr std::size_t least_lent_bytes(OpKind kind, Crowding crowding, std::size_t ring) {
  const bool has_root =
      kind == OpKind::gather || kind == OpKind::scatter || kind == OpKind::broadcast;
  if (crowding == Crowding::alone)
    return has_root || ring >= kPipeRing ? std::max(ring, kLentPipedBytes) : ring;
  if (kind == OpKind::gather) return std::max(ring, kLentCrowdedBytes);
  return kind == OpKind::scatter ? std::min(ring, kLentCrowdedBytes) : ring;
}

/// Where bytes need not cross the network once for each rank.
constexpr bool has_way_by_machines(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::reduce || kind == OpKind::all_gather ||
         kind == OpKind::reduce_scatter || kind == OpKind::broadcast;
}

/// Where a rank can send to a few others what all are to get.
constexpr bool has_way_by_rounds(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::reduce || kind == OpKind::all_gather ||
         kind == OpKind::split || kind == OpKind::broadcast || kind == OpKind::barrier;
}

/// The root of a broadcast sends each other machine a part, which these then exchange: all bytes
/// leave it once.
constexpr bool gains_by_machines(OpKind kind, int machines, int ranks) {
  return machines < ranks || (kind == OpKind::broadcast && machines > 2);
}

/// What a group's ranks run on, as all of them know.
struct GroupPlace {
  int ranks = 1;
  int machines = 1;  ///< whose ranks share memory; one that shares it with nobody counts as one
  Sharing sharing = Sharing::not_all;
  int ranks_per_core = 1;  ///< of the group's, rounded up; 1 where not all share memory
};

struct Situation {
  OpKind kind = OpKind::none;
  std::size_t bytes = 0;  ///< the most that one rank shows to all; 0 where not all know it
  /// Of an all_reduce or reduce; of a reduce_scatter those of the longest part.
  std::int64_t elements = 0;
  std::size_t item_bytes = 1;
  GroupPlace place;
  Crowding crowding = Crowding::alone;
  /// Stay: all ranks have agreed on the sizes, which may differ from pair to pair.
  EmptyParts empty_parts = EmptyParts::travel;
  const WayLimits* limits = &kDefaultLimits;  ///< the group's cost table's
};

struct Algorithm {
  Way way = Way::messages;
  int looks = 1;  ///< of the short way
};

// Inline: a small collective takes 130 ns.

/// Of a call whose bytes all ranks know: the most elements that one of them shows to all.
/// @param kind the call's, where it is known before
inline std::int64_t shown_elements(const CollectiveView& collective, OpKind kind) {
  std::int64_t shown = 0;
  switch (kind) {
    case OpKind::all_reduce:
    case OpKind::reduce:
      return collective.inputs.front().count;
    case OpKind::broadcast:
      // At the root it is an input, elsewhere an output.
      return (collective.inputs.empty() ? collective.outputs : collective.inputs)[0].count;
    case OpKind::all_gather:
    case OpKind::split:
      for (const Buffer& buffer : collective.outputs) shown = std::max(shown, buffer.count);
      return shown;
    case OpKind::reduce_scatter:
      for (const Buffer& buffer : collective.inputs) shown += buffer.count;
      return shown;
    default:
      return 0;
  }
}
/// What the call's buffers say of its situation.
inline Situation situation_of(const CollectiveView& collective, const GroupPlace& place,
                              Crowding crowding, const WayLimits& limits) {
  Situation now{.kind = collective.kind(), .place = place, .crowding = crowding, .limits = &limits};
  // All buffers of a collective are of one dtype.
  now.item_bytes = tensors::item_size(collective.fingerprint.dtype);
  now.empty_parts = empty_parts_of(collective.fingerprint);
  const std::int64_t shown = shown_elements(collective, now.kind);
  if (now.kind == OpKind::all_reduce || now.kind == OpKind::reduce) now.elements = shown;
  if (now.kind == OpKind::reduce_scatter)
    for (const Buffer& part : collective.inputs) now.elements = std::max(now.elements, part.count);
  now.bytes = static_cast<std::size_t>(shown) * now.item_bytes;
  return now;
}
/// On the way to all, one rank's bytes are joined by the others'; a broadcast's stay what they are.
constexpr bool fits_in_rounds(const Situation& now) {
  if (now.kind == OpKind::broadcast) return now.bytes < now.limits->machines_bytes;
  return now.bytes <= now.limits->rounds_bytes &&
         now.bytes * static_cast<std::size_t>(now.place.ranks) <= now.limits->all_rounds_bytes;
}
constexpr bool goes_by_rounds(const Situation& now) {
  const bool has_root = now.kind == OpKind::broadcast || now.kind == OpKind::reduce;
  const GroupPlace& place = now.place;
  return place.sharing != Sharing::all && has_way_by_rounds(now.kind) && fits_in_rounds(now) &&
         (place.machines < place.ranks ||
          place.machines >= (has_root ? kRootedRoundsMachines : kRoundsMachines));
}
/// The most bytes of one rank that may lie beside posts, if there are as many of each other.
/// @param times as high the limits are
constexpr std::size_t most_beside_posts(int ranks, const WayLimits& limits, std::size_t times = 1) {
  return std::min(limits.post_bytes * times,
                  limits.all_posts_bytes * times / static_cast<std::size_t>(ranks));
}
/// Whether posts make nobody read more than stages do, so that they only save a meeting. In an
/// all_reduce of more ranks each combines all by posts, and its own chunk by stages. In an
/// all_gather all read all either way, but ranks that share cores are faster by stages.
constexpr bool gains_by_long_posts(OpKind kind, int ranks) {
  return ranks == 2 || kind == OpKind::broadcast || kind == OpKind::reduce ||
         kind == OpKind::reduce_scatter;
}
/// Only who gives a part and who gets it know how long it is.
constexpr bool gives_parts(OpKind kind) {
  return kind == OpKind::gather || kind == OpKind::scatter || kind == OpKind::all_to_all;
}
/// Of such a call: whether each rank says in a post how its parts go.
constexpr bool goes_by_parcels(const Situation& now) {
  return gives_parts(now.kind) && now.place.ranks > 1 && now.place.sharing == Sharing::all &&
         now.empty_parts == EmptyParts::travel;
}
/// Whether all know the bytes of each, which are few enough.
constexpr bool goes_by_posts(const Situation& now) {
  const int ranks = now.place.ranks;
  const std::size_t times =
      gains_by_long_posts(now.kind, ranks) ? long_posts(static_cast<std::size_t>(ranks)) : 1;
  return ranks > 1 && now.place.sharing == Sharing::all && all_know_the_bytes(now.kind) &&
         now.bytes <= most_beside_posts(ranks, *now.limits, times);
}
/// Of ranks that share memory: whether messages bring all to all. Nothing is to be combined, and
/// messages so long are lent where each rank has a core.
constexpr bool goes_by_lent_messages(const Situation& now) {
  const auto members = static_cast<std::size_t>(now.place.ranks);
  return now.kind == OpKind::all_gather && now.place.ranks <= kMostLentTo &&
         now.bytes >= std::max(pipe_bytes(members), kLentPipedBytes);
}
/// By messages between any two ranks.
constexpr Way way_of_messages(const Situation& now) {
  const bool has_whole_input = now.kind == OpKind::all_reduce || now.kind == OpKind::reduce;
  // Between machines the network would be idle at the end of each piece.
  const bool has_long_parts =
      now.kind == OpKind::reduce_scatter && now.place.sharing == Sharing::all &&
      now.place.ranks > 1 &&
      static_cast<std::size_t>(now.elements) * now.item_bytes >= kCutPartBytes;
  const bool can_be_cut = has_long_parts || (has_whole_input && now.elements >= now.place.ranks);
  return can_be_cut && now.bytes > now.limits->whole_reduce_bytes ? Way::chunks : Way::messages;
}
/// Of ranks that share memory: whether bytes that cannot be read in place go by stages. In an
/// all_gather each rank lays once what all the others take.
constexpr bool goes_by_stages(const Situation& now) {
  const GroupPlace& place = now.place;
  if (goes_by_lent_messages(now) || place.ranks > kMostOnStage) return false;
  if (now.kind == OpKind::all_gather || now.kind == OpKind::split) return true;
  if (now.kind == OpKind::broadcast && place.ranks_per_core >= kCrowdedOnRootsStage &&
      now.bytes >= kCrowdedRootsStageBytes)
    return false;
  return place.ranks_per_core < kCrowdedOnStage || now.bytes < kCrowdedStageBytes;
}
constexpr Way choose_way(const Situation& now) {
  const int ranks = now.place.ranks;
  if (goes_by_parcels(now)) return Way::parcels;
  if (goes_by_posts(now)) return Way::post;
  if (ranks > 1 && now.place.sharing == Sharing::all && all_know_the_bytes(now.kind))
    return goes_by_stages(now) ? Way::stages : Way::in_place_or_messages;
  if (goes_by_rounds(now)) return Way::rounds;
  if (now.place.sharing != Sharing::all && now.bytes >= now.limits->machines_bytes &&
      has_way_by_machines(now.kind) && gains_by_machines(now.kind, now.place.machines, ranks)) {
    return Way::machines;
  }
  return way_of_messages(now);
}
/// With more ranks than cores, to poll for long takes the core from the rank that is waited for.
constexpr int looks_of(Crowding crowding) {
  return crowding == Crowding::crowded ? kCrowdedLooks : kShortLooks;
}
constexpr Algorithm choose_algorithm(const Situation& now) {
  return {choose_way(now), looks_of(now.crowding)};
}
/// "by posts: 16 bytes of each of 2 ranks, which share memory"; where the limits make a difference
/// to the defaults: "...; the cost table says so, else by stages".
std::string explain(const Situation& situation, Way way);

}  // namespace dtrun::collectives
