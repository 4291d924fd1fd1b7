// Which way a collective goes: a table over kinds, sizes, ranks, shared memory and cores.
#include "algorithm.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace dtrun::collectives {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr Sharing kAll = Sharing::all;
constexpr Sharing kNotAll = Sharing::not_all;

/// Of f32; ranks that do not all share memory have a machine each.
Situation of(OpKind kind, std::size_t bytes, int ranks, Sharing sharing) {
  const GroupPlace place{ranks, sharing == kAll ? 1 : ranks, sharing};
  return {kind, bytes, static_cast<std::int64_t>(bytes / 4), 4, place, Crowding::alone};
}

TEST(AlgorithmTest, TheWayFollowsKindBytesRanksAndSharing) {
  const struct {
    OpKind kind;
    std::size_t bytes;
    int ranks;
    Sharing sharing;
    Way way;
  } rows[] = {
      // Up to 16 KiB of a rank and 128 KiB of all go by posts.
      {OpKind::all_reduce, 0, 2, kAll, Way::post},
      {OpKind::all_reduce, 16 * kKiB, 3, kAll, Way::post},
      {OpKind::all_reduce, 16 * kKiB + 4, 3, kAll, Way::stages},
      {OpKind::all_reduce, 16 * kKiB, 8, kAll, Way::post},
      {OpKind::all_reduce, 16 * kKiB, 9, kAll, Way::stages},
      {OpKind::broadcast, 4, 8, kAll, Way::post},
      {OpKind::broadcast, 1024 * kKiB, 8, kAll, Way::stages},
      {OpKind::all_gather, 16 * kKiB, 4, kAll, Way::post},
      {OpKind::all_gather, 16 * kKiB + 4, 4, kAll, Way::stages},
      {OpKind::split, 16, 4, kAll, Way::post},
      // Up to 128 KiB of each of two, 64 KiB of more, where posts carry no more than stages.
      {OpKind::all_reduce, 128 * kKiB, 2, kAll, Way::post},
      {OpKind::all_reduce, 128 * kKiB + 4, 2, kAll, Way::stages},
      {OpKind::all_gather, 128 * kKiB, 2, kAll, Way::post},
      {OpKind::all_gather, 128 * kKiB + 4, 2, kAll, Way::stages},
      {OpKind::broadcast, 64 * kKiB, 8, kAll, Way::post},
      {OpKind::broadcast, 64 * kKiB, 9, kAll, Way::stages},
      {OpKind::reduce, 64 * kKiB, 4, kAll, Way::post},
      {OpKind::reduce, 64 * kKiB + 4, 4, kAll, Way::stages},
      {OpKind::reduce_scatter, 64 * kKiB, 4, kAll, Way::post},
      {OpKind::reduce_scatter, 64 * kKiB + 4, 4, kAll, Way::stages},
      {OpKind::broadcast, 16 * kKiB, 32, kAll, Way::post},
      {OpKind::broadcast, 16 * kKiB + 4, 32, kAll, Way::stages},
      // Longer parts are read where they lie.
      {OpKind::all_gather, 2048 * kKiB - 4, 2, kAll, Way::stages},
      {OpKind::all_gather, 2048 * kKiB, 2, kAll, Way::in_place_or_messages},
      {OpKind::all_gather, 1024 * kKiB + 4, 4, kAll, Way::in_place_or_messages},
      {OpKind::all_gather, 1024 * kKiB + 4, 5, kAll, Way::stages},
      {OpKind::broadcast, 1024 * kKiB + 4, 2, kAll, Way::stages},
      {OpKind::barrier, 0, 300, kAll, Way::post},
      {OpKind::all_reduce, 4 * kKiB, 32, kAll, Way::post},
      {OpKind::all_reduce, 4 * kKiB + 4, 32, kAll, Way::stages},
      {OpKind::all_reduce, 4 * kKiB, 33, kAll, Way::stages},
      {OpKind::all_gather, 64 * kKiB, 40, kAll, Way::stages},
      // Larger groups have no stages.
      {OpKind::all_reduce, 4 * kKiB, kMostOnStage, kAll, Way::stages},
      {OpKind::all_reduce, 4 * kKiB, kMostOnStage + 1, kAll, Way::in_place_or_messages},
      // Not every rank knows these sizes.
      {OpKind::gather, 0, 2, kAll, Way::parcels},
      {OpKind::scatter, 0, 40, kAll, Way::parcels},
      {OpKind::all_to_all, 0, 2, kAll, Way::parcels},
      {OpKind::gather, 0, 2, kNotAll, Way::messages},
      {OpKind::gather, 0, 1, kAll, Way::messages},
      // Without memory that all share.
      {OpKind::all_reduce, 16 * kKiB, 2, kNotAll, Way::messages},
      {OpKind::all_reduce, 16 * kKiB + 4, 2, kNotAll, Way::chunks},
      {OpKind::reduce, 16 * kKiB + 4, 2, kNotAll, Way::chunks},
      {OpKind::all_reduce, 32 * kKiB, 10000, kNotAll, Way::messages},
      {OpKind::broadcast, 1024 * kKiB, 2, kNotAll, Way::messages},
      {OpKind::reduce_scatter, 1024 * kKiB, 2, kNotAll, Way::messages},
      {OpKind::barrier, 0, 2, kNotAll, Way::messages},
      // Alone.
      {OpKind::barrier, 0, 1, kAll, Way::messages},
      {OpKind::broadcast, 4, 1, kAll, Way::messages},
  };
  for (const auto& row : rows) {
    const Situation now = of(row.kind, row.bytes, row.ranks, row.sharing);
    EXPECT_EQ(choose_algorithm(now).way, row.way)
        << op_kind_name(row.kind) << " of " << row.bytes << " bytes, " << row.ranks << " ranks";
  }
}

