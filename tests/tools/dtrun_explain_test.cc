// The flight recorder, as its users meet it: dtrun writes what the ranks did last,
// --progress-timeout tells of ranks that do not come, dtrun-explain reads the records, PyTorch's
// too.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "explain/pickle_data.h"
#include "explain/torch_flight.h"
#include "support/command.h"

namespace dtrun::explain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;

class DtrunExplainTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "dtrun_explain.XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  CommandResult job(Words options, const std::string& mode, int ranks = 3) const {
    Words words = {DTRUN_BINARY, "--nproc_per_node=" + std::to_string(ranks)};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {FLIGHT_WORKER_BINARY, mode});
    return testing_support::run_command(words);
  }
  static CommandResult explain(Words arguments) {
    arguments.insert(arguments.begin(), DTRUN_EXPLAIN_BINARY);
    return testing_support::run_command(arguments);
  }
  std::string record() const { return "--flight-recorder=" + path("flights"); }

  std::string folder_;
};

TEST_F(DtrunExplainTest, TheRecordOfAFailedRoundSaysWhoHasNotCome) {
  const CommandResult failed = job({record()}, "fail");
  EXPECT_EQ(failed.exit_code, 3) << failed.describe();
  EXPECT_THAT(failed.err, HasSubstr("dtrun-explain " + path("flights/attempt_0_node_0.json")));
  const CommandResult said = explain({path("flights"), "--last", "2"});
  EXPECT_EQ(said.exit_code, 0) << said.describe();
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("all_reduce #2 of group 'world' (f32 x 8, sum) at "
                              "flight_worker.cc:"),
                    HasSubstr("ranks 0 and 2 waited until it failed; rank 1 has not come; rank 1 "
                              "has ended and last called barrier #1 of group 'world'"),
                    HasSubstr("it ended: rank 1"),
                    HasSubstr("rank 0 (2 operations, the last 2):\n  done    barrier #1"),
                    HasSubstr("\n  failed  all_reduce #2")));
  const CommandResult json = explain({path("flights"), "--json"});
  const boost::json::value findings = base::parse_json(json.out, "stdout").at("findings");
  EXPECT_EQ(findings.at(0).at("kind").as_string(), "missing");
  EXPECT_EQ(findings.at(0).at("ranks"), boost::json::value({1}));
}

TEST_F(DtrunExplainTest, EachFailedRoundHasItsRecordAndAGoodOneHasNone) {
  job({record(), "--max-restarts=1"}, "fail");
  EXPECT_TRUE(fs::exists(path("flights/attempt_0_node_0.json")));
  EXPECT_TRUE(fs::exists(path("flights/attempt_1_node_0.json")));
  EXPECT_THAT(explain({path("flights"), "--round", "0"}).out, HasSubstr("round 0: ranks 0-2\n"));
  EXPECT_THAT(explain({path("flights"), "--round", "7"}).err,
              HasSubstr("there is no record of round 7"));
  fs::remove_all(path("flights"));
  EXPECT_EQ(job({record()}, "none").exit_code, 0);
  EXPECT_FALSE(fs::exists(path("flights")));
}

TEST_F(DtrunExplainTest, AKeptLogFolderHasTheRecordUnlessNoneIsWanted) {
  job({"--log-dir", path("logs")}, "fail");
  const CommandResult said = explain({path("logs")});
  EXPECT_THAT(said.out, HasSubstr("rank 1 has not come")) << said.describe();
  job({"--log-dir", path("quiet"), "--flight-recorder=none"}, "fail");
  EXPECT_THAT(explain({path("quiet")}).err, HasSubstr("there is no flight record in"));
}

TEST_F(DtrunExplainTest, ARecordThatCannotBeWrittenIsTold) {
  write("file", "");
  const CommandResult failed = job({"--flight-recorder=" + path("file/sub")}, "fail");
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.err, HasSubstr("the ranks' last operations are not kept: "));
}

TEST_F(DtrunExplainTest, ARankThatDoesNotComeIsEndedAfterItsTime) {
  // A stopped rank acts on SIGABRT only once it goes on.
  for (const char* mode : {"hang", "stop"}) {
    const CommandResult result =
        job({record(), "--progress-timeout=2s", "--on-progress-timeout=end"}, mode);
    EXPECT_EQ(result.exit_code, 128 + SIGABRT) << result.describe();
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    // By dtrun's handler of crashes, for which a sanitizer has one of its own.
    if (mode == std::string("hang")) {
      EXPECT_THAT(result.err, HasSubstr("main in flight_worker"));
    }
#endif
    EXPECT_THAT(result.err, AllOf(HasSubstr("no progress for 2 s: all_reduce #2 of group "
                                            "'world' (f32 x 8, sum) at flight_worker.cc:"),
                                  HasSubstr("; rank 1 has not come; rank 1 last called barrier")));
  }
}

