// Power cuts, failing calls and damaged bytes: what is loaded is the old checkpoint or the new one,
// never a mixture, never neither.
#include <gtest/gtest.h>

#include <algorithm>

#include "dtensor/checkpoint/disk_model.h"
#include "dtensor/refusal.h"
#include "dtrun/base/log.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/series.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using base::Error;
using base::ErrorCode;
using testing_support::one_in;

/// A state that has one number everywhere.
struct Content {
  explicit Content(double number, std::int64_t size = 5)
      : a(full({size}, number, {})),
        b(full({2, 3}, number, {.dtype = DType::f64})),
        value(number) {}
  State state() { return {{"a", a}, {"b", b}, {"value", value}}; }
  /// The number that all of it has; -1: a mixture.
  double number() const {
    for (const double one : a.to_vector())
      if (one != value) return -1;
    for (const double one : b.to_vector())
      if (one != value) return -1;
    return value;
  }
  Tensor a, b;
  double value;
};

/// What the disk gives; 0: no checkpoint.
double loaded(DiskModel& disk, const std::string& folder, std::int64_t size = 5) {
  Content content(0, size);
  try {
    load(folder, content.state(), {.files = &disk});
  } catch (const Error&) {
    EXPECT_EQ(content.number(), 0) << "a load that failed has written";
    return 0;
  }
  return content.number();
}
double last_loaded(DiskModel& disk) {
  Content content(0);
  Series series("/disk/runs", {.files = &disk});
  return series.load_last(content.state()) ? content.number() : 0;
}

class CrashTest : public testing::Test {
 protected:
  // What is passed over is told, thousands of times.
  CrashTest() { base::log::set_levels("-dtensor"); }
  ~CrashTest() override { base::log::set_levels(""); }
};

TEST_F(CrashTest, APowerCutAnywhereLeavesTheOldCheckpointOrTheNewOne) {
  std::mt19937 random(1);
  int images = 0;
  for (int round = 0; round < static_cast<int>(500 / one_in(5)); ++round) {
    for (const Existing existing : {Existing::refuse, Existing::replace}) {
      const bool replaces = existing == Existing::replace;
      DiskModel disk;
      disk.take_at_most(1 + random() % 400);
      const auto saved = [&](double number) {
        save("/disk/a", Content(number).state(), {.existing = existing, .files = &disk});
      };
      if (replaces) saved(1);
      bool is_over = false;
      const auto check = [&] {
        const DiskImage image = disk.after_cut(random);
        DiskModel after(image);
        const double number = loaded(after, "/disk/a");
        const double old = replaces ? 1 : 0;
        ASSERT_TRUE(number == 2 || (!is_over && number == old)) << number;
        ++images;
      };
      disk.before_change = check;
      saved(2);
      is_over = true;
      for (int i = 0; i < 5; ++i) check();
    }
  }
  EXPECT_GT(images, 20000 / static_cast<int>(one_in(5)));
}

// Files of several blocks, which a thread writes past the page cache.
TEST_F(CrashTest, APowerCutInALargeSaveLeavesTheOldCheckpointOrTheNewOne) {
  constexpr std::int64_t kSize = 1'400'003;
  std::mt19937 random(3);
  int images = 0;
  for (int round = 0; round < static_cast<int>(10 / one_in(5)); ++round) {
    DiskModel disk;
    save("/disk/a", Content(1, kSize).state(), {.files = &disk});
    disk.before_change = [&] {
      DiskModel after(disk.after_cut(random));
      const double number = loaded(after, "/disk/a", kSize);
      ASSERT_TRUE(number == 1 || number == 2) << number;
      ++images;
    };
    save("/disk/a", Content(2, kSize).state(), {.existing = Existing::replace, .files = &disk});
    disk.before_change = nullptr;
    ASSERT_EQ(loaded(disk, "/disk/a", kSize), 2);
    ASSERT_GT(disk.bytes_written_directly(), 2 * kSize * sizeof(float) * 99 / 100);
  }
  EXPECT_GT(images, 150 / static_cast<int>(one_in(5)));
}

TEST_F(CrashTest, APowerCutInASeriesLosesNoMoreThanTheStepsSinceTheLastCheckpoint) {
  std::mt19937 random(2);
  int images = 0;
  for (int round = 0; round < 100; ++round) {
    DiskModel disk(DiskImage{{"/disk", std::nullopt}});
    Series series("/disk/runs", {.keep = 2, .files = &disk});
    double saved = 0;
    disk.before_change = [&] {
      const DiskImage image = disk.after_cut(random);
      DiskModel after(image);
      const double number = last_loaded(after);
      ASSERT_TRUE(number == saved || number == saved + 1) << number << " after " << saved;
      ++images;
    };
    for (int step = 1; step <= 5; ++step) {
      series.save(step, Content(step).state());
      saved = step;
    }
  }
  EXPECT_GT(images, 5000);
}

