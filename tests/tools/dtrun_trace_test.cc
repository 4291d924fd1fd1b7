// dtrun --trace, as its users meet it: a file of what the ranks have sent and received, whole, in
// order, with a slice for each call; one for each node and round; dtrun-explain --trace joins them.
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "dtrun/base/json.h"
#include "support/command.h"
#include "support/own_port.h"

namespace dtrun::explain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandResult;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;
namespace json = boost::json;

/// What the document "Trace Event Format" demands of the events that dtrun writes: complete ones
/// (X), flows (s, t, f) and metadata (M).
void expect_event_format(const json::object& event) {
  SCOPED_TRACE(json::serialize(event));
  ASSERT_TRUE(event.contains("ph") && event.contains("pid") && event.contains("tid") &&
              event.contains("name"));
  EXPECT_TRUE(event.at("pid").is_int64() && event.at("tid").is_int64());
  ASSERT_TRUE(event.at("name").is_string());
  ASSERT_TRUE(event.at("ph").is_string());
  const json::string& phase = event.at("ph").as_string();
  if (phase == "M") {
    const json::string& name = event.at("name").as_string();
    const json::object& args = event.at("args").as_object();
    if (name == "thread_sort_index") {
      EXPECT_TRUE(args.at("sort_index").is_int64());
    } else {
      EXPECT_TRUE(name == "process_name" || name == "thread_name");
      EXPECT_TRUE(args.at("name").is_string());
    }
    return;
  }
  EXPECT_TRUE(event.at("cat").is_string() && event.at("ts").is_number());
  EXPECT_GE(event.at("ts").to_number<double>(), 0);
  if (phase == "X") {
    EXPECT_GE(event.at("dur").to_number<double>(), 0);
    EXPECT_TRUE(event.at("args").is_object());
    return;
  }
  EXPECT_TRUE(phase == "s" || phase == "t" || phase == "f");
  EXPECT_TRUE(event.contains("id"));
  // Else an arrow ends at the next slice that begins, not at the one that is open there.
  EXPECT_EQ(event.contains("bp"), phase == "f");
  if (phase == "f") {
    EXPECT_EQ(event.at("bp").as_string(), "e");
  }
}

/// A trace's file. Whatever it holds, it is in order and well-formed.
class TraceDocument {
 public:
  struct Slice {
    std::int64_t rank;
    std::string name;
    std::int64_t begin_ns;
    std::int64_t end_ns;
    json::object facts;
    std::string track;
  };

  explicit TraceDocument(const std::string& path)
      : document_(base::parse_json(content_of(path), path)) {
    EXPECT_EQ(text(document_.at("displayTimeUnit")), "ns");
    double latest = -1e300;
    for (const json::value& value : document_.at("traceEvents").as_array()) {
      const json::object& event = value.as_object();
      expect_event_format(event);
      const std::string kind = text(event.at("ph"));
      const Thread thread{event.at("pid").as_int64(), event.at("tid").as_int64()};
      if (kind == "M") {
        if (const json::value* const name = event.at("args").as_object().if_contains("name"))
          names_[{text(event.at("name")) == "process_name" ? Thread{thread.first, -1} : thread}] =
              text(*name);
        continue;
      }
      const double at = event.at("ts").to_number<double>();
      EXPECT_GE(at, latest) << "events are sorted";
      latest = at;
      if (kind == "X")
        add_slice(event, thread);
      else
        arrows_[event.at("id").to_number<int>()].push_back(
            {kind, text(event.at("name")) + "/" + text(event.at("cat")), thread, ns(at)});
    }
    expect_nested();
    expect_arrows();
  }

  const json::value& facts() const { return document_.at("otherData"); }
  const std::vector<Slice>& slices() const { return slices_; }
  std::vector<Slice> of(int rank, const std::string& name) const {
    std::vector<Slice> found;
    for (const Slice& slice : slices_)
      if (slice.rank == rank && slice.name == name) found.push_back(slice);
    return found;
  }
  std::set<std::string> tracks(int rank) const {
    std::set<std::string> tracks;
    for (const auto& [thread, name] : names_)
      if (thread.first == rank && thread.second >= 0) tracks.insert(name);
    return tracks;
  }
  std::string process(int rank) const { return names_.at({rank, -1}); }
  /// Of how many slices each.
  std::multiset<std::size_t> arrow_lengths() const {
    std::multiset<std::size_t> lengths;
    for (const auto& [id, parts] : arrows_) lengths.insert(parts.size());
    return lengths;
  }

 private:
  using Thread = std::pair<std::int64_t, std::int64_t>;
  struct Arrow {
    std::string kind;
    std::string name;  ///< with the category
    Thread thread;
    std::int64_t at_ns;
  };

