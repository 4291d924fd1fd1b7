// Which part of a collective goes from whom to whom is said twice: by Deliveries for messages, and
// by SharedPlan for what lies beside posts. Some ranks of a call may go the one way and some the
// other, so the two must say the same.
#include "deliveries.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cpu/shared_plan.h"

namespace dtrun::collectives {
namespace {

using cpu::SharedPlan;
using tensors::DType;

constexpr int kRanks[] = {2, 3, 4, 5, 8, 9};
constexpr std::int64_t kCount = 3;

/// The buffers of one rank in a call, as Collective says, none of which is read.
struct RanksCall {
  RanksCall(OpKind kind, int rank, int size, int root) {
    print.kind = kind;
    print.dtype = DType::f32;
    print.root = root;
    const Lists lists = lists_of(kind, rank == root, size);
    for (int i = 0; i < lists.inputs; ++i) inputs.push_back(buffer(rank, 0, i));
    for (int i = 0; i < lists.outputs; ++i) outputs.push_back(buffer(rank, 1, i));
  }
  CollectiveView view() const { return {print, inputs, outputs}; }

  Fingerprint print;
  std::vector<Buffer> inputs, outputs;

 private:
  struct Lists {
    int inputs;
    int outputs;
  };
  static Lists lists_of(OpKind kind, bool is_root, int size) {
    switch (kind) {
      case OpKind::broadcast:
        return is_root ? Lists{1, 0} : Lists{0, 1};
      case OpKind::reduce:
        return {1, is_root ? 1 : 0};
      case OpKind::gather:
        return {1, is_root ? size : 0};
      case OpKind::scatter:
        return {is_root ? size : 0, 1};
      case OpKind::all_gather:
      case OpKind::split:
        return {1, size};
      case OpKind::reduce_scatter:
        return {size, 1};
      case OpKind::all_to_all:
        return {size, size};
      case OpKind::all_reduce:
        return {1, 1};
      default:
        return {0, 0};
    }
  }
  /// At an address of its own.
  static Buffer buffer(int rank, int list, int index) {
    const auto address = static_cast<std::uintptr_t>(1 + (rank * 2 + list) * 100 + index) * 4096;
    return {reinterpret_cast<void*>(address), kCount, DType::f32};
  }
};

/// Calls body(size, root) for each.
template <typename Body>
void for_each_size_and_root(OpKind kind, Body body) {
  const bool has_root = kind == OpKind::broadcast || kind == OpKind::reduce ||
                        kind == OpKind::gather || kind == OpKind::scatter;
  for (const int size : kRanks)
    for (int root = has_root ? 0 : -1; root < (has_root ? size : 0); ++root) {
      SCOPED_TRACE(std::string(op_kind_name(kind)) + ", root " + std::to_string(root) + " of " +
                   std::to_string(size));
      body(size, root);
    }
}

Deliveries deliveries_of(OpKind kind, int rank, int size, int root) {
  return {kind, rank, size, root, EmptyParts::travel};
}

/// Of each rank in turn the parts beside its post: the buffer at each byte.
std::map<std::size_t, const void*> laid_beside_post(const SharedPlan& plan) {
  std::map<std::size_t, const void*> parts;
  plan.for_each_laid(0, [&](const Buffer& from, const SharedPlan::Piece& piece, int place, int) {
    EXPECT_EQ(piece.begin, 0);
    EXPECT_EQ(piece.count, from.count);
    EXPECT_TRUE(parts.emplace(plan.offset_of(place, plan.rank()), from.data).second);
  });
  return parts;
}

/// The same as messages say, which are laid one after the other (Parcels::show()).
std::map<std::size_t, const void*> laid_in_order_of_sends(const Deliveries& all,
                                                          const RanksCall& call,
                                                          std::size_t bytes) {
  std::map<std::size_t, const void*> parts;
  for (int i = 0; i < all.sends(); ++i)
    parts.emplace(static_cast<std::size_t>(i) * bytes,
                  call.inputs[static_cast<std::size_t>(all.send(i).index)].data);
  return parts;
}

/// Where a rank finds a part beside the giver's post, and where that goes.
struct Taken {
  int giver;
  std::size_t offset;
  const void* output;
  auto operator<=>(const Taken&) const = default;
};

std::set<Taken> taken_from_posts(const SharedPlan& plan) {
  std::set<Taken> parts;
  plan.for_each_taken(
      0, [](const Buffer&, const SharedPlan::Piece&, int) { ADD_FAILURE() << "combines parcels"; },
      [&](int peer, int place, const Buffer& output, const SharedPlan::Piece& piece) {
        EXPECT_EQ(piece.count, output.count);
        if (peer == plan.rank()) return;
        const Taken part{peer, plan.offset_of(place, peer), output.data};
        EXPECT_TRUE(parts.insert(part).second) << "twice from " << peer;
      });
  return parts;
}

/// As Parcels::take() finds them.
std::set<Taken> taken_by_number(const Deliveries& all, const RanksCall& call, std::size_t bytes) {
  std::set<Taken> parts;
  for (int i = 0; i < all.receives(); ++i) {
    const auto [giver, index] = all.receive(i);
    parts.insert({giver, static_cast<std::size_t>(all.number_at(giver)) * bytes,
                  call.outputs[static_cast<std::size_t>(index)].data});
  }
  return parts;
}

TEST(DeliveriesTest, ParcelsLieBesidePostsWhereMessagesWouldCountThem) {
  constexpr std::size_t kBytes = kCount * 4;
  for (const OpKind kind : {OpKind::gather, OpKind::scatter, OpKind::all_to_all})
    for_each_size_and_root(kind, [&](int size, int root) {
      for (int rank = 0; rank < size; ++rank) {
        const RanksCall call(kind, rank, size, root);
        const SharedPlan plan = SharedPlan::by_parcels(call.view(), rank, size, kBytes, 4);
        const Deliveries all = deliveries_of(kind, rank, size, root);
        EXPECT_EQ(laid_beside_post(plan), laid_in_order_of_sends(all, call, kBytes)) << rank;
        EXPECT_EQ(plan.laid_bytes(), static_cast<std::size_t>(all.sends()) * kBytes) << rank;
        EXPECT_EQ(taken_from_posts(plan), taken_by_number(all, call, kBytes)) << rank;
        for (int i = 0; i < all.receives(); ++i) {
          const int giver = all.receive(i).peer;
          EXPECT_EQ(plan.parcel_of_peer(giver), kBytes) << rank;
          EXPECT_EQ(plan.shown_bytes_of(giver),
                    static_cast<std::size_t>(all.parts_of_giver()) * kBytes)
              << rank;
        }
      }
    });
}

// What one rank gives is what the other one gets, also where one goes by posts and the other by
// messages.
TEST(DeliveriesTest, AParcelBesideAPostIsTheOneThatItsTakerWouldGetInAMessage) {
  constexpr std::size_t kBytes = kCount * 4;
  for (const OpKind kind : {OpKind::gather, OpKind::scatter, OpKind::all_to_all})
    for_each_size_and_root(kind, [&](int size, int root) {
      for (int taker = 0; taker < size; ++taker) {
        const RanksCall takers(kind, taker, size, root);
        const SharedPlan plan = SharedPlan::by_parcels(takers.view(), taker, size, kBytes, 4);
        for (const Taken& part : taken_from_posts(plan)) {
          const RanksCall givers(kind, part.giver, size, root);
          const Deliveries all = deliveries_of(kind, part.giver, size, root);
          const auto number = static_cast<int>(part.offset / kBytes);
          ASSERT_LT(number, all.sends());
          EXPECT_EQ(all.send(number).peer, taker) << "from " << part.giver;
          EXPECT_EQ(
              laid_beside_post(SharedPlan::by_parcels(givers.view(), part.giver, size, kBytes, 4))
                  .at(part.offset),
              givers.inputs[static_cast<std::size_t>(all.send(number).index)].data);
        }
      }
    });
}

TEST(DeliveriesTest, ARankNeedsThoseWhosePostsItTakesAndWhoseMessagesItWouldGet) {
  for (const OpKind kind : {OpKind::broadcast, OpKind::all_reduce, OpKind::reduce,
                            OpKind::all_gather, OpKind::split, OpKind::reduce_scatter,
                            OpKind::barrier, OpKind::gather, OpKind::scatter, OpKind::all_to_all})
    for_each_size_and_root(kind, [&](int size, int root) {
      for (int rank = 0; rank < size; ++rank) {
        const RanksCall call(kind, rank, size, root);
        const SharedPlan plan = gives_parts(kind)
                                    ? SharedPlan::by_parcels(call.view(), rank, size, 12, 4)
                                    : SharedPlan::by_posts(call.view(), rank, size, 12, 4);
        const Deliveries all = deliveries_of(kind, rank, size, root);
        std::set<int> needed, received, shown_to, sent_to;
        for (int peer = 0; peer < size; ++peer) {
          if (plan.needs(peer)) needed.insert(peer);
          if (plan.is_read_by(peer)) shown_to.insert(peer);
        }
        for (int i = 0; i < all.receives(); ++i) received.insert(all.receive(i).peer);
        for (int i = 0; i < all.sends(); ++i) sent_to.insert(all.send(i).peer);
        EXPECT_EQ(needed, received) << rank;
        EXPECT_EQ(shown_to, sent_to) << rank;
        EXPECT_EQ(plan.first_met() >= plan.end_of_met(), all.receives() == 0) << rank;
      }
    });
}

TEST(DeliveriesTest, ARankCopiesItsOwnPartWhereMessagesWouldLeaveIt) {
  for (const OpKind kind : {OpKind::all_gather, OpKind::split, OpKind::gather, OpKind::scatter,
                            OpKind::all_to_all, OpKind::broadcast})
    for_each_size_and_root(kind, [&](int size, int root) {
      for (int rank = 0; rank < size; ++rank) {
        const RanksCall call(kind, rank, size, root);
        const SharedPlan plan = gives_parts(kind)
                                    ? SharedPlan::by_parcels(call.view(), rank, size, 12, 4)
                                    : SharedPlan::by_posts(call.view(), rank, size, 12, 4);
        const Deliveries all = deliveries_of(kind, rank, size, root);
        const void* copied_to = nullptr;
        plan.for_each_taken(
            0, [](const Buffer&, const SharedPlan::Piece&, int) {},
            [&](int peer, int, const Buffer& output, const SharedPlan::Piece&) {
              if (peer == rank) copied_to = output.data;
            });
        ASSERT_EQ(copied_to != nullptr, all.copies_own()) << rank;
        if (copied_to == nullptr) continue;
        EXPECT_EQ(copied_to, call.outputs[static_cast<std::size_t>(all.own_output())].data) << rank;
        EXPECT_EQ(plan.own_input().data,
                  call.inputs[static_cast<std::size_t>(all.own_input())].data)
            << rank;
      }
    });
}

}  // namespace
}  // namespace dtrun::collectives
