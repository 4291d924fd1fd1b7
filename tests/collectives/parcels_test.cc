// Gather, scatter and all_to_all among ranks that share memory: each rank decides how the parts go
// that it gives, beside its post or in messages, and the others follow it.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/flat_tensors.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::ErrorCode;
using tensors::LocalTensor;
using test::flat_full;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::contains;
using Tensors = std::vector<LocalTensor>;

/// Beside a post's fingerprint, in a rank's payloads, in a message, and in one that is lent.
constexpr std::int64_t kCounts[] = {0, 1, 6, 7, 300, 1024, 1025, 20000, 100000};

std::int64_t count_of(int number, int giver, int taker) {
  return kCounts[static_cast<std::size_t>(number + 3 * giver + 4 * taker) % std::size(kCounts)];
}

double number_for(int call, int giver, int taker) {
  return call * 100 + giver * 10 + taker;
}

enum class Lengths { equal, by_giver, by_pair };

/// Parts of a call: what each pair of ranks has for one another.
struct Plan {
  Lengths lengths;
  int call;
  std::int64_t count(int giver, int taker) const {
    switch (lengths) {
      case Lengths::equal:
        return count_of(call, 0, 0);
      case Lengths::by_giver:
        return count_of(call, giver, 0);
      case Lengths::by_pair:
        return count_of(call, giver, taker);
    }
    return 0;
  }
  LocalTensor part(int giver, int taker) const {
    return flat_full(count(giver, taker), number_for(call, giver, taker));
  }
  LocalTensor room(int giver, int taker) const { return flat_full(count(giver, taker), -1); }
  void expect(const LocalTensor& got, int giver, int taker) const {
    EXPECT_TRUE(equal(got, part(giver, taker)))
        << "call " << call << ", from " << giver << " to " << taker;
  }
};

void gather(const ProcessGroup& group, const Plan& plan, CallOptions options) {
  const int root = plan.call % group.size();
  Tensors rooms;
  for (int rank = 0; group.rank() == root && rank < group.size(); ++rank)
    rooms.push_back(plan.room(rank, root));
  group.gather(plan.part(group.rank(), root), rooms, root, options).wait();
  for (std::size_t rank = 0; rank < rooms.size(); ++rank)
    plan.expect(rooms[rank], static_cast<int>(rank), root);
}

void scatter(const ProcessGroup& group, const Plan& plan, CallOptions options) {
  const int root = plan.call % group.size();
  Tensors parts;
  for (int rank = 0; group.rank() == root && rank < group.size(); ++rank)
    parts.push_back(plan.part(root, rank));
  const LocalTensor own = plan.room(root, group.rank());
  group.scatter(own, parts, root, options).wait();
  plan.expect(own, root, group.rank());
}

void all_to_all(const ProcessGroup& group, const Plan& plan, CallOptions options) {
  Tensors parts, rooms;
  for (int rank = 0; rank < group.size(); ++rank) {
    parts.push_back(plan.part(group.rank(), rank));
    rooms.push_back(plan.room(rank, group.rank()));
  }
  group.all_to_all(rooms, parts, options).wait();
  for (int rank = 0; rank < group.size(); ++rank)
    plan.expect(rooms[static_cast<std::size_t>(rank)], rank, group.rank());
}

class ParcelsTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ParcelsTest, testing::Values(2, 3, 5, 9));

// A rank's own call is blocking or not as it likes.
TEST_P(ParcelsTest, PartsOfAnyLengthsComeWhicheverWayTheirGiverChooses) {
  run_ranks(GetParam(), [](const ProcessGroup& group) {
    for (int call = 0; call < 60; ++call) {
      const CallOptions options{.async = (call + group.rank()) % 3 == 0};
      for (const Lengths lengths : {Lengths::equal, Lengths::by_giver, Lengths::by_pair}) {
        const Plan plan{lengths, call};
        gather(group, plan, options);
        scatter(group, plan, options);
        all_to_all(group, plan, options);
      }
      const LocalTensor sum = flat_full(1, 1);
      group.all_reduce(sum);
      EXPECT_EQ(sum.item(), group.size());
    }
  });
}

/// All give three elements to each rank, but for one, whose parts differ.
struct UnevenPlan {
  int uneven;
  std::int64_t times;
  int call;
  LocalTensor part(int giver, int taker) const {
    return flat_full(count(giver, taker), number_for(call, giver, taker));
  }
  LocalTensor room(int giver, int taker) const { return flat_full(count(giver, taker), -1); }

 private:
  std::int64_t count(int giver, int taker) const {
    return giver == uneven ? times * (taker + 1) : 3;
  }
};

