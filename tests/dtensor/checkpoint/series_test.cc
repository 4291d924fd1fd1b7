// Series: the last few checkpoints stay, the last complete one is loaded, whatever lies beside it.
#include "dtrun/dtensor/checkpoint/series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "checkpoint/commit.h"
#include "dtensor/checkpoint/disk_model.h"
#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/checkpoint/passed_calls.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/offline.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;
using testing::ElementsAre;
namespace fs = std::filesystem;

TEST(SeriesTest, TheLastFewStayAndTheLastIsLoaded) {
  const OwnFolder own;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    Series series(own / "runs", {.keep = 2, .group = group});
    const Tensor x = zeros({3});
    std::int64_t step = 0;
    const State state{{"x", x}, {"step", step}};
    EXPECT_EQ(series.load_last(state), std::nullopt);
    for (step = 8; step <= 11; ++step) {
      x.fill_(step);
      series.save(step, state);
    }
    x.fill_(0);
    EXPECT_EQ(series.load_last(state), 11);
    EXPECT_EQ(step, 11);
    EXPECT_EQ(x.to_vector(), std::vector<double>(3, 11));
    EXPECT_THAT(series.steps(), ElementsAre(10, 11));
  });
  EXPECT_EQ(std::distance(fs::directory_iterator(own / "runs"), {}), 2);
}

TEST(SeriesTest, DamagedOnesArePassedOver) {
  const OwnFolder own;
  Series series(own / "runs", {.keep = 0});
  const Tensor x = zeros({3});
  for (int step = 1; step <= 5; ++step) {
    x.fill_(step);
    series.save(step, {{"x", x}});
  }
  fs::remove(series.path(5) + "/manifest.json");
  fs::remove(series.path(4) + "/shard-00001-of-00001.safetensors");
  const std::string file = series.path(3) + "/shard-00001-of-00001.safetensors";
  std::string bytes = content_of(file);
  bytes.back() ^= 1;
  write_content(file, bytes);
  fs::create_directory(own / "runs/step-007");  // nobody's
  x.fill_(0);
  EXPECT_EQ(series.load_last({{"x", x}}), 2);
  EXPECT_EQ(x.to_vector(), std::vector<double>(3, 2));
  // They are made again.
  for (int step = 3; step <= 5; ++step) series.save(step, {{"x", x}});
  EXPECT_EQ(series.load_last({{"x", x}}), 5);
  EXPECT_EQ(x.to_vector(), std::vector<double>(3, 2));
}

TEST(SeriesTest, WithoutACompleteOneNothingBegins) {
  const OwnFolder own;
  Series series(own / "runs");
  const Tensor x = ones({3});
  series.save(1, {{"x", x}});
  expect_refused([&] { series.load_last({{"x", zeros({4})}}); }, "\"x\" is f32[3]");
  write_content(series.path(1) + "/manifest.json", "");
  expect_refused(
      [&] {
        series.load_last({{"x", x}});
      },
      "no manifest of a checkpoint", base::ErrorCode::kProtocol);
  expect_refused([&] { Series(own / "runs", {.keep = -1}); }, "keeps -1");
}

TEST(SeriesTest, WhatWasJustSavedStaysBesideLaterOnesThatAreDamaged) {
  const OwnFolder own;
  Series series(own / "runs", {.keep = 3});
  const Tensor x = zeros({1});
  for (const int step : {1000, 2000, 3000, 2}) {
    x.fill_(step);
    series.save(step, {{"x", x}});
    if (step > 2) write_content(series.path(step) + "/manifest.json", "?");
  }
  EXPECT_EQ(series.load_last({{"x", x}}), 2);
  for (int step = 3; step <= 5; ++step) series.save(step, {{"x", x}});
  EXPECT_THAT(series.steps(), ElementsAre(3, 4, 5, 1000, 2000, 3000));
  EXPECT_EQ(series.load_last({{"x", x}}), 5);
}

TEST(SeriesTest, LinksAndWhatOthersPutIntoACheckpointStay) {
  const OwnFolder own;
  Series series(own / "runs", {.keep = 1});
  save(own / "precious", {{"x", ones({1})}});
  fs::create_directory(own / "runs");
  fs::create_directory_symlink("../precious", series.path(1));
  fs::create_directory_symlink("../precious", partial_name(series.path(9), 5));
  series.save(2, {{"x", ones({1})}});
  write_content(series.path(2) + "/notes.txt", "mine");
  for (int step = 3; step <= 4; ++step) series.save(step, {{"x", ones({1})}});
  EXPECT_TRUE(fs::exists(own / "precious/manifest.json"));
  EXPECT_EQ(content_of(series.path(2) + "/notes.txt"), "mine");
  EXPECT_TRUE(fs::exists(series.path(2) + "/manifest.json"));
  EXPECT_THAT(series.steps(), ElementsAre(1, 2, 4));
  // Offline, too.
  SystemFileCalls files;
  EXPECT_THAT(prunable(own / "runs", 1, files), ElementsAre());
  EXPECT_FALSE(remove_checkpoint(series.path(1), files));
  EXPECT_FALSE(remove_checkpoint(series.path(2), files));
  expect_refused([&] { remove_folder(files, series.path(1)); }, "is no folder",
                 base::ErrorCode::kProtocol);
  EXPECT_TRUE(fs::exists(own / "precious/manifest.json"));
}

