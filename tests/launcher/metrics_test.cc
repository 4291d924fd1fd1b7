// --metrics-port: what Prometheus gets, and what other clients do not do to it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "agent/metrics_server.h"
#include "dtrun/base/socket.h"
#include "launcher/launcher_job.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::OwnPort;

base::UniqueFd connect(const OwnPort& port) {
  base::UniqueFd socket = base::connect_tcp("127.0.0.1", port.number(),
                                            base::Deadline::after(std::chrono::seconds(10)));
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  return socket;
}

void send_text(const base::UniqueFd& socket, const std::string& text) {
  ASSERT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// Until the server closes.
std::string read_all(const base::UniqueFd& socket) {
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
    text.append(bytes, static_cast<std::size_t>(n));
  return text;
}

std::string ask(const OwnPort& port, const std::string& request) {
  const base::UniqueFd socket = connect(port);
  send_text(socket, request);
  return read_all(socket);
}

// The samples by name and labels. Every family is described once, before its samples.
std::map<std::string, double> scrape(const OwnPort& port) {
  const std::string response = ask(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(response, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  std::istringstream lines(response.substr(response.find("\r\n\r\n") + 4));
  std::map<std::string, double> samples;
  std::set<std::string> families;
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family << " is described twice";
      continue;
    }
    const auto blank = line.rfind(' ');
    EXPECT_EQ(line.substr(0, line.find_first_of("{ ")), family);
    EXPECT_TRUE(samples.emplace(line.substr(0, blank), std::stod(line.substr(blank + 1))).second);
  }
  return samples;
}

// The agent hears of the ranks' start after their first output: scrapes until it has.
std::map<std::string, double> scrape_when_running(const OwnPort& port, int ranks) {
  const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(30));
  auto samples = scrape(port);
  while (samples.at("dtrun_ranks_running") != ranks && !deadline.expired()) samples = scrape(port);
  return samples;
}

// A job whose rank says that it runs, and ends when its input does.
class WaitingJob {
 public:
  explicit WaitingJob(const OwnPort& port) : port_(port), command_(start(port)) {}

  bool ranks_run() {
    return command_.wait_for_output("runs") &&
           scrape_when_running(port_, 1).at("dtrun_ranks_running") == 1;
  }
  CommandResult end() {
    command_.close_input();
    return command_.finish();
  }

 private:
  Command start(const OwnPort& port) {
    job_.options().input = testing_support::CommandOptions::Input::kPipe;
    return job_.start(
        {"--metrics-port=" + port.text(), "--stdin=all", "sh", "-c", "echo runs; cat"});
  }

  const OwnPort& port_;
  LauncherJob job_;
  Command command_;
};

TEST(MetricsTest, ARestartedJobIsCounted) {
  const OwnPort port;
  LauncherJob job;
  job.options().input = testing_support::CommandOptions::Input::kPipe;
  // Rank 1 fails in the first round.
  Command command = job.start({"--metrics-port=" + port.text(), "--nproc_per_node=2",
                               "--max_restarts=2", "--stdin=all", "--rdzv_id=a\"b", "sh", "-c",
                               "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit $RANK; echo up; cat"});
  ASSERT_TRUE(command.wait_for_output("up\nup\n"));
  const auto samples = scrape_when_running(port, 2);
  EXPECT_EQ(samples.at("dtrun_rounds_total"), 2);
  EXPECT_EQ(samples.at("dtrun_restarts_total"), 1);
  EXPECT_EQ(samples.at("dtrun_max_restarts"), 2);
  EXPECT_EQ(samples.at("dtrun_round"), 1);
  EXPECT_EQ(samples.at("dtrun_world_size"), 2);
  EXPECT_EQ(samples.at("dtrun_ranks_running"), 2);
  EXPECT_EQ(samples.at("dtrun_rank_starts_total"), 4);
  EXPECT_EQ(samples.at("dtrun_failures_total{cause=\"rank\"}"), 1);
  EXPECT_EQ(samples.at("dtrun_failures_total{cause=\"node\"}"), 0);
  EXPECT_EQ(samples.at("dtrun_rank_ends_total{exitcode=\"1\",signal=\"\"}"), 1);
  EXPECT_EQ(samples.at("dtrun_rank_up{rank=\"1\",local_rank=\"1\",program=\"sh\"}"), 1);
  EXPECT_EQ(samples.at("dtrun_output_lost_bytes_total"), 0);
  EXPECT_GT(samples.at("dtrun_round_start_duration_seconds"), 0);
  EXPECT_GT(samples.at("dtrun_round_start_time_seconds"), samples.at("process_start_time_seconds"));
  EXPECT_GT(samples.at("process_resident_memory_bytes"), 1e6);
  bool named = false;
  for (const auto& [name, value] : samples)
    named = named || name.starts_with("dtrun_job_info{run_id=\"a\\\"b\",program=\"sh\",");
  EXPECT_TRUE(named);
  command.close_input();
  EXPECT_EQ(command.finish().exit_code, 0);
}

