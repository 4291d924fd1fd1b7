// The records of ranks' last operations: out of a job page, through JSON and back.
#include "dtrun/rendezvous/flight_record.h"

#include <gmock/gmock.h>
#include <string.h>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"

namespace dtrun::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The n-th operation of a rank, as its runtime writes it.
void record(const JobPage& page, int local_rank, std::uint64_t number, const char* name) {
  const std::span<HistoryEntry> history = page.open_history(local_rank);
  HistoryEntry entry;
  ::strcpy(entry.operation.name, name);
  ::strcpy(entry.operation.group, "tp");
  entry.operation.sequence = number;
  entry.operation.started_ns = static_cast<std::int64_t>(number);
  ::strcpy(entry.call_site, "train.cc:7");
  ::strcpy(entry.dtype, "f32");
  ::strcpy(entry.reduce_op, "sum");
  entry.elements = 5;
  entry.group_size = 2;
  entry.first_rank = 1;
  entry.rank_stride = 2;
  history[(number - 1) % history.size()] = entry;
  page.slot(local_rank).operations = number;
  page.slot(local_rank).recorded = number;
}

FlightRecord parse(const std::string& text) {
  return flight_record_of(base::parse_json(text, "the text"), "the text");
}

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kProtocol);
    return error.what();
  }
  return "no error";
}

TEST(FlightRecordTest, APageKeepsTheLast256OperationsOfEachRank) {
  const JobPage page = JobPage::create(2);
  for (int i = 0; i < 2; ++i) page.slot(i).global_rank = 4 + i;
  for (std::uint64_t number = 1; number <= kHistoryLength + 3; ++number)
    record(page, 1, number, "all_reduce");
  const FlightRecord flight = read_flight(page);
  ASSERT_EQ(flight.ranks.size(), 2U);
  EXPECT_THAT(flight.ranks[0].operations, IsEmpty());
  const RankFlight& second = flight.ranks[1];
  EXPECT_EQ(second.rank, 5);
  EXPECT_EQ(second.begun, kHistoryLength + 3);
  ASSERT_EQ(second.operations.size(), kHistoryLength);
  EXPECT_EQ(second.operations.front().sequence, 4U);
  EXPECT_EQ(second.operations.back().sequence, kHistoryLength + 3);
  EXPECT_THAT(second.operations.back().members.all(2), ElementsAre(1, 3));
  EXPECT_THAT(second.operations.back().members.all(1), IsEmpty());
  EXPECT_EQ(second.operations.back().state, FlightState::running);
}

TEST(FlightRecordTest, WhatARankHasWrittenWildlyIsHarmless) {
  const JobPage page = JobPage::create(1);
  page.slot(0).global_rank = 0;
  const std::span<HistoryEntry> history = page.open_history(0);
  ::memset(static_cast<void*>(history.data()), 0x1b, history.size_bytes());
  page.slot(0).recorded = ~std::uint64_t{0};
  const FlightRecord flight = read_flight(page);
  ASSERT_EQ(flight.ranks[0].operations.size(), kHistoryLength);
  EXPECT_THAT(flight.ranks[0].operations[0].name, testing::Not(HasSubstr("\x1b")));
  EXPECT_EQ(parse(to_json(flight)).ranks[0].operations.size(), kHistoryLength);
}

TEST(FlightRecordTest, AnOldPageHasNoHistories) {
  const JobPage page = JobPage::create(1);
  page.header().history_length = 0;
  const JobPage old = JobPage::open(page.fd());
  EXPECT_TRUE(old.open_history(0).empty());
  old.slot(0).recorded = 3;
  EXPECT_THAT(old.history(0), IsEmpty());
  for (const std::uint64_t offset : {std::uint64_t{1}, ~std::uint64_t{0} - 63}) {
    page.header().history_length = kHistoryLength;
    page.header().history_offset = offset;
    EXPECT_THROW(JobPage::open(page.fd()), base::Error);
  }
}