  static std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.is_open()) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string text(const json::value& value) {
    return {value.as_string().data(), value.as_string().size()};
  }
  static std::int64_t ns(double microseconds) { return std::llround(microseconds * 1000); }

  void add_slice(const json::object& event, const Thread& thread) {
    const std::int64_t begin = ns(event.at("ts").to_number<double>());
    const std::int64_t length = ns(event.at("dur").to_number<double>());
    EXPECT_GE(length, 0);
    slices_.push_back({thread.first, text(event.at("name")), begin, begin + length,
                       event.at("args").as_object(), names_.at(thread)});
    threads_[thread].emplace_back(begin, begin + length);
  }
  void expect_nested() const {
    for (const auto& [thread, slices] : threads_)
      for (std::size_t i = 1; i < slices.size(); ++i)
        EXPECT_LE(slices[i - 1].second, slices[i].first) << "two slices of a thread cross";
  }
  void expect_arrows() const {
    for (const auto& [id, parts] : arrows_) {
      ASSERT_GE(parts.size(), 2U);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        // Only parts that agree in all three are joined.
        EXPECT_EQ(parts[i].name, parts[0].name) << "arrow " << id;
        EXPECT_EQ(parts[i].kind, i == 0 ? "s" : i + 1 == parts.size() ? "f" : "t");
        const auto holds = [&](const auto& slice) {
          return slice.first <= parts[i].at_ns && parts[i].at_ns <= slice.second;
        };
        EXPECT_TRUE(std::ranges::any_of(threads_.at(parts[i].thread), holds));
      }
    }
  }

  json::value document_;
  std::vector<Slice> slices_;
  std::map<Thread, std::string> names_;
  std::map<Thread, std::vector<std::pair<std::int64_t, std::int64_t>>> threads_;
  std::map<int, std::vector<Arrow>> arrows_;
};

class DtrunTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "dtrun_trace.XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  CommandResult job(const Words& options, const std::string& mode) const {
    Words words = {DTRUN_BINARY, "--nproc_per_node=3", "--trace=" + path("trace.json")};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {FLIGHT_WORKER_BINARY, mode});
    return testing_support::run_command(words);
  }
  std::string folder_;
};

TEST_F(DtrunTraceTest, EachCallOfEachRankIsASliceAndTheRanksAreJoined) {
  const CommandResult done = job({}, "work");
  ASSERT_EQ(done.exit_code, 0) << done.describe();
  EXPECT_THAT(done.err, HasSubstr("trace for ui.perfetto.dev: " + path("trace.json")));
  const TraceDocument trace(path("trace.json"));
  EXPECT_EQ(trace.facts().at("world_size").as_int64(), 3);
  EXPECT_THAT(trace.process(2), AllOf(HasSubstr("rank 2 (pid "), HasSubstr(" on node 0)")));
  for (int rank = 0; rank < 3; ++rank) {
    const auto reductions = trace.of(rank, "all_reduce");
    EXPECT_EQ(reductions.size(), rank == 2 ? 6U : 7U);
    EXPECT_EQ(trace.of(rank, "barrier").size(), 1U);
    EXPECT_EQ(trace.of(rank, "send").size(), rank == 0 ? 2U : 0U);
    EXPECT_EQ(trace.of(rank, "recv").size(), rank == 1 ? 2U : 0U);
    EXPECT_TRUE(trace.tracks(rank).contains("world"));
    EXPECT_EQ(trace.tracks(rank).contains("pair"), rank != 2);
    // Two asynchronous calls were under way at the same time.
    EXPECT_TRUE(trace.tracks(rank).contains("world (2)"));
  }
  // Between ranks that share a clock a collective ends after all have begun it.
  const auto slices = trace.of(0, "all_reduce"), others = trace.of(2, "all_reduce");
  EXPECT_GE(slices[0].end_ns, others[0].begin_ns);
  EXPECT_GE(others[0].end_ns, slices[0].begin_ns);
  const json::object& facts = slices[0].facts;
  EXPECT_EQ(facts.at("group").as_string(), "world");
  EXPECT_EQ(facts.at("state").as_string(), "done");
  EXPECT_EQ(facts.at("dtype").as_string(), "f32");
  EXPECT_EQ(facts.at("elements").as_int64(), 8);
  EXPECT_EQ(facts.at("bytes").as_int64(), 32);
  EXPECT_EQ(facts.at("ranks_here").as_int64(), 3);
  EXPECT_THAT(std::string(facts.at("call_site").as_string()), HasSubstr("flight_worker.cc:"));
  // A barrier, a split and six all_reduces of three, one all_reduce and two messages of two ranks.
  const std::multiset<std::size_t> lengths = trace.arrow_lengths();
  EXPECT_EQ(lengths.count(3), 8U);
  EXPECT_EQ(lengths.count(2), 3U);
  EXPECT_EQ(lengths.size(), 11U);
}