TEST_F(CrashTest, WhicheverCallFailsTheOldCheckpointStaysOrTheNewOneIsThere) {
  for (const int error : {ENOSPC, EIO, EINTR}) {
    for (const bool replaces : {false, true}) {
      int succeeded = 0, failed = 0;
      for (int call = 1;; ++call) {
        DiskModel disk;
        disk.take_at_most(300);
        if (replaces) save("/disk/a", Content(1).state(), {.files = &disk});
        disk.fail(call, error);
        bool has_failed = false;
        try {
          save("/disk/a", Content(2).state(),
               {.existing = replaces ? Existing::replace : Existing::refuse, .files = &disk});
        } catch (const Error& thrown) {
          EXPECT_EQ(thrown.code(), ErrorCode::kSystem) << thrown.what();
          has_failed = true;
        }
        const bool is_beyond = disk.calls() < call;
        disk.fail(0, 0);
        const double old = replaces ? 1 : 0;
        EXPECT_EQ(loaded(disk, "/disk/a"), has_failed ? old : 2) << "call " << call;
        ++(has_failed ? failed : succeeded);
        if (is_beyond) break;
      }
      EXPECT_GT(succeeded, 0);
      if (error == EINTR) {
        // Only a lock, a listing or a status that is interrupted is an error.
        EXPECT_GT(succeeded, failed);
      } else {
        EXPECT_GT(failed, succeeded);
      }
    }
  }
}

TEST_F(CrashTest, ALoadOfWhichACallFailsWritesNothing) {
  for (const int error : {EIO, EINTR, ENOMEM}) {
    int failed = 0;
    for (int call = 1;; ++call) {
      DiskModel disk;
      save("/disk/a", Content(2).state(), {.files = &disk});
      disk.take_at_most(100);
      disk.fail(call, error);
      const double number = loaded(disk, "/disk/a");
      if (disk.calls() < call) {
        EXPECT_EQ(number, 2);
        break;
      }
      EXPECT_TRUE(number == 0 || number == 2);
      failed += number == 0 ? 1 : 0;
    }
    EXPECT_GT(failed, 0);
  }
}

// 100,000 bits, each by itself.
TEST_F(CrashTest, EveryFlippedBitIsFound) {
  constexpr std::size_t kEvery = testing_support::one_in(61);
  DiskModel disk;
  Content content(2);
  const Tensor many = randn({3000}, RandomKey{1, 2});
  State state = content.state();
  state.add({"many", many});
  save("/disk/a", state, {.files = &disk});
  content.a.fill_(0);
  content.b.fill_(0);
  content.value = 0;
  many.fill_(0);
  const DiskImage whole = disk.seen();
  std::size_t flipped = 0;
  for (const auto& [path, bytes] : whole) {
    if (!bytes) continue;
    for (std::size_t bit = 0; bit < bytes->size() * 8; bit += kEvery) {
      DiskImage image = whole;
      (*image[path])[bit / 8] ^= static_cast<char>(1 << bit % 8);
      DiskModel damaged(image);
      EXPECT_THROW(load("/disk/a", state, {.files = &damaged}), Error) << path << ", bit " << bit;
      if (HasFailure()) return;
      ++flipped;
    }
  }
  EXPECT_EQ(content.number(), 0) << "a load that failed has written";
  EXPECT_EQ(many.to_vector(), std::vector<double>(3000, 0)) << "a load that failed has written";
  EXPECT_GT(flipped, 100'000 / kEvery);
}

TEST_F(CrashTest, EveryCutAndEveryByteMoreIsFound) {
  DiskModel disk;
  save("/disk/a", Content(2).state(), {.files = &disk});
  const DiskImage whole = disk.seen();
  for (const auto& [path, content] : whole) {
    if (!content) continue;
    for (std::size_t bytes = 0; bytes < content->size(); ++bytes) {
      DiskImage image = whole;
      image[path]->resize(bytes);
      DiskModel damaged(image);
      ASSERT_EQ(loaded(damaged, "/disk/a"), 0) << path << " of " << bytes << " bytes";
    }
    DiskImage image = whole;
    *image[path] += ' ';
    DiskModel damaged(image);
    ASSERT_EQ(loaded(damaged, "/disk/a"), 0) << path;
  }
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
