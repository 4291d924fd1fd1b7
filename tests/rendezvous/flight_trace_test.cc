// Traces of ranks: out of a job page, as a file and back, and those of several nodes joined.
#include "dtrun/rendezvous/flight_trace.h"

#include <gmock/gmock.h>
#include <string.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"

namespace dtrun::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HistoryEntry call_entry(const char* name, std::uint64_t sequence, std::int64_t begin,
                        std::int64_t end) {
  HistoryEntry entry;
  ::strcpy(entry.operation.name, name);
  ::strcpy(entry.operation.group, "world");
  ::strcpy(entry.call_site, "a \"b\".cc:1");
  ::strcpy(entry.dtype, "f32");
  entry.operation.sequence = sequence;
  entry.operation.started_ns = begin;
  entry.operation.ended_ns = end;
  entry.operation.bytes = 8;
  entry.elements = 2;
  entry.group_size = 2;
  entry.rank_stride = 1;
  entry.members_hash = 5;
  return entry;
}

HistoryEntry message_entry(const char* name, int rank, int peer, std::uint32_t tag,
                           std::int64_t begin, std::int64_t end) {
  HistoryEntry entry = call_entry(name, 1, begin, end);
  entry.group_rank = rank;
  entry.root = peer;
  entry.tag = tag;
  return entry;
}

/// A node with one rank.
FlightTrace node_trace(int number, std::int64_t epoch, std::vector<HistoryEntry> operations) {
  FlightTrace trace;
  trace.job = "job";
  trace.world_size = 2;
  trace.clocks = {{.node = number, .epoch_ns = epoch, .uncertainty_ns = {}}};
  RankTrace rank;
  rank.rank = number;
  rank.node = number;
  rank.pid = 10 + number;
  rank.begun = operations.size();
  rank.until_ns = 1'000'000'000'000;
  rank.operations = std::move(operations);
  trace.ranks = {rank};
  return trace;
}

FlightTrace read_back(const std::string& text) {
  return flight_trace_of(base::parse_json(text, "the text"), "the text");
}

std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const base::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FlightTraceTest, ManyRanksKeepFewerOperationsEach) {
  EXPECT_EQ(trace_length(1), 16384U);
  EXPECT_EQ(trace_length(8), 16384U);
  EXPECT_EQ(trace_length(64), 2048U);
  EXPECT_EQ(trace_length(4096), 1024U);
}

TEST(FlightTraceTest, APageOfATraceKeepsMoreAndAFlightRecordTheLast256) {
  const std::size_t length = trace_length(1);
  const JobPage page = JobPage::create(1, {.length = length, .times = HistoryPlan::Times::exact});
  const JobPage mapped = JobPage::open(page.fd());
  EXPECT_EQ(mapped.times(), HistoryPlan::Times::exact);
  const std::span<HistoryEntry> history = mapped.open_history(0);
  ASSERT_EQ(history.size(), length);
  const std::uint64_t count = length + 10;
  for (std::uint64_t i = 1; i <= count; ++i)
    history[(i - 1) % history.size()] = call_entry("barrier", i, static_cast<std::int64_t>(i), 0);
  page.slot(0).global_rank = 0;
  page.slot(0).operations = count;
  page.slot(0).recorded = count;
  const FlightTrace trace = read_trace(page);
  ASSERT_EQ(trace.ranks.at(0).operations.size(), length);
  EXPECT_EQ(trace.ranks[0].begun, count);
  EXPECT_EQ(trace.ranks[0].operations.front().operation.sequence, 11U);
  EXPECT_EQ(trace.ranks[0].operations.back().operation.sequence, count);
  EXPECT_EQ(page.history(0).size(), kHistoryLength);
  EXPECT_EQ(page.history(0).back().operation.sequence, count);
  EXPECT_EQ(JobPage::create(1).times(), HistoryPlan::Times::coarse);
}

