#include "dtrun/rendezvous/failure_report.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::ErrorCode;
using testing_support::contains;
using testing_support::error_of;

class FailureReportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "report.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/error.json"; }
  void write(const std::string& text) { std::ofstream(path()) << text; }
  std::string text() const {
    std::stringstream all;
    all << std::ifstream(path()).rdbuf();
    return all.str();
  }

  std::string folder_;
};

TEST_F(FailureReportTest, WhatIsWrittenReadsBackTheSame) {
  write_failure_report(path(), {"dtrun::Error: \"no\" peer\n", "main.cc:3", 1700000000, 70});
  const auto report = read_failure_report(path());
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "dtrun::Error: \"no\" peer\n");
  EXPECT_EQ(report->call_stack, "main.cc:3");
  EXPECT_EQ(report->timestamp, 1700000000);
  EXPECT_EQ(report->error_code, 70);
}

TEST_F(FailureReportTest, TheFileIsTorchruns) {
  write_failure_report(path(), {"Type: text", "", 10, 0});
  EXPECT_EQ(
      text(),
      R"({"message":{"message":"Type: text","extraInfo":{"py_callstack":"","timestamp":"10"}}})");
}

TEST_F(FailureReportTest, TheOlderFormIsReadWithATimestampOfEitherKind) {
  write(R"({"message": "text", "timestamp": 10})");
  EXPECT_EQ(read_failure_report(path())->message, "text");
  EXPECT_EQ(read_failure_report(path())->timestamp, 10);
  write(R"({"message": "text", "timestamp": "11"})");
  EXPECT_EQ(read_failure_report(path())->timestamp, 11);
  write(R"({"message": "text"})");
  EXPECT_EQ(read_failure_report(path())->timestamp, 0);
}

TEST_F(FailureReportTest, NoFileIsNoReport) {
  EXPECT_FALSE(read_failure_report(path()));
}

TEST_F(FailureReportTest, AMessageOfAnyBytesMakesAFileThatCanBeRead) {
  write_failure_report(path(),
                       {"bad \xff\xc0\xaf\xed\xa0\x80 good \xc3\xa9 \xf0\x9f\x98\x80", "", 1});
  const std::string lost = "\xef\xbf\xbd";
  EXPECT_EQ(read_failure_report(path())->message,
            "bad " + lost + lost + lost + lost + lost + lost + " good \xc3\xa9 \xf0\x9f\x98\x80");
}

TEST_F(FailureReportTest, AMalformedFileIsAnErrorThatNamesIt) {
  for (const char* bad :
       {"", "{\"message\"", "[]", "{}", R"({"message": 3})", R"({"message": {"extraInfo": {}}})",
        R"({"message": "text", "timestamp": "soon"})",
        R"({"message": {"message": "text", "extraInfo": {"timestamp": 1.5}}})"}) {
    write(bad);
    const auto error = error_of([&] { read_failure_report(path()); });
    ASSERT_TRUE(error) << bad;
    EXPECT_EQ(error->code(), ErrorCode::kProtocol) << bad;
    EXPECT_TRUE(contains(error->summary(), path())) << bad;
  }
}

TEST_F(FailureReportTest, AFolderThatIsNotThereIsAnErrorAndNothingIsLeft) {
  const auto error = error_of([&] {
    write_failure_report(folder_ + "/none/error.json", {"text", "", 1});
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kSystem);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace dtrun::rendezvous