TEST(AlgorithmTest, ManyBytesOfRanksThatShareCoresGoByNoStages) {
  const auto way = [](OpKind kind, std::size_t bytes, int ranks, int ranks_per_core) {
    Situation now = of(kind, bytes, ranks, kAll);
    now.place.ranks_per_core = ranks_per_core;
    now.crowding = Crowding::crowded;
    return choose_algorithm(now).way;
  };
  for (const OpKind kind :
       {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter, OpKind::broadcast}) {
    EXPECT_EQ(way(kind, kCrowdedStageBytes, 12, kCrowdedOnStage), Way::in_place_or_messages)
        << op_kind_name(kind);
    EXPECT_EQ(way(kind, kCrowdedStageBytes, 40, 20), Way::in_place_or_messages)
        << op_kind_name(kind);
    EXPECT_EQ(way(kind, kCrowdedStageBytes, 10, kCrowdedOnStage - 1), Way::stages)
        << op_kind_name(kind);
    EXPECT_EQ(way(kind, kCrowdedStageBytes - 4, 40, 20), Way::stages) << op_kind_name(kind);
    // The root alone lays in each step.
    for (const int crowd : {kCrowdedOnRootsStage, kCrowdedOnRootsStage - 1}) {
      const bool is_rooted = kind == OpKind::broadcast && crowd == kCrowdedOnRootsStage;
      EXPECT_EQ(way(kind, kCrowdedRootsStageBytes, 8, crowd) == Way::in_place_or_messages,
                is_rooted)
          << op_kind_name(kind) << ' ' << crowd;
    }
  }
  EXPECT_EQ(way(OpKind::broadcast, kCrowdedRootsStageBytes - 4, 8, kCrowdedOnRootsStage),
            Way::stages);
  EXPECT_EQ(way(OpKind::all_gather, 64 << 20, 40, 20), Way::stages);
}