void exchange_unevenly(const ProcessGroup& group, const UnevenPlan& plan) {
  Tensors parts, rooms;
  for (int peer = 0; peer < group.size(); ++peer) {
    parts.push_back(plan.part(group.rank(), peer));
    rooms.push_back(plan.room(peer, group.rank()));
  }
  const LocalTensor own = plan.room(plan.uneven, group.rank());
  const bool is_root = group.rank() == plan.uneven;
  group.all_to_all(rooms, parts);
  group.scatter(own, is_root ? parts : Tensors(), plan.uneven);
  for (int peer = 0; peer < group.size(); ++peer)
    EXPECT_TRUE(equal(rooms[static_cast<std::size_t>(peer)], plan.part(peer, group.rank())))
        << "call " << plan.call << ", from " << peer;
  EXPECT_TRUE(equal(own, plan.part(plan.uneven, group.rank()))) << "call " << plan.call;
}

// Who gives and expects short parts of one length begins as by posts, and goes on otherwise when it
// sees that a peer's differ; if another rank is late, too, as an operation.
TEST(ParcelsLateTest, PartsOfOtherLengthsComeAlsoWhereARankIsLate) {
  constexpr int kRanks = 4, kNobody = kRanks;
  run_ranks(kRanks, [](const ProcessGroup& group) {
    int call = 0;
    for (const std::int64_t times : {1, 80, 5000})
      for (int uneven = 0; uneven < kRanks; ++uneven)
        for (int late = 0; late <= kNobody; ++late) {
          const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
          // The others wait in vain for longer than the short way does.
          while (group.rank() == late && std::chrono::steady_clock::now() < end) {
          }
          exchange_unevenly(group, {uneven, times, call++});
          group.barrier();
        }
  });
}

/// Calls with parts of so many elements at rank 0 and at rank 1, which is the root.
void expect_unequal(std::int64_t of_0, std::int64_t of_1, bool is_async,
                    void (*call)(const ProcessGroup&, std::int64_t, CallOptions),
                    const std::string& bytes) {
  const auto thrown = run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
    call(group, 1, {});
    group.barrier();
    call(group, group.rank() == 0 ? of_0 : of_1, {.async = is_async});
    group.barrier();
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error.has_value()) << of_0 << " and " << of_1;
    EXPECT_EQ(error->code, ErrorCode::kDisagreement) << error->text;
    EXPECT_TRUE(contains(error->text, bytes)) << error->text << ", not " << bytes;
  }
}

void gather_at_1(const ProcessGroup& group, std::int64_t count, CallOptions options) {
  const Tensors rooms(group.rank() == 1 ? 2 : 0, flat_full(count, 0));
  group.gather(flat_full(count, 1), rooms, 1, options).wait();
}

void scatter_from_1(const ProcessGroup& group, std::int64_t count, CallOptions options) {
  const Tensors parts(group.rank() == 1 ? 2 : 0, flat_full(count, 0));
  group.scatter(flat_full(count, 1), parts, 1, options).wait();
}

void exchange(const ProcessGroup& group, std::int64_t count, CallOptions options) {
  const Tensors rooms = {flat_full(count, 0), flat_full(count, 0)};
  group.all_to_all(rooms, Tensors(2, flat_full(count, 1)), options).wait();
}

TEST(ParcelsDisagreementTest, WhoTakesAnotherLengthIsToldWithBoth) {
  for (const bool is_async : {false, true})
    for (const std::int64_t one : kCounts)
      for (const std::int64_t other : {std::int64_t{2}, std::int64_t{30000}}) {
        const std::string of_0 = std::to_string(4 * one), of_1 = std::to_string(4 * other);
        expect_unequal(one, other, is_async, gather_at_1,
                       "rank 0 sent " + of_0 + " bytes, rank 1 expected " + of_1);
        expect_unequal(one, other, is_async, scatter_from_1,
                       "rank 1 sent " + of_1 + " bytes, rank 0 expected " + of_0);
        expect_unequal(one, other, is_async, exchange, " bytes, rank ");
      }
}

// The giver has gone on; a later call tells it.
TEST(ParcelsDisagreementTest, AnotherRootAndAnotherCallAreTold) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    if (group.rank() == 0) group.gather(flat_full(2, 1), {}, 1);
    if (group.rank() == 1) group.scatter(flat_full(2, 1), {}, 0);
    group.barrier();
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, ErrorCode::kDisagreement) << error->text;
    EXPECT_TRUE(contains(error->text, "rank 0 called gather #1 ")) << error->text;
    EXPECT_TRUE(contains(error->text, "rank 1 called scatter #1 ")) << error->text;
  }
}

}  // namespace
}  // namespace dtrun::collectives
