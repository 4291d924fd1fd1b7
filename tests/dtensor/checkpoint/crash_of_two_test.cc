// Power cuts and failing calls in a save of two ranks: their calls in any order that is possible.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "dtensor/checkpoint/disk_model.h"
#include "dtensor/checkpoint/passed_calls.h"
#include "dtrun/base/log.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using base::ErrorCode;
using collectives::ProcessGroup;
using testing_support::one_in;

/// Tells a rank's calls when the ranks have met.
class CountedAgreement : public GroupAgreement {
 public:
  CountedAgreement(const ProcessGroup& group, PassedCalls& calls)
      : GroupAgreement(group), calls_(calls) {}
  std::vector<std::string> exchange(const std::string& own) override {
    std::vector<std::string> all = GroupAgreement::exchange(own);
    calls_.next_epoch();
    return all;
  }

 private:
  PassedCalls& calls_;
};

/// Both ranks have something to write.
State shared_state(const DeviceMesh& mesh, double& number) {
  return {{"cut", full({6}, number, mesh, {Shard(0)})},
          {"columns", full({2, 4}, number, mesh, {Shard(1)})},
          {"same", full({3}, number, mesh, {Replicate()})},
          {"number", number}};
}

/// The number that all of a checkpoint has; 0: there is none; -1: a mixture.
double number_on(FileCalls& files) {
  const std::array tensors = {zeros({6}), zeros({2, 4}), zeros({3})};
  double number = 0;
  const State state{
      {"cut", tensors[0]}, {"columns", tensors[1]}, {"same", tensors[2]}, {"number", number}};
  try {
    load("/disk/a", state, {.files = &files});
  } catch (const base::Error&) {
    number = 0;
  }
  for (const Tensor& tensor : tensors) {
    for (const double one : tensor.to_vector()) {
      if (one != number) return -1;
    }
  }
  return number;
}

class CrashOfTwoTest : public testing::Test {
 protected:
  CrashOfTwoTest() { base::log::set_levels("-dtensor"); }
  ~CrashOfTwoTest() override { base::log::set_levels(""); }

  static void save_alone(DiskModel& disk, double number) {
    test::run_ranks(2, [&](const ProcessGroup& group) {
      double own = number;
      const DeviceMesh mesh(group, {2});
      save("/disk/a", shared_state(mesh, own), {.group = group, .files = &disk});
    });
  }

  /// Each rank's calls in a save of the number 2.
  static std::array<std::vector<KeptCall>, 2> recorded_save(DiskModel& disk, Existing existing) {
    std::array<PassedCalls, 2> passed = {PassedCalls(disk), PassedCalls(disk)};
    test::run_ranks(2, [&](const ProcessGroup& group) {
      double own = 2;
      const DeviceMesh mesh(group, {2});
      PassedCalls& files = passed[static_cast<std::size_t>(group.rank())];
      CountedAgreement agreement(group, files);
      save("/disk/a", shared_state(mesh, own),
           {.agreement = &agreement, .existing = existing, .files = &files});
    });
    return {passed[0].kept(), passed[1].kept()};
  }
};

/// One order of both ranks' calls: theirs between two meetings in any order, those of one rank in
/// its own.
std::vector<const KeptCall*> some_order(const std::array<std::vector<KeptCall>, 2>& calls,
                                        std::mt19937& random) {
  std::vector<const KeptCall*> order;
  std::array<std::size_t, 2> next = {0, 0};
  // One rank is much faster than the other, or they take turns.
  const std::uint32_t chance = random() % 101;
  for (;;) {
    std::array<bool, 2> is_left{};
    std::array<int, 2> epoch{};
    for (std::size_t rank = 0; rank < 2; ++rank) {
      is_left[rank] = next[rank] < calls[rank].size();
      epoch[rank] = is_left[rank] ? calls[rank][next[rank]].epoch : 1 << 30;
    }
    if (!is_left[0] && !is_left[1]) return order;
    const bool is_free = epoch[0] == epoch[1];
    const std::size_t rank =
        is_free ? (random() % 100 < chance ? 1 : 0) : (epoch[0] < epoch[1] ? 0 : 1);
    order.push_back(&calls[rank][next[rank]++]);
  }
}

TEST_F(CrashOfTwoTest, APowerCutAnywhereInAnyOrderLeavesTheOldCheckpointOrTheNewOne) {
  std::mt19937 random(4);
  int images = 0;
  std::set<std::string> seen_orders;
  for (const Existing existing : {Existing::refuse, Existing::replace}) {
    const bool replaces = existing == Existing::replace;
    for (int recording = 0; recording < 4; ++recording) {
      DiskModel disk;
      if (replaces) save_alone(disk, 1);
      const DiskImage before = disk.seen();
      disk.take_at_most(1 + random() % 300);
      const auto calls = recorded_save(disk, existing);
      ASSERT_EQ(number_on(disk), 2);
      ASSERT_GT(calls[1].size(), 3U);
      for (int order = 0; order < static_cast<int>(60 / one_in(5)); ++order) {
        DiskModel replayed(before);
        Replay replay{replayed};
        std::string ranks;
        bool is_over = false;
        const auto check = [&] {
          DiskModel after(replayed.after_cut(random));
          const double number = number_on(after);
          ASSERT_TRUE(number == 2 || (!is_over && number == (replaces ? 1 : 0))) << number;
          ++images;
        };
        replayed.before_change = check;
        for (const KeptCall* const call : some_order(calls, random)) {
          ranks += call >= calls[1].data() && call < calls[1].data() + calls[1].size() ? '1' : '0';
          call->make(replay);
          if (HasFatalFailure()) return;
        }
        replayed.before_change = nullptr;
        is_over = true;
        for (int i = 0; i < 5; ++i) check();
        EXPECT_EQ(number_on(replayed), 2);
        seen_orders.insert(ranks);
      }
    }
  }
  EXPECT_GT(images, 20000 / static_cast<int>(one_in(5)));
  EXPECT_GT(seen_orders.size(), 200 / one_in(5));
  RecordProperty("images", images);
}

