// What file systems do to checkpoints: disks that are full or not shared, links, names that others
// have taken. Each is told by name, to all ranks, and the old checkpoint stays.
#include <gtest/gtest.h>

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "checkpoint/open_file.h"
#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/series.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using base::ErrorCode;
using collectives::ProcessGroup;
namespace fs = std::filesystem;

const char* const kShard = "/shard-00001-of-00001.safetensors";

/// A disk of which one call answers so.
struct OddDisk : SystemFileCalls {
  int status(const std::string& path, FileStatus& status) override {
    if (hides_partial && path.ends_with(".partial")) return answer(ENOENT);
    return SystemFileCalls::status(path, status);
  }
  using SystemFileCalls::status;
  int exchange(const std::string& a, const std::string& b) override {
    return exchange_error == 0 ? SystemFileCalls::exchange(a, b) : answer(exchange_error);
  }
  int lock(int fd) override {
    return lock_error == 0 ? SystemFileCalls::lock(fd) : answer(lock_error);
  }
  ssize_t write(int fd, const void* bytes, std::size_t count) override {
    return writes_nothing ? 0 : SystemFileCalls::write(fd, bytes, count);
  }
  static int answer(int error) {
    errno = error;
    return -1;
  }
  bool hides_partial = false;
  bool writes_nothing = false;
  int exchange_error = 0;
  int lock_error = 0;
};

/// Not mounted any more when the test ends, however it does.
struct Mounted {
  std::string path;
  ~Mounted() { ::umount2(path.c_str(), MNT_DETACH); }
};

std::size_t entries_in(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(CheckpointFaultsTest, ARankThatDoesNotSeeTheFolderIsNamed) {
  const OwnFolder own;
  const auto thrown = test::run_failing_ranks(3, {}, [&](const ProcessGroup& group) {
    OddDisk disk;
    disk.hides_partial = group.rank() == 1;
    save(own / "a", {{"x", ones({2})}}, {.group = group, .files = &disk});
  });
  for (const auto& one : thrown) {
    ASSERT_TRUE(one.has_value());
    EXPECT_EQ(one->code, ErrorCode::kNotFound);
    EXPECT_NE(one->text.find("rank 1: this rank does not see"), std::string::npos) << one->text;
  }
  EXPECT_EQ(entries_in(own.path()), 0U);
}

TEST(CheckpointFaultsTest, RanksThatSeeDifferentCheckpointsLoadNone) {
  const OwnFolder own;
  for (const char* name : {"0", "1"}) save(own / name, {{"x", ones({2})}});
  const auto thrown = test::run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
    load(own / std::to_string(group.rank()), {{"x", zeros({2})}}, {.group = group});
  });
  for (const auto& one : thrown) {
    ASSERT_TRUE(one.has_value());
    EXPECT_EQ(one->code, ErrorCode::kDisagreement);
    EXPECT_NE(one->text.find("rank 1 finds another checkpoint"), std::string::npos) << one->text;
  }
}

TEST(CheckpointFaultsTest, AnOldCheckpointStaysWhereItCannotBeExchanged) {
  const OwnFolder own;
  const Tensor x = ones({2});
  save(own / "a", {{"x", x}});
  x.fill_(2);
  OddDisk disk;
  disk.exchange_error = EINVAL;
  expect_refused(
      [&] {
        save(own / "a", {{"x", x}}, {.existing = Existing::replace, .files = &disk});
      },
      "cannot exchange two folders", ErrorCode::kSystem);
  load(own / "a", {{"x", x}});
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(entries_in(own.path()), 1U);
}

TEST(CheckpointFaultsTest, LocksAndWritesThatDoNothingEndTheSave) {
  const OwnFolder own;
  OddDisk taken, broken, idle;
  taken.lock_error = EWOULDBLOCK;
  broken.lock_error = EIO;
  idle.writes_nothing = true;
  const auto saved = [&](FileCalls& files) {
    save(own / "a", {{"x", ones({2})}}, {.files = &files});
  };
  expect_refused([&] { saved(taken); }, "another process has taken", ErrorCode::kSystem);
  expect_refused([&] { saved(broken); }, "cannot lock", ErrorCode::kSystem);
  expect_refused([&] { saved(idle); }, "cannot write to", ErrorCode::kSystem);
  EXPECT_EQ(entries_in(own.path()), 0U);
}

/// Another save looks for remains at the worst moments: before the new folder is opened, before it
/// is locked, and with the lock in its hands while this one asks for it.
struct CleaningNeighbour : SystemFileCalls {
  int make_folder(const std::string& path) override {
    const int result = SystemFileCalls::make_folder(path);
    if (!path.ends_with(".partial")) return result;
    partial = path;
    ++made;
    if (made == 1) fs::remove(path);
    if (made == 3) {
      held = SystemFileCalls::open_folder(path);
      EXPECT_EQ(SystemFileCalls::lock(held), 0);
    }
    return result;
  }
  int lock(int fd) override {
    if (made == 2) fs::remove(partial);
    const int result = SystemFileCalls::lock(fd);
    if (held >= 0) {
      EXPECT_EQ(result, -1);
      fs::remove(partial);
      SystemFileCalls::close(std::exchange(held, -1));
      errno = EWOULDBLOCK;
    }
    return result;
  }
  std::string partial;
  int made = 0;
  int held = -1;
};

TEST(CheckpointFaultsTest, AnotherSaveThatCleansUpTakesNoFolderThatWasJustMade) {
  const OwnFolder own;
  CleaningNeighbour neighbour;
  save(own / "a", {{"x", ones({2})}}, {.files = &neighbour});
  EXPECT_EQ(neighbour.made, 4);
  const Tensor x = zeros({2});
  load(own / "a", {{"x", x}});
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(entries_in(own.path()), 1U);
}

