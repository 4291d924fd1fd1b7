// AsyncSaver: what is saved is the state as it was at the call, whatever the training does
// meanwhile.
#include "dtrun/dtensor/checkpoint/async_saver.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/series.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/rendezvous/hash_store.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;
namespace fs = std::filesystem;

/// A disk that does not sync before it is told to.
class SlowDisk : public SystemFileCalls {
 public:
  int sync(int fd) override {
    std::unique_lock lock(mutex_);
    may_sync_changed_.wait(lock, [&] { return may_sync_; });
    return SystemFileCalls::sync(fd);
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    may_sync_ = true;
    may_sync_changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable may_sync_changed_;
  bool may_sync_ = false;
};

TEST(AsyncSaverTest, TheTrainingGoesOnWhileItsStateIsSaved) {
  const OwnFolder own;
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = full({4}, 3, mesh, {Shard(0)});
    SlowDisk disk;
    AsyncSaver saver(store, group.rank(), group.size());
    EXPECT_FALSE(saver.wait().has_value());
    saver.save(own / "a", {{"x", x}}, {.files = &disk});
    // The elements change, and the group is used, before a byte is on the disk.
    x.fill_(9);
    EXPECT_EQ(x.full_tensor().to_vector(), std::vector<double>(4, 9));
    EXPECT_TRUE(saver.is_saving());
    EXPECT_FALSE(fs::exists(own / "a"));
    group.barrier();
    disk.let_go();
    EXPECT_EQ(saver.wait()->bytes, 16U);
    EXPECT_FALSE(saver.is_saving());
    load(own / "a", {{"x", x}}, {.group = group});
    EXPECT_EQ(x.full_tensor().to_vector(), std::vector<double>(4, 3));
  });
}

TEST(AsyncSaverTest, ASecondSaveComesAfterTheFirstAndAllAreDoneAtTheEnd) {
  const OwnFolder own;
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const Tensor x = zeros({2});
    {
      AsyncSaver saver(store, group.rank(), group.size());
      for (int i = 0; i < 4; ++i) {
        x.fill_(i);
        saver.save(own / std::to_string(i), {{"x", x}});
      }
    }
    for (int i = 0; i < 4; ++i) {
      load(own / std::to_string(i), {{"x", x}}, {.group = group});
      EXPECT_EQ(x.to_vector(), std::vector<double>(2, i));
    }
  });
}

TEST(AsyncSaverTest, WhatIsCopiedInTheBackgroundMayChangeWhenItIsStaged) {
  const OwnFolder own;
  SlowDisk disk;
  AsyncSaver saver(rendezvous::make_hash_store(), 0, 1);
  saver.wait_staged();
  const Tensor x = full({4}, 3, {});
  std::int64_t step = 5;
  const State state{{"x", x}, {"step", step}};
  saver.save(own / "a", state, {.files = &disk, .staging = Staging::in_background});
  step = 6;  // values are taken at once
  saver.wait_staged();
  x.fill_(9);
  EXPECT_TRUE(saver.is_saving());
  disk.let_go();
  EXPECT_EQ(saver.wait()->bytes, 16U);
  load(own / "a", state);
  EXPECT_EQ(x.to_vector(), std::vector<double>(4, 3));
  EXPECT_EQ(step, 5);
}