TEST(AlgorithmTest, WhatLiesNotInPlaceGoesByMessages) {
  const auto way = [](OpKind kind, std::size_t bytes, int ranks) {
    return way_of_messages(of(kind, bytes, ranks, kAll));
  };
  EXPECT_EQ(way(OpKind::all_reduce, 1 << 20, 40), Way::chunks);
  EXPECT_EQ(way(OpKind::all_reduce, 4 * kKiB, 40), Way::messages);
  EXPECT_EQ(way(OpKind::reduce, 1 << 20, 40), Way::chunks);
  Situation parts = of(OpKind::reduce_scatter, 40 << 20, 40, kAll);
  parts.item_bytes = 4;
  parts.elements = kCutPartBytes / 4;  // of the longest one
  EXPECT_EQ(way_of_messages(parts), Way::chunks);
  --parts.elements;
  EXPECT_EQ(way_of_messages(parts), Way::messages);
  parts.elements = 10 << 20;
  parts.place.ranks = 1;
  EXPECT_EQ(way_of_messages(parts), Way::messages);
  EXPECT_EQ(way(OpKind::all_gather, 2 << 20, 2), Way::messages);
}

TEST(AlgorithmTest, ManyBytesGoByMachinesWhereOneHasSeveralRanks) {
  const auto way = [](OpKind kind, std::size_t bytes, int ranks, int machines) {
    Situation now = of(kind, bytes, ranks, kNotAll);
    now.place.machines = machines;
    return choose_algorithm(now).way;
  };
  for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce, OpKind::all_gather,
                            OpKind::reduce_scatter, OpKind::broadcast}) {
    EXPECT_EQ(way(kind, kDefaultLimits.machines_bytes, 4, 2), Way::machines) << op_kind_name(kind);
    EXPECT_EQ(way(kind, kDefaultLimits.machines_bytes, 4, 3), Way::machines) << op_kind_name(kind);
    EXPECT_NE(way(kind, kDefaultLimits.machines_bytes - 4, 4, 2), Way::machines)
        << op_kind_name(kind);
    EXPECT_EQ(way(kind, kDefaultLimits.machines_bytes, 4, 4) == Way::machines,
              kind == OpKind::broadcast)
        << op_kind_name(kind);
    EXPECT_NE(way(kind, kDefaultLimits.machines_bytes, 2, 2), Way::machines) << op_kind_name(kind);
  }
  // Not every rank knows the bytes, or they differ from pair to pair.
  for (const OpKind kind : {OpKind::gather, OpKind::scatter, OpKind::all_to_all, OpKind::split})
    EXPECT_EQ(way(kind, 1024 * kKiB, 4, 2), Way::messages) << op_kind_name(kind);
}

TEST(AlgorithmTest, FewBytesGoByRoundsBetweenManyMachinesOrWhereOneHasSeveralRanks) {
  const auto way = [](OpKind kind, std::size_t bytes, int ranks, int machines) {
    Situation now = of(kind, bytes, ranks, kNotAll);
    now.place.machines = machines;
    return choose_algorithm(now).way;
  };
  for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce, OpKind::all_gather, OpKind::split,
                            OpKind::broadcast, OpKind::barrier}) {
    const bool has_root = kind == OpKind::reduce || kind == OpKind::broadcast;
    const int machines = has_root ? kRootedRoundsMachines : kRoundsMachines;
    EXPECT_EQ(way(kind, 8, 4, 2), Way::rounds) << op_kind_name(kind);
    EXPECT_EQ(way(kind, 8, machines, machines), Way::rounds) << op_kind_name(kind);
    EXPECT_EQ(way(kind, 8, machines - 1, machines - 1), Way::messages) << op_kind_name(kind);
    EXPECT_EQ(way(kind, 8, 1000, 1000), Way::rounds) << op_kind_name(kind);
    EXPECT_EQ(way(kind, 16 * kKiB, 8, 3), Way::rounds) << op_kind_name(kind);
    // A broadcast's bytes do not become more on the way.
    for (const auto& [bytes, ranks] : {std::pair{16 * kKiB + 4, 8}, {16 * kKiB, 9}})
      EXPECT_EQ(way(kind, bytes, ranks, 3) == Way::rounds, kind == OpKind::broadcast)
          << op_kind_name(kind);
  }
  EXPECT_EQ(way(OpKind::broadcast, kDefaultLimits.machines_bytes - 4, 4, 2), Way::rounds);
  for (const OpKind kind : {OpKind::gather, OpKind::scatter, OpKind::all_to_all})
    EXPECT_EQ(way(kind, 0, 8, 2), Way::messages) << op_kind_name(kind);
  EXPECT_EQ(way(OpKind::reduce_scatter, 8, 8, 2), Way::messages);
}

