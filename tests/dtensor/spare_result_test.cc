// Results of repeated moves that a thread has given up, whose memory the next ones get.
#include "autograd/spare_result.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/rank_world.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "mesh/spec_table.h"

namespace dtrun::dtensor {
namespace {

/// Of two ranks: a tensor that keeps two moves, one of them to another mesh.
class SpareMoves {
 public:
  SpareMoves() {
    for (int i = 0; i < 4; ++i) {
      gather();
      cross();
    }
  }
  Tensor gather() const { return x_.redistribute({Replicate()}); }
  Tensor cross() const { return x_.redistribute(turned_, {Shard(0)}); }
  const Tensor& x() const { return x_; }

 private:
  const DeviceMesh mesh_{"cpu", {0, 1}}, turned_{"cpu", {1, 0}};
  const Tensor x_ = full({4, 6}, 1, mesh_, {Shard(0)});
};

/// Whether this thread has a spare for that spec, which it still has then.
bool has_spare(const Spec& to) {
  auto* const spare = SpareResult::take(to);
  return spare != nullptr && SpareResult::keep(*spare);
}

TEST(SpareResultTest, TheNextResultIsTheOneThatWasGivenUp) {
  if (!base::small_blocks::kKeepsBlocks) GTEST_SKIP() << "no block is kept under this sanitizer";
  run_world(2, [](int) {
    const SpareMoves moves;
    const auto expect_reuse = [&](auto move) {
      const Spec to = move().spec();
      const void* const first = move().local().data();
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(has_spare(to));
        const Tensor result = move();
        EXPECT_EQ(result.local().data(), first);
        EXPECT_FALSE(has_spare(to));
      }
    };
    expect_reuse([&] { return moves.gather(); });
    expect_reuse([&] { return moves.cross(); });
  });
}

TEST(SpareResultTest, ElementsThatSomebodyHasAreNotWrittenAgain) {
  run_world(2, [](int) {
    const SpareMoves moves;
    const auto expect_kept = [&](auto move, std::size_t count) {
      for (const bool is_view : {false, true}) {
        const LocalTensor had = is_view ? move().local().narrow(0, 0, 1) : move().local();
        had.fill_(7);
        move();
        move();
        const std::size_t elements = is_view ? 6 : count;
        EXPECT_EQ(had.to_vector(), std::vector<double>(elements, 7));
        EXPECT_EQ(move().local().to_vector(), std::vector<double>(count, 1));
      }
    };
    expect_kept([&] { return moves.gather(); }, 24);
    expect_kept([&] { return moves.cross(); }, 12);
  });
}

TEST(SpareResultTest, OtherNumbersInAResultAreNotTheNextOnes) {
  run_world(2, [](int) {
    const SpareMoves moves;
    const LocalTensor mine = tensors::full({4, 6}, 5);
    {
      const Tensor result = moves.gather();
      result.set_data(Tensor(result.spec(), mine));
    }
    EXPECT_EQ(moves.gather().local().to_vector(), std::vector<double>(24, 1));
    EXPECT_EQ(mine.to_vector(), std::vector<double>(24, 5));
  });
}

TEST(SpareResultTest, AResultInTheGraphOrWithMovesIsNotKept) {
  run_world(2, [](int) {
    const SpareMoves moves;
    moves.x().requires_grad_();
    for (int i = 0; i < 3; ++i) {
      const Tensor result = moves.gather();
      EXPECT_TRUE(result.requires_grad());
    }
    moves.x().requires_grad_(false);
    for (int i = 0; i < 3; ++i) {
      const Tensor result = moves.gather();
      EXPECT_FALSE(result.requires_grad());
      for (int again = 0; again < 3; ++again)
        EXPECT_EQ(result.redistribute({Shard(0)}).local().to_vector(), std::vector<double>(12, 1));
    }
  });
}

TEST(SpareResultTest, NoneIsKeptOrTakenWhileAMeterStands) {
  run_world(2, [](int) {
    const SpareMoves moves;
    const Spec to = moves.gather().spec();
    EXPECT_EQ(has_spare(to), base::small_blocks::kKeepsBlocks);
    collectives::default_group().barrier();
    std::optional<tensors::HostMemoryMeter> meter;
    if (collectives::default_group().rank() == 0) meter.emplace();
    collectives::default_group().barrier();
    EXPECT_FALSE(has_spare(to));
    moves.gather();
    collectives::default_group().barrier();
    meter.reset();
    collectives::default_group().barrier();
    EXPECT_FALSE(has_spare(to));
  });
}

TEST(SpareResultTest, NoneOutlivesTheTensorWhoseMoveIsRepeated) {
  run_world(2, [](int) {
    std::optional<Spec> arrived;
    {
      const SpareMoves moves;
      arrived = moves.gather().spec();
      moves.gather();
    }
    EXPECT_EQ(arrived->body()->owners(), 1U);
    {
      std::optional<SpareMoves> moves(std::in_place);
      arrived = moves->gather().spec();
      const Tensor last = moves->gather();
      moves.reset();
    }
    EXPECT_EQ(arrived->body()->owners(), 1U) << "a result that is given up later";
  });
}

TEST(SpareResultTest, AThreadThatEndsLetsItsOwnGo) {
  run_world(2, [](int) {
    const DeviceMesh mesh("cpu", {0, 1});
    const Tensor x = Tensor::from_local(tensors::full({4, 6}, 1), mesh, {Partial()});
    const Spec arrived = x.redistribute({Replicate()}).spec();
    for (int i = 0; i < 4; ++i) x.redistribute({Replicate()});
    SpareResult::let_go();
    const std::uint32_t before = arrived.body()->owners();
    std::thread([&] {
      for (int i = 0; i < 4; ++i) x.redistribute({Replicate()});
    }).join();
    EXPECT_EQ(arrived.body()->owners(), before);
  });
}

}  // namespace
}  // namespace dtrun::dtensor