// The rank comes in the round after that.
TEST_F(DtrunExplainTest, ARankThatDoesNotComeIsRestartedWithTheOthers) {
  const CommandResult result =
      job({record(), "--progress-timeout=6s", "--on-progress-timeout=end", "--max-restarts=1"},
          "hang-once");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("no progress for 6 s: all_reduce #2 of group 'world'"),
                                HasSubstr("rank 1 has not come"), HasSubstr("restart 1 of 1")));
  EXPECT_TRUE(fs::exists(path("flights/attempt_0_node_0.json")));
  EXPECT_FALSE(fs::exists(path("flights/attempt_1_node_0.json")));
}

TEST_F(DtrunExplainTest, TheTimeoutOfACollectiveFailsTheJobAndItsRecordIsKept) {
  const CommandResult result = job({record()}, "timeout");
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err,
              AllOf(testing::ContainsRegex("waited 5(\\.[0-9]+)? s in all_reduce #2 "),
                    HasSubstr("(f32 x 8, sum) at flight_worker.cc:"), HasSubstr("for rank 1")));
  const CommandResult said = explain({path("flights")});
  EXPECT_EQ(said.exit_code, 0) << said.describe();
  EXPECT_THAT(said.out, AllOf(HasSubstr("all_reduce #2 of group 'world' (f32 x 8, sum)"),
                              HasSubstr("rank 1 has not come")));
}

TEST_F(DtrunExplainTest, RanksThatWaitForOneAnotherAreEndedToo) {
  const CommandResult result =
      job({"--progress-timeout=2", "--on-progress-timeout=end"}, "circle", 2);
  EXPECT_EQ(result.exit_code, 128 + SIGABRT) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("ranks 0 and 1 wait for one another; rank 0 waits for rank 1 "
                                    "in recv #1 of group 'world'"));
}

TEST_F(DtrunExplainTest, AReportIsMadeOnceAndEndsNothing) {
  Command command({"sh", "-c", "exec \"$@\" 2>&1", "sh", DTRUN_BINARY, "--nproc_per_node=3",
                   record(), "--progress-timeout=2s", FLIGHT_WORKER_BINARY, "hang"});
  ASSERT_TRUE(command.wait_for_output("no progress for 2 s: "));
  // Where it hangs, by whatever shows stacks here; without a right to look, what the kernel says.
  ASSERT_TRUE(command.wait_for_output("the stack of rank 1, by dtrun stacks:"));
  EXPECT_TRUE(command.wait_for_output("== rank 1 (pid "));
  if (::geteuid() == 0) {
    EXPECT_TRUE(command.wait_for_output("pause"));
  }
  command.signal(SIGQUIT);
  const CommandResult result = command.finish();
  EXPECT_NE(result.exit_code, 128 + SIGABRT);
  const std::size_t first = result.out.find("no progress");
  EXPECT_EQ(result.out.find("no progress", first + 1), std::string::npos) << result.describe();
  // An operator's stop leaves a record as well.
  EXPECT_THAT(explain({path("flights")}).out, HasSubstr("rank 1 has not come"));
}

TEST_F(DtrunExplainTest, ATimeThatIsNoneIsRefused) {
  const CommandResult result = job({"--progress-timeout=soon"}, "none");
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, HasSubstr("must be a time, such as 300 or 5m"));
}

TEST_F(DtrunExplainTest, WhatIsNoRecordIsRefused) {
  EXPECT_EQ(explain({}).exit_code, 64);
  EXPECT_EQ(explain({folder_, "--rounds", "1"}).exit_code, 64);
  EXPECT_THAT(explain({path("nowhere")}).err, HasSubstr("there is no file " + path("nowhere")));
  EXPECT_THAT(explain({write("text", "hello")}).err, HasSubstr("error"));
  EXPECT_THAT(explain({write("other.json", "{\"a\": 1}")}).err,
              HasSubstr("other.json is no flight record"));
  EXPECT_THAT(explain({folder_}).err, HasSubstr("there is no flight record in " + folder_));
  // Other programs' files beside a record.
  write("stats.pkl",
        "\x80\x02"
        "cos\nsystem\n.");
  write("attempt_0_node_0.json", R"({"format": "dtrun flight record 1", "ranks": [{"rank": 0}]})");
  const CommandResult mixed = explain({folder_});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.describe();
  EXPECT_THAT(mixed.err, HasSubstr("warning: passed over: " + path("stats.pkl")));
  EXPECT_THAT(mixed.out, HasSubstr("nobody waits"));
}

