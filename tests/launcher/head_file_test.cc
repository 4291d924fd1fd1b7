// The file through which a job's agents find their head: who gets it, whose it stays, what is left.
#include "meeting/head_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "support/promptness.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

HeadRecord record_at(std::uint16_t port) {
  return make_head_record("job a", "127.0.0.1", port);
}

TEST(HeadRecordTest, IsReadAsItWasWritten) {
  HeadRecord record = make_head_record("a job\n%41\xff", "fe80::1%eth0", 40123);
  EXPECT_EQ(parse_head_record(format_head_record(record)), record);
  EXPECT_NE(make_head_record("a", "h", 1).nonce, make_head_record("a", "h", 1).nonce);
}

TEST(HeadRecordTest, ARecordThatIsNotWholeIsNone) {
  const std::string text = format_head_record(record_at(1));
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(parse_head_record(std::string_view(text).substr(0, size))) << size;
  for (const std::string& other :
       {text + "x", text + text, std::string(kMostHeadRecordBytes + 1, 'x'), "x" + text})
    EXPECT_FALSE(parse_head_record(other));
  const auto with = [&](const std::string& old_text, const std::string& new_text) {
    std::string changed = text;
    return changed.replace(changed.find(old_text), old_text.size(), new_text);
  };
  for (const std::string& changed :
       {with("head 1\n", "head 2\n"), with("port 1\n", "port 0\n"), with("port 1\n", "port x\n"),
        with("port 1\n", "port 65536\n"), with("run_id ", "run_id"), with("job%20a", "job%2"),
        with("job%20a", "job%zz"), with("job%20a", "job a"), with("host 127.0.0.1", "host ")})
    EXPECT_FALSE(parse_head_record(changed)) << changed;
}

class HeadFileTest : public testing::Test {
 protected:
  HeadFileTest() {
    std::string name = testing::TempDir() + "dtrun_head_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ::abort();
    folder_ = name;
    path_ = folder_ + "/head";
    port_ = base::local_port(listener_.get());
  }
  ~HeadFileTest() override { std::filesystem::remove_all(folder_); }

  std::optional<HeadRecord> claim(HeadFile& file) { return claim(file, path_, seconds(5)); }
  std::optional<HeadRecord> claim(HeadFile& file, const std::string& path,
                                  Deadline::Duration patience) {
    return file.claim(
        path, [this] { return record_at(port_); }, Deadline::after(patience));
  }
  std::string error_of_claim(const std::string& path) {
    try {
      HeadFile file;
      claim(file, path, seconds(5));
    } catch (const base::Error& error) {
      return error.what();
    }
    return "no error";
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    return names;
  }
  std::string contents() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // A head in a process of its own, killed by SIGKILL: what it leaves.
  void leave_a_dead_head(std::uint16_t port) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      HeadFile file;
      file.claim(
          path_, [port] { return record_at(port); }, Deadline::after(seconds(5)));
      ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(pid, nullptr, 0);
    ASSERT_FALSE(contents().empty());
  }

  base::UniqueFd listener_ = base::listen_tcp("127.0.0.1", 0);
  std::uint16_t port_ = 0;
  std::string folder_, path_;
};