// The images are worth something: they show what a save would do that left out what it may not.
TEST_F(CrashOfTwoTest, WithoutOneRanksSyncsSomePowerCutLeavesNeither) {
  std::mt19937 random(5);
  DiskModel disk;
  save_alone(disk, 1);
  const DiskImage before = disk.seen();
  const auto calls = recorded_save(disk, Existing::replace);
  int neither = 0;
  for (int order = 0; order < 20; ++order) {
    DiskModel replayed(before);
    Replay replay{replayed};
    for (const KeptCall* const call : some_order(calls, random)) {
      const bool is_seconds = call >= calls[1].data() && call < calls[1].data() + calls[1].size();
      if (!is_seconds || !call->is_sync) call->make(replay);
    }
    for (int image = 0; image < 20; ++image) {
      DiskModel after(replayed.after_cut(random));
      neither += number_on(after) == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(neither, 0);
}

TEST_F(CrashOfTwoTest, WhicheverCallOfWhicheverRankFailsBothHearTheSame) {
  for (const int error : {ENOSPC, EIO, EINTR}) {
    for (const int culprit : {0, 1}) {
      for (const bool replaces : {false, true}) {
        int succeeded = 0, failed = 0;
        for (int call = 1;; ++call) {
          DiskModel disk;
          if (replaces) save_alone(disk, 1);
          disk.take_at_most(300);
          std::array<PassedCalls, 2> passed = {PassedCalls(disk), PassedCalls(disk)};
          passed[static_cast<std::size_t>(culprit)].fail(call, error);
          const auto thrown = test::run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
            double own = 2;
            const DeviceMesh mesh(group, {2});
            save("/disk/a", shared_state(mesh, own),
                 {.group = group,
                  .existing = replaces ? Existing::replace : Existing::refuse,
                  .files = &passed[static_cast<std::size_t>(group.rank())]});
          });
          const bool has_failed = thrown[0].has_value();
          ASSERT_EQ(thrown[1].has_value(), has_failed) << "call " << call << " of " << culprit;
          if (has_failed) {
            EXPECT_EQ(thrown[0]->code, ErrorCode::kSystem) << thrown[0]->text;
            EXPECT_EQ(thrown[0]->text, thrown[1]->text);
            EXPECT_NE(thrown[0]->text.find("rank " + std::to_string(culprit) + ": "),
                      std::string::npos)
                << thrown[0]->text;
          }
          const double old = replaces ? 1 : 0;
          EXPECT_EQ(number_on(disk), has_failed ? old : 2) << "call " << call << " of " << culprit;
          ++(has_failed ? failed : succeeded);
          if (passed[static_cast<std::size_t>(culprit)].calls() < call) break;
        }
        EXPECT_GT(succeeded, 0);
        EXPECT_TRUE(error == EINTR || failed > 3) << failed;
      }
    }
  }
}

TEST_F(CrashOfTwoTest, ALoadOfWhichACallOfOneRankFailsWritesNothingOnEither) {
  DiskModel disk;
  save_alone(disk, 2);
  disk.take_at_most(100);
  for (const int error : {EIO, EINTR, ENOMEM}) {
    for (const int culprit : {0, 1}) {
      int failed = 0;
      for (int call = 1;; ++call) {
        std::array<PassedCalls, 2> passed = {PassedCalls(disk), PassedCalls(disk)};
        passed[static_cast<std::size_t>(culprit)].fail(call, error);
        std::array<double, 2> left = {-1, -1};
        const auto thrown = test::run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
          const DeviceMesh mesh(group, {2});
          double number = 7;
          const auto rank = static_cast<std::size_t>(group.rank());
          const Tensor cut = full({6}, 7, mesh, {Shard(0)});
          const Tensor columns = full({2, 4}, 7, mesh, {Replicate()});
          const State state{{"cut", cut}, {"columns", columns}, {"number", number}};
          const auto look = [&] {
            left[rank] = number;
            for (const Tensor& one : {cut, columns})
              for (const double element : Tensor(one.local()).to_vector())
                if (element != number) left[rank] = -1;
          };
          try {
            load("/disk/a", state, {.group = group, .files = &passed[rank]});
          } catch (...) {
            look();
            throw;
          }
          look();
        });
        const bool has_failed = thrown[0].has_value();
        ASSERT_EQ(thrown[1].has_value(), has_failed) << "call " << call << " of " << culprit;
        for (const double number : left) EXPECT_EQ(number, has_failed ? 7 : 2);
        failed += has_failed ? 1 : 0;
        if (passed[static_cast<std::size_t>(culprit)].calls() < call) break;
      }
      EXPECT_GT(failed, 0);
    }
  }
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