TEST_F(DtrunTraceTest, WhatAKilledRankHasDoneIsThere) {
  const CommandResult killed = job({}, "kill");
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.describe();
  const TraceDocument trace(path("trace.json"));
  EXPECT_EQ(trace.of(1, "barrier").size(), 1U);
  EXPECT_EQ(trace.of(1, "all_reduce").size(), 0U);
  const auto waiting = trace.of(0, "all_reduce");
  ASSERT_EQ(waiting.size(), 1U);
  EXPECT_NE(waiting[0].facts.at("state").as_string(), "done");
  EXPECT_EQ(waiting[0].facts.at("not_come"), json::value({1}));
  EXPECT_THAT(std::string(trace.facts().at("cause").as_string()), HasSubstr("SIGKILL"));
}

TEST_F(DtrunTraceTest, EachRoundHasAFile) {
  job({"--max-restarts=1"}, "fail");
  EXPECT_EQ(TraceDocument(path("trace.json")).facts().at("round").as_int64(), 0);
  EXPECT_EQ(TraceDocument(path("trace.round1.json")).facts().at("round").as_int64(), 1);
}

TEST_F(DtrunTraceTest, ATraceThatCannotBeWrittenIsToldAndHarmsNobody) {
  const CommandResult done = testing_support::run_command({DTRUN_BINARY, "--nproc_per_node=3",
                                                           "--trace=" + path("trace.json/no"),
                                                           FLIGHT_WORKER_BINARY, "none"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_TRUE(fs::exists(path("trace.json/no.json")));
  std::ofstream(path("file")) << "x";
  const CommandResult refused = testing_support::run_command({DTRUN_BINARY, "--nproc_per_node=3",
                                                              "--trace=" + path("file/trace.json"),
                                                              FLIGHT_WORKER_BINARY, "none"});
  EXPECT_EQ(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("there is no trace: "));
}

TEST_F(DtrunTraceTest, NodesWriteTheirOwnFilesWhichAreJoined) {
  const testing_support::OwnPort port;
  const auto node = [&](int rank) {
    return Words{DTRUN_BINARY,
                 "--nnodes=2",
                 "--node-rank=" + std::to_string(rank),
                 "--nproc_per_node=" + std::to_string(2 - rank),
                 "--master-port=" + std::to_string(port.number()),
                 "--trace=" + path("trace.json"),
                 FLIGHT_WORKER_BINARY,
                 "work"};
  };
  Command other(node(1));
  const CommandResult first = testing_support::run_command(node(0));
  ASSERT_EQ(first.exit_code, 0) << first.describe();
  ASSERT_EQ(other.finish().exit_code, 0);
  EXPECT_EQ(TraceDocument(path("trace.node0.json")).of(2, "barrier").size(), 0U);
  const CommandResult said =
      testing_support::run_command({DTRUN_EXPLAIN_BINARY, "--trace", path("all.json"),
                                    path("trace.node0.json"), path("trace.node1.json")});
  ASSERT_EQ(said.exit_code, 0) << said.describe();
  EXPECT_THAT(said.out, AllOf(HasSubstr("node 0: 0 ms added to its times\n"), HasSubstr("node 1: "),
                              HasSubstr(", right to ")));
  const TraceDocument all(path("all.json"));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all.of(rank, "barrier").size(), 1U);
  EXPECT_EQ(all.arrow_lengths().count(3), 8U);
  // Here both nodes have one clock.
  const json::value& clock = all.facts().at("clocks").at(1);
  EXPECT_LE(std::abs(clock.at("shift_ns").as_int64()), clock.at("uncertainty_ns").as_int64());
  const CommandResult twice =
      testing_support::run_command({DTRUN_EXPLAIN_BINARY, "--trace", path("all.json"),
                                    path("trace.node0.json"), path("trace.node0.json")});
  EXPECT_THAT(twice.err, HasSubstr("rank 0 stands in two of the traces"));
  for (const std::string option : {"--json", "--last=1", "--round=0"}) {
    const CommandResult refused = testing_support::run_command(
        {DTRUN_EXPLAIN_BINARY, option, "--trace", path("all.json"), path("trace.node0.json")});
    EXPECT_EQ(refused.exit_code, 64) << refused.describe();
    EXPECT_THAT(refused.err, HasSubstr(option.substr(0, option.find('=')) + " excludes --trace"));
  }
}

}  // namespace
}  // namespace dtrun::explain
