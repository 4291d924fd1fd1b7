#include "dtrun/base/json.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_json.h"

namespace dtrun::base {
namespace {

class JsonFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "dtrun_json_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

TEST(JsonTest, AMistakeIsNamedWithItsSourceAndPlace) {
  try {
    parse_json("{\"a\": 1,}", "plan.json");
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    EXPECT_NE(std::string(error.what()).find("plan.json"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("at byte"), std::string::npos);
  }
}

TEST(JsonTest, ANameThatStandsTwiceIsAMistakeWhereNamesAreUnique) {
  EXPECT_EQ(boost::json::serialize(parse_unique_json(R"({"a:":{"a:":":"},"\\\":":[{}]})", "x")),
            R"({"a:":{"a:":":"},"\\\":":[{}]})");
  for (const char* text : {R"({"a":1,"a":1})", R"([{"b":{"a":1,"\u0061":2}}])"}) {
    try {
      parse_unique_json(text, "the header");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      EXPECT_NE(std::string(error.what()).find("the header"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("stands twice"), std::string::npos);
    }
  }
}

TEST(JsonTest, AnIncompleteTextIsAMistake) {
  EXPECT_THROW(parse_json("{\"a\": ", "x"), Error);
}

TEST_F(JsonFileTest, WhatIsWrittenIsReadBackAndNothingElseIsLeft) {
  write_file_atomically(path("a.json"), "{\"n\": 3}");
  write_file_atomically(path("a.json"), "{\"n\": 4}");
  EXPECT_EQ(read_json_file(path("a.json")).at("n").as_int64(), 4);
  EXPECT_EQ(files(), 1u);
}

TEST_F(JsonFileTest, AMissingFileAndAMissingFolderAreErrors) {
  try {
    read_json_file(path("none.json"));
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
  EXPECT_THROW(write_file_atomically(path("no/such/folder.json"), "{}"), Error);
}

TEST_F(JsonFileTest, OnAFullDiskTheOldFileStaysAndNoPartIsLeft) {
  if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=16k") != 0)
    GTEST_SKIP() << "needs root, to mount a small tmpfs";
  write_file_atomically(path("a.json"), "{\"old\": true}");
  EXPECT_THROW(write_file_atomically(path("a.json"), std::string(1 << 20, ' ')), Error);
  EXPECT_TRUE(read_json_file(path("a.json")).as_object().contains("old"));
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(::umount(folder_.c_str()), 0);
}

TEST_F(JsonFileTest, NothingIsWaitedForAndNoMoreThanAMebibyteIsRead) {
  const auto why = [&](const std::string& name) -> std::string {
    try {
      read_json_file(path(name));
    } catch (const Error& error) {
      return error.code() == ErrorCode::kProtocol ? error.summary() : "another code";
    }
    return "no Error was thrown";
  };
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(why("fifo"), path("fifo") + " is no regular file");
  std::filesystem::create_directory(path("folder"));
  EXPECT_EQ(why("folder"), path("folder") + " is no regular file");
  std::ofstream(path("long")) << '"' << std::string(kMostJsonBytes, 'x') << '"';
  EXPECT_EQ(why("long"), path("long") + " is longer than 1048576 bytes");
}

TEST_F(JsonFileTest, WhoIsKilledWhileItWritesLeavesNothing) {
  const int unnamed = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (unnamed < 0) GTEST_SKIP() << "the file system of " << folder_ << " has no O_TMPFILE";
  ::close(unnamed);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit most{4096, 4096}, no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::setrlimit(RLIMIT_FSIZE, &most);  // SIGXFSZ at the 4097th byte
    write_file_atomically(path("a.json"), std::string(1 << 20, ' '));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace dtrun::base