TEST(SeriesTest, AFolderBehindALinkIsGoneOnWith) {
  const OwnFolder own;
  fs::create_directory(own / "disk");
  fs::create_directory_symlink("disk", own / "runs");
  Series series(own / "runs", {.keep = 2});
  const Tensor x = ones({1});
  for (int step = 1; step <= 3; ++step) series.save(step, {{"x", x}});
  EXPECT_EQ(Series(own / "runs").load_last({{"x", x}}), 3);
  EXPECT_THAT(series.steps(), ElementsAre(2, 3));
  SystemFileCalls files;
  EXPECT_THAT(prunable(own / "runs", 1, files), ElementsAre(series.path(2)));
}

TEST(SeriesTest, WhereNothingCanBeSavedIsToldBeforeTheTraining) {
  const OwnFolder own;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    Series series(own / "a/b/runs", {.group = group});
    series.check_folder();
    series.check_folder();
    EXPECT_EQ(series.load_last({{"x", zeros({1})}}), std::nullopt);
  });
  EXPECT_TRUE(fs::is_directory(own / "a/b/runs"));
  EXPECT_TRUE(fs::is_empty(own / "a/b/runs"));
  write_content(own / "file", "");
  for (const std::string& folder : {own / "file", own / "file/runs"}) {
    const auto thrown = test::run_failing_ranks(
        2, {}, [&](const ProcessGroup& group) { Series(folder, {.group = group}).check_folder(); });
    for (const auto& one : thrown) {
      ASSERT_TRUE(one.has_value());
      EXPECT_NE(one->text.find("no checkpoint can be saved to " + folder + ": rank 0: "),
                std::string::npos)
          << one->text;
    }
  }
}

// Whichever call fails, of whichever rank, both are told, and nothing stays.
TEST(SeriesTest, ACheckOfAFolderLeavesNothing) {
  for (const int culprit : {0, 1}) {
    int failed = 0;
    for (int call = 1;; ++call) {
      DiskModel disk;
      std::array<PassedCalls, 2> passed = {PassedCalls(disk), PassedCalls(disk)};
      passed[static_cast<std::size_t>(culprit)].fail(call, ENOSPC);
      const auto thrown = test::run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
        Series("/disk/runs",
               {.group = group, .files = &passed[static_cast<std::size_t>(group.rank())]})
            .check_folder();
      });
      EXPECT_EQ(thrown[0].has_value(), thrown[1].has_value()) << call;
      failed += thrown[0].has_value() ? 1 : 0;
      const bool is_beyond = passed[static_cast<std::size_t>(culprit)].calls() < call;
      // A call that removes may fail, too; the next check removes what that left.
      Series("/disk/runs", {.files = &disk}).check_folder();
      for (const auto& [path, content] : disk.seen())
        EXPECT_TRUE(path == "/disk" || path == "/disk/runs") << path << " after call " << call;
      if (is_beyond) break;
    }
    EXPECT_GT(failed, 3) << culprit;
  }
}

TEST(SeriesTest, WhatKilledTrainingsLeftIsRemoved) {
  const OwnFolder own;
  Series series(own / "runs", {.keep = 2});
  series.save(1, {{"x", ones({1})}});
  fs::create_directory(partial_name(series.path(7), 5));
  fs::create_directory(partial_name(own / "runs/other", 5));
  series.save(2, {{"x", ones({1})}});
  EXPECT_FALSE(fs::exists(partial_name(series.path(7), 5)));
  EXPECT_TRUE(fs::exists(partial_name(own / "runs/other", 5)));
  // What cannot be removed stays, and does no harm.
  fs::create_directory(series.path(1) + "/notes");
  for (int step = 3; step <= 5; ++step) series.save(step, {{"x", full({1}, step, {})}});
  const Tensor x = zeros({1});
  EXPECT_EQ(series.load_last({{"x", x}}), 5);
  EXPECT_EQ(x.item(), 5);
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