TEST(AlgorithmTest, ARankPollsLessWhereItHasNoCore) {
  Situation now = of(OpKind::all_reduce, 4, 2, kAll);
  EXPECT_EQ(choose_algorithm(now).looks, kShortLooks);
  now.crowding = Crowding::crowded;
  EXPECT_EQ(choose_algorithm(now).looks, kCrowdedLooks);
  EXPECT_EQ(choose_algorithm(now).way, Way::post);
}

TEST(AlgorithmTest, BytesAreTheMostThatOneRankShows) {
  float values[8] = {};
  const auto buffer = [&](std::int64_t count) {
    return Buffer{values, count, tensors::DType::f32};
  };
  const std::vector<Buffer> one = {buffer(3)}, list = {buffer(3), buffer(5)}, none;
  Fingerprint print;
  print.dtype = tensors::DType::f32;
  const auto bytes = [&](OpKind kind, const std::vector<Buffer>& in,
                         const std::vector<Buffer>& out) {
    print.kind = kind;
    return situation_of({print, in, out}, GroupPlace{2, 1, kAll}, Crowding::alone, kDefaultLimits)
        .bytes;
  };
  EXPECT_EQ(bytes(OpKind::all_reduce, one, one), 12U);
  EXPECT_EQ(bytes(OpKind::reduce, one, none), 12U);
  EXPECT_EQ(bytes(OpKind::broadcast, one, none), 12U);
  EXPECT_EQ(bytes(OpKind::broadcast, none, one), 12U);
  EXPECT_EQ(bytes(OpKind::all_gather, one, list), 20U);
  EXPECT_EQ(bytes(OpKind::reduce_scatter, list, one), 32U);
  EXPECT_EQ(bytes(OpKind::gather, one, list), 0U);
  EXPECT_EQ(bytes(OpKind::barrier, none, none), 0U);
}

TEST(AlgorithmTest, MiddleMessagesThatGoOneWayOrThroughALargeRingAreNotLent) {
  constexpr std::size_t kRing = 256 * kKiB;
  const auto least = [](OpKind kind, Crowding crowding) {
    return least_lent_bytes(kind, crowding, kRing);
  };
  EXPECT_EQ(least(OpKind::gather, Crowding::alone), kLentPipedBytes);
  EXPECT_EQ(least(OpKind::scatter, Crowding::alone), kLentPipedBytes);
  EXPECT_EQ(least(OpKind::gather, Crowding::crowded), kLentCrowdedBytes);
  EXPECT_EQ(least_lent_bytes(OpKind::gather, Crowding::crowded, pipe_bytes(2)), pipe_bytes(2));
  EXPECT_EQ(least_lent_bytes(OpKind::send, Crowding::alone, pipe_bytes(2)), pipe_bytes(2));
  EXPECT_EQ(least(OpKind::broadcast, Crowding::crowded), kRing);
  EXPECT_EQ(least(OpKind::all_to_all, Crowding::alone), kRing);
  EXPECT_EQ(least(OpKind::all_to_all, Crowding::crowded), kRing);
  EXPECT_EQ(least(OpKind::send, Crowding::crowded), kRing);
  for (const OpKind kind : {OpKind::all_to_all, OpKind::send, OpKind::receive}) {
    EXPECT_EQ(least_lent_bytes(kind, Crowding::alone, kPipeRing), kLentPipedBytes);
    EXPECT_EQ(least_lent_bytes(kind, Crowding::crowded, kPipeRing), kPipeRing);
    EXPECT_EQ(least_lent_bytes(kind, Crowding::crowded, 64 * kKiB), 64 * kKiB);
  }
}