TEST(MetricsTest, ARankThatHasEndedIsDownWhileOthersRun) {
  const OwnPort port;
  LauncherJob job;
  job.options().input = testing_support::CommandOptions::Input::kPipe;
  Command command = job.start({"--metrics-port=" + port.text(), "--nproc_per_node=2", "--stdin=all",
                               "sh", "-c", "[ $RANK = 1 ] && exit 0; echo runs; cat"});
  ASSERT_TRUE(command.wait_for_output("runs"));
  const double start = scrape(port).at("process_start_time_seconds");
  const auto samples = scrape_when_running(port, 1);
  EXPECT_EQ(samples.at("dtrun_ranks_running"), 1);
  EXPECT_EQ(samples.at("dtrun_rank_up{rank=\"0\",local_rank=\"0\",program=\"sh\"}"), 1);
  EXPECT_EQ(samples.at("dtrun_rank_up{rank=\"1\",local_rank=\"1\",program=\"sh\"}"), 0);
  EXPECT_EQ(samples.at("process_start_time_seconds"), start);
  command.close_input();
  EXPECT_EQ(command.finish().exit_code, 0);
}

TEST(MetricsTest, WhatRanksDoInCollectivesIsTold) {
  const OwnPort port;
  LauncherJob job;
  Command command = job.start({"--metrics-port=" + port.text(), "--nproc_per_node=2",
                               DTRUN_WORKERS "/page_worker", "late", "wait-in-init"});
  const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(30));
  const std::string first = "{rank=\"0\"}", second = "{rank=\"1\"}";
  auto samples = scrape(port);
  // The page comes with the word that all ranks run.
  while (samples["dtrun_rank_in_collective" + first] != 1 && !deadline.expired())
    samples = scrape(port);
  EXPECT_EQ(samples.at("dtrun_rank_in_collective" + first), 1);
  EXPECT_EQ(samples.at("dtrun_rank_collectives_total" + first), 1);
  EXPECT_EQ(samples.at("dtrun_rank_collective_bytes_total" + first), 4096);
  EXPECT_EQ(samples.at("dtrun_rank_in_collective" + second), 0);
  EXPECT_EQ(samples.at("dtrun_rank_collectives_total" + second), 0);
  command.signal(SIGTERM);
  EXPECT_NE(command.finish().exit_code, 0);
}

// Each round has a page of its own.
TEST(MetricsTest, CollectivesOfAllRoundsAreCounted) {
  const OwnPort port;
  LauncherJob job;
  Command command = job.start({"--metrics-port=" + port.text(), "--max-restarts=1", "sh", "-c",
                               "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec " DTRUN_WORKERS
                               "/page_worker kill-self; exec " DTRUN_WORKERS "/page_worker late"});
  const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(30));
  const std::string rank = "{rank=\"0\"}";
  auto samples = scrape(port);
  while (samples["dtrun_rank_collectives_total" + rank] != 2 && !deadline.expired())
    samples = scrape(port);
  EXPECT_EQ(samples.at("dtrun_restarts_total"), 1);
  EXPECT_EQ(samples.at("dtrun_rank_collectives_total" + rank), 2);
  EXPECT_EQ(samples.at("dtrun_rank_collective_bytes_total" + rank), 2 * 4096);
  command.signal(SIGTERM);
  EXPECT_NE(command.finish().exit_code, 0);
}

TEST(MetricsTest, NodesThatWaitForOthersSayThatNoRankRuns) {
  const OwnPort metrics, port;
  LauncherJob job;
  const auto arguments = [&](const std::string& node) {
    return std::vector<std::string>{"--nnodes=2", "--node_rank=" + node, "--master_addr=127.0.0.1",
                                    "--master_port=" + port.text(), "true"};
  };
  auto first = arguments("0");
  first.insert(first.begin(), "--metrics-port=127.0.0.1:" + metrics.text());
  Command waiting = job.start(first);
  const auto samples = scrape(metrics);
  EXPECT_EQ(samples.at("dtrun_rounds_total"), 0);
  EXPECT_EQ(samples.at("dtrun_round"), -1);
  EXPECT_EQ(samples.at("dtrun_ranks_running"), 0);
  EXPECT_EQ(job.run(arguments("1")).exit_code, 0);
  EXPECT_EQ(waiting.finish().exit_code, 0);
}