TEST(CheckpointFaultsTest, WithoutLocksASaveSucceedsAndLeavesTheRemainsOfOthers) {
  const OwnFolder own;
  OddDisk lockless;
  lockless.lock_error = ENOLCK;
  const std::string remains = own / ".a.0123456789abcdef.partial";
  fs::create_directory(remains);
  const Tensor x = ones({2});
  save(own / "a", {{"x", x}}, {.files = &lockless});
  EXPECT_TRUE(fs::exists(remains)) << "its save may be under way";
  x.fill_(0);
  load(own / "a", {{"x", x}}, {.files = &lockless});
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 1}));
  // Where there are locks, nobody holds that of the remains.
  save(own / "a", {{"x", x}}, {.existing = Existing::replace});
  EXPECT_FALSE(fs::exists(remains));
}

TEST(CheckpointFaultsTest, NeitherLinksNorPipesNorHugeFilesAreRead) {
  const OwnFolder own;
  const Tensor x = ones({2});
  const auto refused = [&](const char* why) {
    x.fill_(5);
    expect_refused([&] { load(own / "a", {{"x", x}}); }, why, ErrorCode::kProtocol);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{5, 5}));
    fs::remove_all(own / "a");
    save(own / "a", {{"x", x}});
  };
  save(own / "a", {{"x", x}});
  fs::rename(own / (std::string("a") + kShard), own / "elsewhere");
  fs::create_symlink(own / "elsewhere", own / (std::string("a") + kShard));
  refused("is a link");
  fs::remove(own / "a/manifest.json");
  fs::create_symlink(own / "elsewhere", own / "a/manifest.json");
  refused("is a link");
  fs::remove(own / "a/manifest.json");
  ASSERT_EQ(::mkfifo((own / "a/manifest.json").c_str(), 0600), 0);
  refused("is no file");
  fs::remove(own / (std::string("a") + kShard));
  fs::create_directory(own / (std::string("a") + kShard));
  refused("is no file");
  fs::resize_file(own / "a/manifest.json", kMostManifestBytes + 1);
  refused("no such file is so large");
  fs::resize_file(own / "a/manifest.json", 10);
  refused("no manifest of a checkpoint");
}

TEST(CheckpointFaultsTest, AFileInTheWayIsToldAndStays) {
  const OwnFolder own;
  write_content(own / "file", "mine");
  const State state{{"x", ones({2})}};
  expect_refused([&] { save(own / "file/a", state); }, "file", ErrorCode::kSystem);
  expect_refused([&] { save(own / "file", state, {.existing = Existing::replace}); },
                 "it is no folder");
  EXPECT_EQ(content_of(own / "file"), "mine");
  EXPECT_EQ(entries_in(own.path()), 1U);
}

TEST(CheckpointFaultsTest, OnAFullDiskTheOldCheckpointStaysAndNoPartIsLeft) {
  const OwnFolder own;
  if (::mount("tmpfs", own.path().c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "needs root, to mount a small tmpfs";
  const Mounted mounted{own.path()};
  const Tensor x = ones({1000});
  save(own / "a", {{"x", x}});
  expect_refused(
      [&] {
        save(own / "a", {{"x", zeros({1000})}, {"y", zeros({100000})}},
             {.existing = Existing::replace});
      },
      "free space, or save to another file system", ErrorCode::kSystem);
  x.fill_(0);
  load(own / "a", {{"x", x}});
  EXPECT_EQ(x.to_vector()[999], 1);
  EXPECT_EQ(entries_in(own.path()), 1U);
}

TEST(CheckpointFaultsTest, AReadOnlyDiskIsSaidToBeOneAndItsCheckpointsAreRead) {
  const OwnFolder own;
  if (::mount("tmpfs", own.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "needs root, to mount a small tmpfs";
  const Mounted mounted{own.path()};
  const Tensor x = ones({10});
  save(own / "a", {{"x", x}});
  ASSERT_EQ(::mount("", own.path().c_str(), "", MS_REMOUNT | MS_RDONLY, ""), 0);
  for (const char* const name : {"a", "b"})
    expect_refused(
        [&] {
          save(own / name, {{"x", x}}, {.existing = Existing::replace});
        },
        "a folder that this user may write to", ErrorCode::kSystem);
  x.fill_(0);
  load(own / "a", {{"x", x}});
  EXPECT_EQ(x.to_vector()[9], 1);
  EXPECT_EQ(entries_in(own.path()), 1U);
}

TEST(CheckpointFaultsTest, AFolderThatSomebodyRemovesIsMadeAgainAndMissedByALoad) {
  const OwnFolder own;
  const Tensor x = ones({10});
  Series series(own / "runs/7", {});
  series.save(1, {{"x", x}});
  fs::remove_all(own / "runs");
  EXPECT_EQ(series.load_last({{"x", x}}), std::nullopt);
  expect_refused(
      [&] {
        load(own / "runs/7/step-1", {{"x", x}});
      },
      "there is no checkpoint", ErrorCode::kNotFound);
  series.save(2, {{"x", x}});
  EXPECT_EQ(series.load_last({{"x", x}}), 2);
}

TEST(CheckpointFaultsTest, WhatIsNoErrorOfOursIsOneForAllRanks) {
  AloneAgreement alone;
  expect_refused(
      [&] { together(alone, []() -> std::string { throw std::runtime_error("no memory"); }); },
      "no memory", ErrorCode::kSystem);
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
