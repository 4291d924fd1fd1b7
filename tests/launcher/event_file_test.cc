// --events FILE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "dtrun/base/json.h"
#include "launcher/launcher_job.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using testing_support::Command;
using testing_support::CommandResult;

std::vector<boost::json::object> events_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<boost::json::object> events;
  for (std::string line; std::getline(file, line);)
    events.push_back(base::parse_json(line, "an event").as_object());
  return events;
}

std::vector<std::string> names_of(const std::vector<boost::json::object>& events) {
  std::vector<std::string> names;
  for (const boost::json::object& event : events) names.emplace_back(event.at("event").as_string());
  return names;
}

TEST(EventFileTest, ARestartedJobTellsItsRoundsItsRanksAndItsFailures) {
  LauncherJob job;
  const std::string path = job.folder() + "/events";
  // In the second round all ranks end well.
  const CommandResult result =
      job.run({"--events=" + path, "--nproc_per_node=2", "--max_restarts=1", "sh", "-c",
               "exit $((RANK - RANK * TORCHELASTIC_RESTART_COUNT))"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const auto events = events_in(path);
  ASSERT_THAT(names_of(events),
              ElementsAre("job_start", "round_start", "ranks_start", "failure", "rank_end",
                          "rank_end", "round_end", "round_start", "ranks_start", "rank_end",
                          "rank_end", "round_end", "job_end"));
  EXPECT_EQ(events[0].at("program"), "sh");
  EXPECT_EQ(events[0].at("max_restarts"), 1);
  EXPECT_EQ(events[2].at("local_ranks"), 2);
  EXPECT_GT(events[2].at("seconds").as_double(), 0);
  EXPECT_EQ(events[3].at("rank"), 1);
  EXPECT_THAT(std::string(events[3].at("cause").as_string()), HasSubstr("exit code 1"));
  EXPECT_EQ(events[6].at("success"), false);
  EXPECT_EQ(events[7].at("restarts"), 1);
  EXPECT_EQ(events[7].at("world_size"), 2);
  EXPECT_EQ(events[11].at("success"), true);
  EXPECT_EQ(events[12].at("exitcode"), 0);
  for (const boost::json::object& event : events) {
    EXPECT_EQ(event.at("job"), events[0].at("job"));
    EXPECT_EQ(event.at("time").as_string().size(), std::string("2026-11-26T13:05:09.125Z").size());
  }
}

TEST(EventFileTest, AgentsThatShareTheFileWriteWholeLines) {
  LauncherJob job;
  const std::string path = job.folder() + "/events";
  const testing_support::OwnPort port;
  const auto start = [&](const std::string& node) {
    return job.start({"--events=" + path, "--nnodes=2", "--node_rank=" + node,
                      "--master_addr=127.0.0.1", "--master_port=" + port.text(),
                      "--nproc_per_node=8", "true"});
  };
  Command second = start("1"), first = start("0");
  EXPECT_EQ(first.finish().exit_code, 0);
  EXPECT_EQ(second.finish().exit_code, 0);
  std::vector<std::int64_t> ranks;
  for (const boost::json::object& event : events_in(path))
    if (event.at("event") == "rank_end") {
      ranks.push_back(event.at("rank").as_int64());
      EXPECT_EQ(event.at("node"), ranks.back() / 8);
    }
  EXPECT_THAT(ranks, UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

TEST(EventFileTest, AFileThatCannotBeOpenedStartsNothing) {
  LauncherJob job;
  const std::string path = job.folder() + "/absent/events";
  const CommandResult result = job.run({"--events=" + path, "echo", "started"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("cannot write --events=" + path));
  EXPECT_THAT(result.err, HasSubstr("No such file or directory"));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(EventFileTest, AFullDiskIsToldOnceAndTheJobGoesOn) {
  LauncherJob job;
  const CommandResult result = job.run({"--events=/dev/full", "echo", "started"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "started\n");
  EXPECT_EQ(result.err, "no more events are written to /dev/full: No space left on device\n");
}

}  // namespace
}  // namespace dtrun::launcher
