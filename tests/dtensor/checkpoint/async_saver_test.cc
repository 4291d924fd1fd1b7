// AsyncSaver: what is saved is the state as it was at the call, whatever the training does
// meanwhile.
#include "dtrun/dtensor/checkpoint/async_saver.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
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