TEST_F(HeadFileTest, TheFirstHasItAndTheOthersReadWhereItIs) {
  HeadFile first, second;
  EXPECT_EQ(claim(first), std::nullopt);
  EXPECT_TRUE(first.claimed());
  const std::optional<HeadRecord> found = claim(second);
  ASSERT_TRUE(found);
  EXPECT_FALSE(second.claimed());
  EXPECT_EQ(found->port, port_);
  EXPECT_EQ(found->run_id, "job a");
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  HeadFile moved = std::move(first);
  first = HeadFile();
  EXPECT_FALSE(contents().empty());
  moved = HeadFile();
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(HeadFileTest, OneOfTwoThatStartAtOnceHasItAndTheOtherFindsIt) {
  for (int round = 0; round < 20; ++round) {
    if (round % 2 == 1) leave_a_dead_head(1);
    HeadFile files[2];
    std::optional<HeadRecord> found[2];
    std::thread threads[2];
    for (int i = 0; i < 2; ++i) threads[i] = std::thread([&, i] { found[i] = claim(files[i]); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_NE(files[0].claimed(), files[1].claimed()) << round;
    for (int i = 0; i < 2; ++i) {
      EXPECT_NE(files[i].claimed(), found[i].has_value());
      EXPECT_EQ(found[i].value_or(record_at(port_)).port, port_);
    }
    EXPECT_EQ(left().size(), 1U);
  }
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(HeadFileTest, WhatAKilledHeadHasLeftIsTakenOver) {
  leave_a_dead_head(port_);  // even where somebody listens at its address
  HeadFile file;
  EXPECT_EQ(claim(file), std::nullopt);
  EXPECT_EQ(parse_head_record(contents())->agent,
            base::host_name() + ":" + std::to_string(::getpid()));
  EXPECT_EQ(left().size(), 1U);
}

TEST_F(HeadFileTest, AHeadThatLivesAndIsNotReachedKeepsItsFile) {
  listener_.reset();
  HeadFile first, second;
  claim(first);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(claim(second, path_, std::chrono::milliseconds(50)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, testing_support::kPatience);
}

TEST_F(HeadFileTest, WhatIsNotOursIsLeftAsItIs) {
  const std::string record = format_head_record(record_at(port_));
  // An empty one, too: that it is there may mean something to somebody.
  for (const std::string& text :
       {std::string(), std::string("my thesis"), record.substr(0, record.size() - 1)}) {
    std::ofstream(path_) << text;
    EXPECT_THAT(error_of_claim(path_), AllOf(HasSubstr("is not a file through which a job meets"),
                                             HasSubstr("left as it is")));
    EXPECT_EQ(contents(), text);
  }
  EXPECT_EQ(left().size(), 1U);
}

// As root, what is no file would be replaced as easily: only in a folder of the test's own.
TEST_F(HeadFileTest, WhatIsNoRegularFileIsNotEvenOpened) {
  const std::string device = folder_ + "/device", pipe = folder_ + "/pipe",
                    link = folder_ + "/link", nowhere = folder_ + "/nowhere";
  std::vector<std::string> paths = {folder_, pipe, link, nowhere};
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(folder_ + "/record") << format_head_record(record_at(1));
  std::filesystem::create_symlink(folder_ + "/record", link);
  std::filesystem::create_symlink(folder_ + "/absent", nowhere);
  if (::mknod(device.c_str(), S_IFCHR | 0600, ::makedev(1, 3)) == 0) paths.push_back(device);
  const auto before = left().size();
  for (const std::string& path : paths) {
    struct stat status_before {
    }, status{};
    ASSERT_EQ(::lstat(path.c_str(), &status_before), 0);
    EXPECT_THAT(error_of_claim(path), HasSubstr("it is no regular file")) << path;
    ASSERT_EQ(::lstat(path.c_str(), &status), 0) << path;
    EXPECT_EQ(status.st_ino, status_before.st_ino) << path;
  }
  EXPECT_EQ(left().size(), before);
}

TEST_F(HeadFileTest, APathThatCannotBeIsNamed) {
  EXPECT_THAT(error_of_claim(folder_ + "/no/head"),
              AllOf(HasSubstr("/no/head"), HasSubstr("ENOENT"), HasSubstr("on all nodes")));
  EXPECT_THAT(error_of_claim("/proc/head"), HasSubstr("/proc/head"));
  EXPECT_THAT(error_of_claim("/proc/version/head"), HasSubstr("ENOTDIR"));
}

TEST_F(HeadFileTest, AFolderThatMayNotBeWrittenToOrIsFullIsNamedAndNothingIsLeft) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small file system";
  const std::string small = folder_ + "/small";
  std::filesystem::create_directory(small);
  if (::mount("none", small.c_str(), "tmpfs", 0, "size=4096,nr_inodes=20") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs here";
  std::ofstream(small + "/filler") << std::string(4096, 'x');
  EXPECT_THAT(error_of_claim(small + "/head"), AllOf(HasSubstr("write"), HasSubstr("ENOSPC")));
  EXPECT_FALSE(std::filesystem::exists(small + "/head"));
  std::filesystem::remove(small + "/filler");
  EXPECT_TRUE(std::filesystem::is_empty(small));
  ::mount("none", small.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr);
  EXPECT_THAT(error_of_claim(small + "/head"), HasSubstr("EROFS"));
  ::umount2(small.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace dtrun::launcher