// ---- PyTorch's records

// Two ranks over gloo under PyTorch 2.15: rank 0 waits in a broadcast to which rank 1 never comes.
TEST_F(DtrunExplainTest, WhatPyTorchsFlightRecorderHasWrittenIsExplained) {
  for (const char* form : {"pickle_", "json_"}) {
    const std::string end = form == std::string("json_") ? ".json" : "";
    const std::string begin = DTRUN_SOURCE_DIR "/tests/tools/torch_flight/" + std::string(form);
    const CommandResult said = explain({begin + "0" + end, begin + "1" + end});
    EXPECT_EQ(said.exit_code, 0) << said.describe();
    EXPECT_THAT(said.out, AllOf(HasSubstr("broadcast #2 of group '0' (Float x 8)"),
                                HasSubstr("rank 0 has called it; rank 1 has not come; rank 1 last "
                                          "called all_reduce #1 of group '0'")));
  }
  const std::string nameless = write("trace", R"({"entries": []})");
  EXPECT_THAT(explain({nameless}).err, HasSubstr("its name does not end with a rank"));
}

// Four bytes of a length, the least significant one first.
std::string text_opcode(const std::string& text) {
  return std::string("X") + static_cast<char>(text.size()) + std::string(3, '\0') + text;
}

TEST(PickleDataTest, DataIsRead) {
  const std::string begin = "\x80\x02";
  const auto read = [&](const std::string& rest) {
    return boost::json::serialize(parse_pickle(begin + rest + ".", "p"));
  };
  using namespace std::string_literals;
  EXPECT_EQ(read("N"), "null");
  EXPECT_EQ(read("\x88"), "true");
  EXPECT_EQ(read("\x89"), "false");
  EXPECT_EQ(read("J\xff\xff\xff\xff"s), "-1");
  EXPECT_EQ(read("K\xff"s), "255");
  EXPECT_EQ(read("M\x01\x01"s), "257");
  EXPECT_EQ(read("\x8a\x00"s), "0");
  EXPECT_EQ(read("\x8a\x02\x00\xff"s), "-256");
  EXPECT_EQ(read("G\x3f\xf8\x00\x00\x00\x00\x00\x00"s), "1.5E0");
  EXPECT_EQ(read("(K\x01K\x02t"s), "[1,2]");
  EXPECT_EQ(read("K\x01\x85"s), "[1]");
  EXPECT_EQ(read("K\x01K\x02K\x03\x87"s), "[1,2,3]");
  EXPECT_EQ(read("]q\x00(K\x01"
                 "e"s),
            "[1]");
  EXPECT_EQ(read("}q\x00("s + text_opcode("a") + "K\x01u"s), R"({"a":1})");
}

TEST(PickleDataTest, WhatWouldRunCodeOrIsBrokenIsRefused) {
  using namespace std::string_literals;
  const auto error = [](const std::string& bytes) -> std::string {
    try {
      parse_pickle(bytes, "p");
    } catch (const base::Error& caught) {
      return caught.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("\x80\x02"
                    "cos\nsystem\n(" +
                    text_opcode("true") + "tR."),
              HasSubstr("opcode 0x63 is not for data"));
  EXPECT_THAT(error("\x80\x02"
                    "K"),
              HasSubstr("it ends too early"));
  EXPECT_THAT(error("\x80\x02"
                    "."),
              HasSubstr("it takes a value that is not there"));
  EXPECT_THAT(error("\x80\x02"
                    "h\x05."),
              HasSubstr("it recalls what it has not remembered"));
  EXPECT_THAT(error("\x80\x02"
                    "K\x01"
                    "K\x02"
                    "a."),
              HasSubstr("it adds to what is no list"));
  EXPECT_THAT(error("\x80\x02}(K\x01u."), HasSubstr("a key has no value"));
  EXPECT_THAT(error("\x80\x02}(]K\x01u."), HasSubstr("a key is neither a text nor a number"));
  EXPECT_THAT(error("\x80\x02(."), HasSubstr("a mark stands where a value should"));
  EXPECT_THAT(error("\x80\x02\x8a\x09"s + std::string(9, 'x') + "."), HasSubstr("64 bits"));
  // A list that holds itself.
  EXPECT_THAT(error("\x80\x02]q\x00h\x00"
                    "a."s),
              HasSubstr("nested too deep"));
  // Thirty doublings.
  std::string bomb = "\x80\x02]q";
  bomb += '\0';
  for (int i = 1; i < 31; ++i)
    bomb += "](h"s + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "eq" +
            static_cast<char>(i);
  EXPECT_THAT(error(bomb + "."), HasSubstr("too many values"));
}

}  // namespace
}  // namespace dtrun::explain