TEST(FlightRecordTest, JsonGivesBackWhatWasWritten) {
  FlightRecord record;
  record.job = "job \xff";
  record.node = 1;
  record.round = 2;
  record.world_size = 8;
  record.written = 1700000000.5;
  record.cause = "rank 3 failed";
  RankFlight flight{
      .rank = 3, .pid = 12, .state = "exited", .victim_of = -1, .begun = 9, .operations = {}};
  FlightOperation operation;
  operation.name = "reduce";
  operation.group = "world";
  operation.sequence = 41;
  operation.state = FlightState::failed;
  operation.call_site = "a.cc:1";
  operation.dtype = "bf16";
  operation.reduce_op = "max";
  operation.elements = 7;
  operation.bytes = 14;
  operation.root = 2;
  operation.members = {3, -2, 2, {}};
  operation.members_hash = 77;
  operation.started = 1699999999.25;
  operation.ended = 1700000000.0;
  flight.operations = {operation, {}};
  record.ranks = {flight};
  const FlightRecord read = parse(to_json(record));
  EXPECT_EQ(read.job, "job \uFFFD");
  EXPECT_EQ(read.node, 1);
  EXPECT_EQ(read.round, 2);
  EXPECT_EQ(read.world_size, 8);
  EXPECT_EQ(read.written, record.written);
  EXPECT_EQ(read.cause, record.cause);
  ASSERT_EQ(read.ranks.size(), 1U);
  EXPECT_EQ(read.ranks[0].begun, 9U);
  EXPECT_EQ(read.ranks[0].state, "exited");
  const FlightOperation& first = read.ranks[0].operations.at(0);
  EXPECT_EQ(first.name, "reduce");
  EXPECT_EQ(first.state, FlightState::failed);
  EXPECT_EQ(first.call_site, "a.cc:1");
  EXPECT_EQ(first.root, 2);
  EXPECT_EQ(first.waiting_for, -1);
  EXPECT_EQ(first.bytes, 14U);
  EXPECT_THAT(first.members.all(8), ElementsAre(3, 1));
  EXPECT_EQ(first.members_hash, 77U);
  EXPECT_EQ(first.started, operation.started);
  EXPECT_EQ(first.ended, operation.ended);
  EXPECT_EQ(read.ranks[0].operations.at(1).ended, std::nullopt);
}

TEST(FlightRecordTest, WhatIsNoRecordIsRefusedWithItsPlace) {
  const std::string format = R"("format": "dtrun flight record 1")";
  EXPECT_THAT(error_of("[]"), HasSubstr("the document is no object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("its format is ''"));
  EXPECT_THAT(error_of(R"({"format": "dtrun flight record 9"})"), HasSubstr("record 9"));
  EXPECT_THAT(error_of("{" + format + R"(, "ranks": 3})"), HasSubstr("ranks is no list"));
  EXPECT_THAT(error_of("{" + format + R"(, "ranks": [1]})"), HasSubstr("ranks[0] is no object"));
  EXPECT_THAT(error_of("{" + format + R"(, "ranks": [{}]})"), HasSubstr("a rank has no number"));
  const auto of_operation = [&](const std::string& operation) {
    return error_of("{" + format + R"(, "ranks": [{"rank": 0, "operations": [)" + operation +
                    "]}]}");
  };
  EXPECT_THAT(of_operation(R"({"state": "asleep"})"), HasSubstr("'asleep' is no state"));
  EXPECT_THAT(of_operation(R"({"state": "done", "name": 1})"),
              HasSubstr("operations[0].name is no text"));
  EXPECT_THAT(of_operation(R"({"state": "done", "sequence": -1})"),
              HasSubstr("sequence is no such number"));
  EXPECT_THAT(of_operation(R"({"state": "done", "members": ["a"]})"),
              HasSubstr("members is no object"));
}

}  // namespace
}  // namespace dtrun::rendezvous
