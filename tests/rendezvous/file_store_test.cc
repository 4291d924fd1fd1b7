// The FileStore: the promises of every store, several processes, their deaths, and files that are
// not as they should be.
#include "dtrun/rendezvous/file_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "rendezvous/early_and_late.h"
#include "rendezvous/store_promises.h"
#include "store/store_file.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using testing::HasSubstr;
using testing_support::error_of;
using Leftover = FileStoreOptions::Leftover;

// A folder of the test's own, removed at its end.
class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "dtrun_store_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ::abort();
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file() const { return path_ + "/store"; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::shared_ptr<Store> fresh_store() {
  static int made = 0;
  static const Folder folder;
  return open_file_store({.path = folder.file() + std::to_string(++made)});
}

// Two handles on one file: what one does the other must see.
class TwoHandles : public Store {
 public:
  TwoHandles() : second_(open_file_store({.path = folder_.file()})) {
    first_ = open_file_store({.path = folder_.file()});
  }
  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    next()->set(key, value, deadline);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return next()->get(key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return next()->try_get(key, deadline);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Deadline deadline) override {
    return next()->add(key, delta, deadline);
  }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired, Deadline deadline) override {
    return next()->compare_set(key, expected, desired, deadline);
  }
  bool check(const std::vector<std::string>& keys, Deadline deadline) override {
    return next()->check(keys, deadline);
  }
  void wait(const std::vector<std::string>& keys, Deadline deadline) override {
    next()->wait(keys, deadline);
  }
  bool delete_key(const std::string& key, Deadline deadline) override {
    return next()->delete_key(key, deadline);
  }
  std::int64_t num_keys(Deadline deadline) override { return next()->num_keys(deadline); }
  void append(const std::string& key, std::string_view value, Deadline deadline) override {
    next()->append(key, value, deadline);
  }
  std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                     Deadline deadline) override {
    return next()->multi_get(keys, deadline);
  }
  void multi_set(const Pairs& pairs, Deadline deadline) override {
    next()->multi_set(pairs, deadline);
  }
  void queue_push(const std::string& key, std::string_view value, Deadline deadline) override {
    next()->queue_push(key, value, deadline);
  }
  std::string queue_pop(const std::string& key, Deadline deadline) override {
    return next()->queue_pop(key, deadline);
  }
  std::int64_t queue_len(const std::string& key, Deadline deadline) override {
    return next()->queue_len(key, deadline);
  }
  std::vector<std::string> list_keys(Deadline deadline) override {
    return next()->list_keys(deadline);
  }
  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override {
    next()->barrier(key, world, deadline);
  }

 private:
  std::shared_ptr<Store> next() { return ++calls_ % 2 == 0 ? first_ : second_; }

  Folder folder_;
  std::shared_ptr<Store> first_;
  std::shared_ptr<Store> second_;
  std::atomic<int> calls_{0};
};

INSTANTIATE_TEST_SUITE_P(
    File, StorePromises,
    testing::Values(
        StoreFactory{"File", fresh_store},
        StoreFactory{"PrefixOverFile", [] { return make_prefix_store("outer", fresh_store()); }},
        StoreFactory{"TwoHandlesOfOneFile", [] { return std::make_shared<TwoHandles>(); }}),
    name_of);

// Forks; the body's process ends with it.
pid_t in_process(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    body();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    ::_exit(1);
  }
  ::_exit(testing::Test::HasFailure() ? 2 : 0);
}

void expect_success(pid_t child) {
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(FileStoreTest, ProcessesCountAndMeetAndTheLastRemovesTheFile) {
  const Folder folder;
  constexpr int kProcesses = 6;
  constexpr int kRounds = 200;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i)
    children.push_back(in_process([&] {
      const auto store = open_file_store({.path = folder.file(), .workers = kProcesses});
      for (int round = 0; round < kRounds; ++round) store->add("n", 1);
      store->barrier("all", kProcesses, late());
      EXPECT_EQ(store->get("n", late()), std::to_string(kProcesses * kRounds));
      store->set("from " + std::to_string(i), "");
      for (int peer = 0; peer < kProcesses; ++peer)
        store->wait({"from " + std::to_string(peer)}, late());
    }));
  for (const pid_t child : children) expect_success(child);
  EXPECT_FALSE(std::filesystem::exists(folder.file()));
}