TEST(FlightTraceTest, AFileGivesBackWhatWasWritten) {
  HistoryEntry failed = message_entry("recv", 1, 0, 9, 3000, 4001);
  failed.operation.failed = 1;
  failed.operation.waiting_for = 0;
  FlightTrace trace = node_trace(
      1, 77,
      {call_entry("all_reduce", 41, 1001, 2999), failed, call_entry("barrier", 42, 5000, 0)});
  trace.job = "job \xff";
  trace.round = 2;
  trace.cause = "rank 3 failed";
  const FlightTrace read = read_back(to_json(trace));
  EXPECT_EQ(read.job, "job \uFFFD");
  EXPECT_EQ(read.round, 2);
  EXPECT_EQ(read.world_size, 2);
  EXPECT_EQ(read.cause, trace.cause);
  ASSERT_EQ(read.clocks.size(), 1U);
  EXPECT_EQ(read.clocks[0].epoch_ns, 77);
  EXPECT_EQ(read.clocks[0].uncertainty_ns, std::nullopt);
  ASSERT_EQ(read.ranks.size(), 1U);
  EXPECT_EQ(read.ranks[0].pid, 11);
  EXPECT_EQ(read.ranks[0].until_ns, trace.ranks[0].until_ns);
  ASSERT_EQ(read.ranks[0].operations.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(
        ::memcmp(&read.ranks[0].operations[i], &trace.ranks[0].operations[i], sizeof(HistoryEntry)),
        0)
        << i;
}

TEST(FlightTraceTest, RanksOfOneCallAreJoinedByArrows) {
  FlightTrace trace =
      node_trace(0, 0,
                 {call_entry("all_reduce", 1, 100, 500), message_entry("send", 0, 1, 7, 600, 650),
                  message_entry("send", 0, 1, 8, 660, 670)});
  trace.ranks.push_back(
      node_trace(1, 0,
                 {call_entry("all_reduce", 1, 300, 500), message_entry("recv", 1, 0, 8, 550, 800),
                  message_entry("recv", 1, 0, 7, 810, 820)})
          .ranks[0]);
  const boost::json::value file = base::parse_json(to_json(trace), "the text");
  std::map<int, std::vector<std::string>> arrows;
  for (const boost::json::value& event : file.at("traceEvents").as_array())
    if (event.as_object().contains("id"))
      arrows[event.at("id").to_number<int>()].push_back(
          std::string(event.at("ph").as_string().c_str()) + " " +
          std::to_string(event.at("pid").as_int64()) + " " +
          std::to_string(std::llround(event.at("ts").to_number<double>() * 1000)));
  EXPECT_THAT(arrows[1], ElementsAre("s 0 100", "f 1 300"));
  // By their tags, though the second was received first; the receive was posted ahead.
  EXPECT_THAT(arrows[2], ElementsAre("s 0 600", "f 1 810"));
  EXPECT_THAT(arrows[3], ElementsAre("s 0 660", "f 1 660"));
  EXPECT_EQ(arrows.size(), 3U);
}

TEST(FlightTraceTest, WhereMessagesWereLostNoneAreJoined) {
  FlightTrace trace = node_trace(0, 0, {message_entry("send", 0, 1, 0, 600, 650)});
  trace.ranks[0].begun = 2;
  trace.ranks.push_back(node_trace(1, 0, {message_entry("recv", 1, 0, 0, 550, 800)}).ranks[0]);
  EXPECT_THAT(to_json(trace), testing::Not(HasSubstr("\"ph\":\"s\"")));
}

TEST(FlightTraceTest, ClocksOfNodesAreAlignedByTheirCollectives) {
  constexpr std::int64_t kAhead = 5'000'000'000;
  // Node 1's clock is ahead by 5 s, and its wall clock says 9. In truth its rank comes last and
  // first by turns.
  const auto first = node_trace(
      0, 1000, {call_entry("barrier", 1, 1000, 3100), call_entry("barrier", 2, 8000, 9000)});
  const auto second = node_trace(1, 1000 + 9'000'000'000,
                                 {call_entry("barrier", 1, kAhead + 3000, kAhead + 3200),
                                  call_entry("barrier", 2, kAhead + 4000, kAhead + 8100)});
  const FlightTrace all = joined({first, second});
  ASSERT_EQ(all.clocks.size(), 2U);
  EXPECT_EQ(all.clocks[0].shift_ns, 0);
  // Bounds: 8000 - 8100 and 3100 - 3000.
  EXPECT_EQ(all.clocks[1].shift_ns, -kAhead);
  EXPECT_EQ(all.clocks[1].uncertainty_ns, 100);
  EXPECT_EQ(all.ranks.at(1).operations[0].operation.started_ns, 3000);
  EXPECT_EQ(all.ranks[1].operations[0].operation.ended_ns, 3200);
  EXPECT_EQ(all.clocks[1].epoch_ns + 3000, second.clocks[0].epoch_ns + kAhead + 3000);
  // A joined file can be read again.
  EXPECT_EQ(read_back(to_json(all)).clocks[1].uncertainty_ns, 100);
}

TEST(FlightTraceTest, WithoutACollectiveInCommonTheWallClocksCount) {
  const FlightTrace all = joined({node_trace(0, 1000, {call_entry("barrier", 1, 10, 20)}),
                                  node_trace(1, 400, {call_entry("barrier", 2, 700, 800)})});
  EXPECT_EQ(all.clocks[1].shift_ns, -600);
  EXPECT_EQ(all.clocks[1].uncertainty_ns, std::nullopt);
  EXPECT_EQ(all.ranks[1].operations[0].operation.started_ns, 100);
}

TEST(FlightTraceTest, ClocksThatRunAtDifferentRatesAreAlignedBetween) {
  const FlightTrace all = joined(
      {node_trace(0, 0, {call_entry("barrier", 1, 100, 110), call_entry("barrier", 2, 1000, 1010)}),
       node_trace(1, 0,
                  {call_entry("barrier", 1, 100, 110), call_entry("barrier", 2, 1200, 1210)})});
  // The first says 0, the second -200.
  EXPECT_EQ(all.clocks[1].shift_ns, -100);
  EXPECT_EQ(all.clocks[1].uncertainty_ns, 90);
}

TEST(FlightTraceTest, WhatCannotBeJoinedOrReadIsRefused) {
  FlightTrace other = node_trace(1, 0, {});
  other.round = 1;
  EXPECT_THAT(refusal_of([] { joined({}); }), HasSubstr("there is no trace to join"));
  EXPECT_THAT(refusal_of([&] {
                joined({node_trace(0, 0, {}), other});
              }),
              HasSubstr("of round 0 of job 'job' and of round 1 of job 'job' cannot be joined"));
  EXPECT_THAT(refusal_of([] {
                joined({node_trace(0, 0, {}), node_trace(0, 0, {})});
              }),
              HasSubstr("rank 0 stands in two"));
  FlightTrace timeless = node_trace(0, 0, {});
  timeless.clocks.clear();
  EXPECT_THAT(refusal_of([&] { joined({timeless}); }), HasSubstr("whose clock"));
  EXPECT_THAT(refusal_of([] { read_back("[]"); }), HasSubstr("the text is no trace of a job"));
  EXPECT_THAT(refusal_of([] { read_back(R"({"otherData": {"format": "x"}})"); }),
              HasSubstr("its format is 'x'"));
  EXPECT_THAT(refusal_of([] { read_back(R"({"otherData": {"format": "dtrun trace 1"}})"); }),
              HasSubstr("there is no job"));
  std::string text = to_json(node_trace(0, 0, {call_entry("barrier", 1, 1, 2)}));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return refusal_of([&] { read_back(changed); });
  };
  EXPECT_THAT(replaced("\"bytes\":8", "\"bytes\":-8"), HasSubstr("bytes is no such number"));
  EXPECT_THAT(replaced("\"group\":\"world\"", "\"group\":1"), HasSubstr("group is no text"));
  EXPECT_THAT(replaced("\"rank\":0", "\"rank\":3"),
              HasSubstr("a rank that otherData does not name"));
  EXPECT_THAT(replaced("\"ranks\":[", "\"ranks\":[1,"), HasSubstr("is no object"));
}

}  // namespace
}  // namespace dtrun::rendezvous