TEST(AlgorithmTest, WhereRanksShareCoresARootLendsLongPartsAndWhatARingCannotHold) {
  const auto least = [](std::size_t ring) {
    return least_lent_bytes(OpKind::scatter, Crowding::crowded, ring);
  };
  EXPECT_EQ(least(kPipeRing), kLentCrowdedBytes);
  EXPECT_EQ(least(256 * kKiB), 256 * kKiB);
  EXPECT_EQ(least(64 * kKiB), 64 * kKiB);
}

TEST(AlgorithmTest, ACostTableMovesTheLimits) {
  WayLimits limits;
  limits.post_bytes = 4 * kKiB;
  limits.whole_reduce_bytes = 64 * kKiB;
  limits.machines_bytes = 32 * kKiB;
  limits.rounds_bytes = 64 * kKiB;
  limits.all_rounds_bytes = 1024 * kKiB;
  const auto way = [&](Situation now, int machines) {
    now.place.machines = machines;
    now.limits = &limits;
    return choose_algorithm(now).way;
  };
  const auto sum = [](std::size_t bytes, int ranks, Sharing sharing) {
    return of(OpKind::all_reduce, bytes, ranks, sharing);
  };
  EXPECT_EQ(way(sum(4 * kKiB, 3, kAll), 1), Way::post);
  EXPECT_EQ(way(sum(4 * kKiB + 4, 3, kAll), 1), Way::stages);
  EXPECT_EQ(way(sum(32 * kKiB, 2, kAll), 1), Way::post);
  EXPECT_EQ(way(sum(32 * kKiB + 4, 2, kAll), 1), Way::stages);
  EXPECT_EQ(way(sum(64 * kKiB, 2, kNotAll), 2), Way::messages);
  EXPECT_EQ(way(sum(64 * kKiB + 4, 2, kNotAll), 2), Way::chunks);
  EXPECT_EQ(way(sum(64 * kKiB, 4, kNotAll), 2), Way::rounds);
  EXPECT_EQ(way(sum(64 * kKiB + 4, 4, kNotAll), 2), Way::machines);
  EXPECT_EQ(way(of(OpKind::broadcast, 32 * kKiB, 4, kNotAll), 2), Way::machines);
  EXPECT_EQ(way(of(OpKind::broadcast, 32 * kKiB - 4, 4, kNotAll), 2), Way::rounds);
  limits.all_posts_bytes = 16 * kKiB;
  EXPECT_EQ(way(sum(4 * kKiB, 4, kAll), 1), Way::post);
  EXPECT_EQ(way(sum(4 * kKiB, 5, kAll), 1), Way::stages);
  EXPECT_EQ(way(of(OpKind::reduce, 16 * kKiB, 4, kAll), 1), Way::post);
  EXPECT_EQ(way(of(OpKind::reduce, 16 * kKiB, 5, kAll), 1), Way::stages);
}

TEST(AlgorithmTest, TheReasonNamesTheCostTableWhereItMakesADifference) {
  WayLimits limits;
  limits.post_bytes = 8;
  Situation now = of(OpKind::all_reduce, 16, 3, kAll);
  now.limits = &limits;
  EXPECT_EQ(explain(now, choose_algorithm(now).way),
            "by stages: 16 bytes of each of 3 ranks, which share memory, are too many for posts; "
            "the cost table says so, else by posts");
  now.bytes = 8;
  EXPECT_EQ(explain(now, choose_algorithm(now).way),
            "by posts: 8 bytes of each of 3 ranks, which share memory");
}