TEST(FileStoreTest, AProcessThatIsKilledInItsWritesLosesNothingThatItWasToldIsThere) {
  const std::string value(40000, 'v');
  for (int run = 0; run < 25; ++run) {
    const Folder folder;
    const auto store = open_file_store({.path = folder.file()});
    base::Pipe pipe = base::make_pipe();
    const std::string name = fmt::format("run {} step ", run);
    const pid_t child = in_process([&] {
      const auto mine = open_file_store({.path = folder.file()});
      for (int step = 0;; ++step) {
        mine->set(name + std::to_string(step), value);
        if (::write(pipe.write_end.get(), &step, sizeof step) < 0) ::_exit(3);
      }
    });
    pipe.write_end.reset();
    int acknowledged = -1;
    for (int i = 0; i <= run % 5; ++i)
      ASSERT_GT(::read(pipe.read_end.get(), &acknowledged, sizeof acknowledged), 0);
    ::kill(child, SIGKILL);
    // Nobody is held up by its lock, and nothing of its last, half record is in the way.
    store->set("alive", std::to_string(run));
    while (::read(pipe.read_end.get(), &acknowledged, sizeof acknowledged) > 0) continue;
    for (int step = 0; step <= acknowledged; ++step)
      ASSERT_EQ(store->try_get(name + std::to_string(step)), value) << name << step;
    ASSERT_EQ(open_file_store({.path = folder.file()})->get("alive", late()), std::to_string(run));
    ::waitpid(child, nullptr, 0);
  }
}