TEST(MetricsTest, ClientsThatSaySomethingElseAreToldSo) {
  const OwnPort port;
  WaitingJob job(port);
  ASSERT_TRUE(job.ranks_run());
  EXPECT_THAT(ask(port, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask(port, "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask(port, "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  const std::string endless = "GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x');
  EXPECT_THAT(ask(port, endless), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask(port, "GET /metrics?name=dtrun HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(job.end().exit_code, 0);
}

TEST(MetricsTest, AHeadRequestGetsNoBody) {
  const std::string response =
      http_response("HEAD /metrics HTTP/1.1\r\n\r\n", [] { return std::string("a 1\n"); });
  EXPECT_THAT(response, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_TRUE(response.ends_with("\r\n\r\n"));
}

TEST(MetricsTest, SilentClientsBeyondTheMostMakeRoomForOthersAndHoldUpNothing) {
  const OwnPort port;
  WaitingJob job(port);
  ASSERT_TRUE(job.ranks_run());
  std::vector<base::UniqueFd> silent;
  for (std::size_t i = 0; i < 4 * MetricsServer::kMostConnections; ++i) {
    silent.push_back(connect(port));
    send_text(silent.back(), "GET /met");
  }
  EXPECT_EQ(scrape(port).at("dtrun_ranks_running"), 1);
  // The oldest was closed.
  EXPECT_THAT(read_all(silent.front()), IsEmpty());
  const CommandResult result = job.end();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  for (const base::UniqueFd& socket : silent) EXPECT_THAT(read_all(socket), IsEmpty());
}

TEST(MetricsTest, CurlGetsTheText) {
  if (testing_support::run_command({"curl", "--version"}).exit_code != 0)
    GTEST_SKIP() << "no curl here: scripts/install-packages --lab";
  const OwnPort port;
  WaitingJob job(port);
  ASSERT_TRUE(job.ranks_run());
  const std::string page = "http://127.0.0.1:" + port.text() + "/metrics";
  const CommandResult text = testing_support::run_command({"curl", "-sSf", page});
  EXPECT_EQ(text.exit_code, 0) << text.describe();
  EXPECT_THAT(text.out, HasSubstr("\ndtrun_ranks_running 1\n"));
  EXPECT_EQ(testing_support::run_command({"curl", "-sf", "-d", "x=1", page}).exit_code, 22);
  EXPECT_EQ(job.end().exit_code, 0);
}

// All ask, and none reads its answer.
TEST(MetricsTest, AThousandClientsThatNeverReadDelayNeitherAScrapeNorTheEnd) {
  const OwnPort port;
  WaitingJob job(port);
  ASSERT_TRUE(job.ranks_run());
  const double descriptors = scrape(port).at("process_open_fds");
  std::vector<base::UniqueFd> clients;
  for (int client = 0; client < 1000; ++client) {
    clients.push_back(connect(port));
    // The server may have closed it to make room for later ones.
    const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
    EXPECT_NE(::send(clients.back().get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  }
  const auto samples = scrape(port);
  EXPECT_EQ(samples.at("dtrun_ranks_running"), 1);
  EXPECT_LE(samples.at("process_open_fds"), descriptors + MetricsServer::kMostConnections);
  const CommandResult result = job.end();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

TEST(MetricsTest, APortInUseIsAnErrorBeforeAnyRankStarts) {
  const OwnPort port;
  const base::UniqueFd other = base::listen_tcp("127.0.0.1", port.number());
  const CommandResult result =
      LauncherJob().run({"--metrics-port=" + port.text(), "echo", "started"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("cannot serve metrics at 127.0.0.1:" + port.text()));
  EXPECT_THAT(result.err, HasSubstr("name another port, or 0 for any that is free"));
}

TEST(MetricsTest, PortZeroTakesAnyAndTellsWhich) {
  const CommandResult result = LauncherJob().run({"--metrics-port=0", "true"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, testing::ContainsRegex("metrics are at http://127.0.0.1:[1-9][0-9]*/"));
}

TEST(MetricsTest, AnAddressThatIsNoneIsRefused) {
  for (const std::string place : {"70000", "x", "127.0.0.1:", ":9400", "a:1:2"}) {
    const CommandResult result = LauncherJob().run({"--metrics-port=" + place, "echo", "started"});
    EXPECT_EQ(result.exit_code, 64) << result.describe();
    EXPECT_THAT(result.err, HasSubstr("--metrics-port=" + place));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

}  // namespace
}  // namespace dtrun::launcher