TEST(AsyncSaverTest, AStepThatDoesNotWaitForTheCopyFailsTheSave) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the mistake that is found here is a data race";
#endif
  const OwnFolder own;
  AsyncSaver saver(rendezvous::make_hash_store(), 0, 1);
  const nn::Linear layer(8, 8);
  optim::Adam optimizer(layer->parameters(), {.lr = 1});
  const auto backward = [&] { sum(layer(ones({1, 8}))).backward(); };
  backward();
  optimizer.step();
  // A state of the parameters, one of the optimizer alone.
  const Tensor much = zeros({1 << 24});
  for (const State& state : {State{{"model", layer}, {"much", much}},
                             State{{"optimizer", optimizer}, {"with", layer}, {"much", much}}}) {
    // The copy takes its time, but a loaded machine may let it end before the step.
    std::string told;
    for (int attempt = 0; attempt < 100 && told.empty(); ++attempt) {
      backward();
      saver.save(own / "a", state,
                 {.existing = Existing::replace, .staging = Staging::in_background});
      optimizer.step();
      try {
        saver.wait();
      } catch (const base::Error& error) {
        told = error.what();
      }
    }
    EXPECT_NE(told.find("was written to while it was copied"), std::string::npos) << told;
    EXPECT_NE(told.find("wait_staged() before optimizer.step()"), std::string::npos) << told;
  }
}

TEST(AsyncSaverTest, RanksStayInStepWhateverFollowsASaveAndWhicheverCopyFails) {
  const OwnFolder own;
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    AsyncSaver saver(store, group.rank(), group.size());
    const auto later = [&](const Tensor& x, const std::string& name,
                           std::function<void()> then = nullptr) {
      saver.save(own / name, {{"x", x}},
                 {.staging = Staging::in_background, .then = std::move(then)});
    };
    later(ones({2}), "a", [&] {
      if (group.rank() == 1) throw std::runtime_error("of no consequence");
    });
    EXPECT_TRUE(saver.wait().has_value());
    later(group.rank() == 0 ? Tensor() : ones({2}), "b");
    saver.wait_staged();
    expect_refused([&] { saver.wait(); }, "rank 0: a checkpoint cannot have \"x\"");
    // The copies' memory is used again, where it fits.
    for (const Tensor& x : {full({2}, 4, {}), full({3}, 5, {}), full({3}, 6, {.dtype = DType::f64}),
                            full({3}, 7, {})}) {
      const std::string name = std::to_string(x.to_vector()[0]);
      later(x, name);
      saver.wait();
      const Tensor found = zeros(x.shape(), {.dtype = x.dtype()});
      load(own / name, {{"x", found}}, {.group = group});
      EXPECT_EQ(found.to_vector(), x.to_vector());
    }
  });
}

// Series prunes when the new checkpoint is there, and not before.
TEST(AsyncSaverTest, ASeriesKeepsTheLastFewOfThoseThatAreSavedInTheBackground) {
  const OwnFolder own;
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    Series series(own / "runs", {.keep = 2, .group = group});
    const Tensor x = zeros({2});
    AsyncSaver saver(store, group.rank(), group.size());
    for (int step = 1; step <= 5; ++step) {
      x.fill_(step);
      series.async_save(step, {{"x", x}}, saver,
                        step % 2 == 0 ? Staging::in_background : Staging::at_once);
      saver.wait_staged();
    }
    saver.wait();
    group.barrier();
    EXPECT_EQ(series.steps(), (std::vector<std::int64_t>{4, 5}));
    EXPECT_EQ(series.load_last({{"x", x}}), 5);
    EXPECT_EQ(x.to_vector(), std::vector<double>(2, 5));
  });
}

TEST(AsyncSaverTest, AnErrorIsThrownByTheNextCallOnAllRanks) {
  const OwnFolder own;
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    AsyncSaver saver(store, group.rank(), group.size());
    saver.save(own / "a", {{"x", group.rank() == 1 ? Tensor() : ones({2})}});
    expect_refused([&] { saver.wait(); }, "rank 1: a checkpoint cannot have \"x\"");
    saver.save(own / "a", {{"x", ones({2})}});
    EXPECT_TRUE(saver.wait().has_value());
    saver.save(own / "a", {{"x", ones({2})}});
    expect_refused([&] { saver.save(own / "b", {{"x", ones({2})}}); }, "is there already");
    EXPECT_FALSE(saver.wait().has_value());
    // The last one's is logged.
    saver.save(own / "a", {{"x", ones({2})}});
  });
  EXPECT_FALSE(fs::exists(own / "b"));
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