TEST(AlgorithmTest, TheReasonIsSaid) {
  const auto said = [](const Situation& now) { return explain(now, choose_algorithm(now).way); };
  EXPECT_EQ(said(of(OpKind::all_reduce, 16, 2, kAll)),
            "by posts: 16 bytes of each of 2 ranks, which share memory");
  EXPECT_EQ(
      said(of(OpKind::all_reduce, 131076, 2, kAll)),
      "by stages: 131076 bytes of each of 2 ranks, which share memory, are too many for posts");
  EXPECT_EQ(said(of(OpKind::all_gather, 2097152, 2, kAll)),
            "in place or by messages: 2097152 bytes of each of 2 ranks, which share memory; what "
            "does not lie in shared tensors goes by messages, not by stages: of so long ones each "
            "is copied once if the kernel allows it");
  const std::string parcels =
      "by parcels: each of 2 ranks, which share memory, knows how long the parts are that it gives";
  EXPECT_EQ(said(of(OpKind::gather, 0, 2, kAll)), parcels);
  Situation planned = of(OpKind::all_to_all, 0, 2, kAll);
  EXPECT_EQ(said(planned), parcels);
  planned.empty_parts = EmptyParts::stay;
  EXPECT_EQ(said(planned),
            "by messages: the ranks have agreed on the sizes, so empty parts are not sent");
  EXPECT_EQ(said(of(OpKind::barrier, 0, 1, kAll)), "by messages: there is no other rank");
  EXPECT_EQ(said(of(OpKind::broadcast, 65536, 2000, kAll)),
            "in place or by messages: 65536 bytes of each of 2000 ranks, which share memory; what "
            "does not lie in shared tensors goes by messages, not by stages: stages serve up to "
            "1024 ranks");
  Situation many = of(OpKind::all_reduce, 1048576, 40, kAll);
  many.place.ranks_per_core = 20;
  const std::string in_chunks =
      "in place or by messages: 1048576 bytes of each of 40 ranks, which share memory; what does "
      "not lie in shared tensors goes by messages in chunks, not by stages: up to 20 ranks share a "
      "core, and would wait for one another at each step";
  EXPECT_EQ(said(many), in_chunks);
  // The cost table makes no difference to the first way, but to the second.
  WayLimits whole = kDefaultLimits;
  whole.whole_reduce_bytes = 2097152;
  many.limits = &whole;
  EXPECT_EQ(said(many),
            "in place or by messages: 1048576 bytes of each of 40 ranks, which share memory; what "
            "does not lie in shared tensors goes by messages, not by stages: up to 20 ranks share "
            "a core, and would wait for one another at each step; the cost table says so, else "
            "what lies elsewhere by messages in chunks");
  EXPECT_EQ(said(of(OpKind::all_reduce, 65536, 2, kNotAll)),
            "by messages in chunks: not all 2 ranks share memory; 65536 bytes are too many to go "
            "whole");
  Situation mixed = of(OpKind::all_reduce, 1048576, 4, kNotAll);
  mixed.place.machines = 2;
  EXPECT_EQ(said(mixed),
            "by machines: 4 ranks on 2 machines; 1048576 bytes shall not cross the network once a "
            "rank");
  EXPECT_EQ(said(of(OpKind::all_reduce, 16, 20, kNotAll)),
            "by rounds: 20 ranks on 20 machines; 16 bytes of each travel with those of others");
  Situation crowded = of(OpKind::barrier, 0, 3, kAll);
  crowded.crowding = Crowding::crowded;
  EXPECT_EQ(said(crowded),
            "by posts: 0 bytes of each of 3 ranks, which share memory; there are more ranks than "
            "cores");
}

}  // namespace
}  // namespace dtrun::collectives