// Only one of them watches the file. Here it is woken while the writer still has the lock.
TEST(FileStoreTest, AWriteWakesEveryThreadThatWaitsForIt) {
  const Folder folder;
  const auto store = open_file_store({.path = folder.file()});
  StoreFile other(folder.file());
  other.enter(Leftover::keep, late());
  const auto begin = Deadline::Clock::now();
  for (int round = 0; round < 20; ++round) {
    const std::string number = std::to_string(round);
    std::vector<std::thread> threads;
    for (const char* key : {"a", "b", "c"})
      threads.emplace_back([&, key] { store->wait({key + number}, late()); });
    std::this_thread::yield();
    {
      const auto pause = [](Deadline until) { ::poll(nullptr, 0, until.poll_timeout_ms()); };
      const StoreFile::Lock lock(other, StoreFile::Lock::Kind::exclusive, late(), pause);
      other.read_new();
      other.append({{"/a" + number, ""}, {"/b" + number, ""}, {"/c" + number, ""}});
      pause(Deadline::after(std::chrono::milliseconds(3)));
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_LT(Deadline::Clock::now() - begin, std::chrono::seconds(50));
}

TEST(FileStoreTest, ARecordThatIsNotWholeIsNotThereAndTheNextWriterRemovesIt) {
  const Folder folder;
  const auto store = open_file_store({.path = folder.file()});
  store->set("a", "1");
  const std::string whole = contents(folder.file());
  const std::string record("\x02\0\0\0/b\x03\0\0\0two", 13);
  for (std::size_t length = 1; length < record.size(); ++length) {
    std::ofstream(folder.file(), std::ios::app | std::ios::binary) << record.substr(0, length);
    ASSERT_FALSE(store->check({"b"})) << length;
    ASSERT_EQ(open_file_store({.path = folder.file()})->try_get("a"), "1") << length;
    store->set("a", "1");
    ASSERT_FALSE(store->check({"b"})) << length;
  }
  std::ofstream(folder.file(), std::ios::app | std::ios::binary) << record;
  EXPECT_EQ(store->get("b", late()), "two");
}

TEST(FileStoreTest, WhatAnEarlierJobLeftIsDiscardedOnRequestWhereNobodyHasItOpen) {
  const Folder folder;
  expect_success(in_process([&] {
    const auto store = open_file_store({.path = folder.file(), .workers = 2});
    store->set("k", "old");
    ::_exit(0);  // as a process that is killed
  }));
  EXPECT_EQ(open_file_store({.path = folder.file()})->try_get("k"), "old");
  const auto first = open_file_store({.path = folder.file(), .leftover = Leftover::discard});
  EXPECT_EQ(first->try_get("k"), std::nullopt);
  first->set("k", "new");
  const auto second = open_file_store({.path = folder.file(), .leftover = Leftover::discard});
  EXPECT_EQ(second->try_get("k"), "new");
}

TEST(FileStoreTest, TheFileStaysWhereSomebodyMayStillCome) {
  const Folder folder;
  open_file_store({.path = folder.file(), .workers = 2})->set("k", "v");
  EXPECT_EQ(open_file_store({.path = folder.file(), .workers = 2})->try_get("k"), "v");
  EXPECT_FALSE(std::filesystem::exists(folder.file()));
  open_file_store({.path = folder.file()});
  EXPECT_TRUE(std::filesystem::exists(folder.file()));
}

// Both leave as the other one enters for the next round: nobody may be counted in a file that is no
// longer there.
TEST(FileStoreTest, WhoEntersAsTheLastOneLeavesMeetsTheOthers) {
  const Folder folder;
  constexpr int kThreads = 2;
  constexpr int kRounds = 2000;
  const auto come_and_go = [&] {
    for (int round = 0; round < kRounds; ++round) {
      const auto store = open_file_store(
          {.path = folder.file(), .workers = kThreads, .leftover = Leftover::discard});
      store->barrier("round " + std::to_string(round), kThreads, late());
    }
  };
  std::thread other(come_and_go);
  come_and_go();
  other.join();
  EXPECT_FALSE(std::filesystem::exists(folder.file()));
}

TEST(FileStoreTest, AFileThatIsNoStoreIsRefusedAndLeftAsItIs) {
  const Folder folder;
  const std::string data = "somebody's data";
  std::ofstream(folder.file()) << data;
  for (const Leftover leftover : {Leftover::keep, Leftover::discard}) {
    const auto error =
        error_of([&] { open_file_store({.path = folder.file(), .leftover = leftover}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error->what(), HasSubstr("is not a store's file"));
    EXPECT_EQ(contents(folder.file()), data);
  }
}

TEST(FileStoreTest, WhatTheSystemRefusesIsNamedWithThePath) {
  const Folder folder;
  const auto no_folder = error_of([&] { open_file_store({.path = folder.path() + "/no/store"}); });
  ASSERT_TRUE(no_folder);
  EXPECT_EQ(no_folder->code(), ErrorCode::kSystem);
  EXPECT_THAT(no_folder->what(), HasSubstr(folder.path() + "/no/store"));
  EXPECT_THAT(no_folder->what(), HasSubstr("ENOENT"));
  EXPECT_THAT(error_of([&] { open_file_store({.path = folder.path()}); })->what(),
              HasSubstr("EISDIR"));
  const auto store = open_file_store({.path = folder.file()});
  const auto too_long = error_of([&] { store->set("k", std::string((64 << 20) + 1, 'v')); });
  ASSERT_TRUE(too_long);
  EXPECT_EQ(too_long->code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(store->check({"k"}));
  std::filesystem::resize_file(folder.file(), 3);
  const auto shorter = error_of([&] { store->set("k", "v"); });
  ASSERT_TRUE(shorter);
  EXPECT_EQ(shorter->code(), ErrorCode::kProtocol);
  EXPECT_THAT(shorter->what(), HasSubstr("has become shorter"));
}

TEST(FileStoreTest, AFullDiskIsSaidAndTheStoreGoesOn) {
  const Folder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "needs root, to mount a file system of its own";
  {
    const auto store = open_file_store({.path = folder.file()});
    store->set("before", "0");
    store->queue_push("q", "element");
    const auto error = error_of([&] { store->set("big", std::string(100000, 'v')); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kSystem);
    EXPECT_THAT(error->what(), HasSubstr("ENOSPC"));
    EXPECT_FALSE(store->check({"big"}));
    store->set("small", "1");
    EXPECT_EQ(store->get("small", late()), "1");
    // Another process finds all that was there before, and goes on; until it, too, fills the disk.
    expect_success(in_process([&] {
      const auto other = open_file_store({.path = folder.file()});
      EXPECT_EQ(other->get("before", late()), "0");
      EXPECT_EQ(other->queue_pop("q", late()), "element");
      int written = 0;
      const auto full = error_of([&] {
        for (;; ++written) other->set("of the other " + std::to_string(written), "value");
      });
      EXPECT_THAT(full->what(), HasSubstr("ENOSPC"));
      EXPECT_GT(written, 100);
      for (int i = 0; i < written; ++i)
        EXPECT_TRUE(other->check({"of the other " + std::to_string(i)}));
      EXPECT_FALSE(other->check({"of the other " + std::to_string(written)}));
    }));
    EXPECT_EQ(store->get("of the other 0", late()), "value");
    EXPECT_TRUE(error_of([&] { store->add("n", 1); }));
    EXPECT_EQ(store->queue_len("q"), 0);
  }
  EXPECT_EQ(::umount(folder.path().c_str()), 0);
}

TEST(FileStoreTest, AProcessThatIsStoppedInsideAnOperationIsWaitedForUntilTheDeadline) {
  const Folder folder;
  const auto store = open_file_store({.path = folder.file()});
  const base::UniqueFd other(::open(folder.file().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const auto soon = Deadline::after(std::chrono::milliseconds(20));
  const auto error = error_of([&] { store->set("k", "v", soon); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_THAT(error->summary(), testing::MatchesRegex("set timeout after .*s, keys: /k"));
  EXPECT_THAT(error->why(), HasSubstr("cannot lock the store file " + folder.file()));
  const auto opening = error_of([&] {
    open_file_store({.path = folder.file(), .open_timeout = std::chrono::milliseconds(5)});
  });
  ASSERT_TRUE(opening);
  EXPECT_EQ(opening->code(), ErrorCode::kTimeout);
  std::thread waiting([&] { store->set("k", "v", late()); });
  ASSERT_EQ(::flock(other.get(), LOCK_UN), 0);
  waiting.join();
  EXPECT_EQ(store->try_get("k"), "v");
}

// In a user namespace of its own, where the limit is ours to set.
bool deny_inotify() {
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/sys/user/max_inotify_instances") << 0;
  return !base::UniqueFd(::inotify_init1(IN_CLOEXEC));
}

TEST(FileStoreTest, WithoutAnInotifyInstanceTheFileIsLookedAtAgainAndAgain) {
  const Folder folder;
  constexpr int kCannotDeny = 77;
  const pid_t child = in_process([&] {
    if (!deny_inotify()) ::_exit(kCannotDeny);
    const auto waiting = open_file_store({.path = folder.file()});
    const auto setting = open_file_store({.path = folder.file()});
    std::thread thread([&] { setting->set("k", "v"); });
    EXPECT_EQ(waiting->get("k", late()), "v");
    EXPECT_TRUE(
        error_of([&] { waiting->get("none", Deadline::after(std::chrono::milliseconds(120))); }));
    thread.join();
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kCannotDeny) GTEST_SKIP() << "user namespaces cannot be had here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace dtrun::rendezvous
