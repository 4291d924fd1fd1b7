// What records of the last operations say about a job that hangs.
#include "dtrun/rendezvous/flight_explanation.h"

#include <gmock/gmock.h>

namespace dtrun::rendezvous {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = FlightFinding::Kind;

constexpr double kNow = 1000;

FlightOperation call(std::uint64_t sequence, FlightState state,
                     const std::string& name = "all_reduce", const std::string& group = "world",
                     std::vector<int> members = {0, 1, 2, 3}) {
  FlightOperation result;
  result.name = name;
  result.group = group;
  result.sequence = sequence;
  result.state = state;
  result.call_site = "train.cc:" + std::to_string(sequence);
  result.dtype = "f32";
  result.reduce_op = name == "all_reduce" ? "sum" : "";
  result.elements = 8;
  result.members_hash = static_cast<std::uint32_t>(members.front() * 100 + members.back());
  result.members.listed = std::move(members);
  result.started = kNow - 12;
  if (state != FlightState::running) result.ended = kNow - 2;
  return result;
}

RankFlight flight(int rank, std::vector<FlightOperation> operations,
                  const std::string& state = "in_collective") {
  return {.rank = rank,
          .pid = 0,
          .state = state,
          .victim_of = -1,
          .begun = operations.size(),
          .operations = std::move(operations)};
}

std::vector<FlightFinding> explain(std::vector<RankFlight> ranks, int world_size = 4) {
  return explain_flights(std::move(ranks), world_size, kNow);
}

TEST(FlightExplanationTest, WhoHasNotComeIsNamedWithWhatItDidLast) {
  const auto waiting = [](int rank) {
    return flight(rank, {call(1, FlightState::done), call(2, FlightState::running)});
  };
  const auto findings = explain(
      {waiting(0), waiting(1), flight(2, {call(1, FlightState::done)}, "running"), waiting(3)});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::missing);
  EXPECT_THAT(findings[0].ranks, ElementsAre(2));
  EXPECT_EQ(findings[0].text,
            "all_reduce #2 of group 'world' (f32 x 8, sum) at train.cc:2: ranks 0, 1 and 3 have "
            "waited for 12.0 s; rank 2 has not come; rank 2 last called all_reduce #1 of group "
            "'world' (f32 x 8, sum) at train.cc:1, over 2.0 s before this record");
}

TEST(FlightExplanationTest, WhomARankOfAnotherNodeWaitsForIsNamedOnItsOwn) {
  RankFlight late = flight(2, {call(1, FlightState::done)}, "running");
  late.awaited = {
      .rank = 0, .name = "all_reduce", .group = "world", .sequence = 2, .since = kNow - 9};
  const auto findings = explain({late});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::missing);
  EXPECT_THAT(findings[0].ranks, ElementsAre(2));
  EXPECT_EQ(findings[0].since, kNow - 9);
  EXPECT_EQ(findings[0].text,
            "all_reduce #2 of group 'world': rank 0, on another node, has waited for 9.0 s; rank 2 "
            "has not come; rank 2 last called all_reduce #1 of group 'world' (f32 x 8, sum) at "
            "train.cc:1, over 2.0 s before this record");
  // Where a rank of this node waits in the same place, that says more.
  const auto with_other =
      explain({late, flight(3, {call(1, FlightState::done), call(2, FlightState::running)})});
  for (const FlightFinding& finding : with_other)
    EXPECT_THAT(finding.text, Not(HasSubstr("on another node")));
}

TEST(FlightExplanationTest, AnEndedRankAndOneThatCalledNothingAreTold) {
  const auto findings = explain({flight(0, {call(1, FlightState::failed)}), flight(1, {}, "exited"),
                                 flight(2, {}, "init"), flight(3, {call(1, FlightState::failed)})});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].text,
              AllOf(HasSubstr("ranks 0 and 3 waited until it failed; ranks 1 and 2 have not come"),
                    HasSubstr("rank 1 has ended and has called nothing"),
                    HasSubstr("rank 2 is still joining and has called nothing")));
}

TEST(FlightExplanationTest, DifferentCallsInOnePlaceComeFirst) {
  const auto findings = explain({flight(0, {call(5, FlightState::running)}),
                                 flight(1, {call(5, FlightState::running, "broadcast")}),
                                 flight(2, {call(5, FlightState::running)}),
                                 flight(3, {call(5, FlightState::running)})});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::differing);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].text, AllOf(HasSubstr("ranks 0, 2 and 3 called all_reduce #5"),
                                      HasSubstr("; rank 1 called broadcast #5")));
}

TEST(FlightExplanationTest, TheCauseStandsBeforeWhatFollowsFromIt) {
  // 0 and 1 wait for 2 in 'a'; 2 waits for 3 in 'b'; 3 does nothing.
  const std::vector<int> a = {0, 1, 2}, b = {2, 3};
  const auto findings =
      explain({flight(0, {call(1, FlightState::running, "all_reduce", "a", a)}),
               flight(1, {call(1, FlightState::running, "all_reduce", "a", a)}),
               flight(2, {call(7, FlightState::running, "barrier", "b", b)}),
               flight(3, {call(6, FlightState::done, "barrier", "b", b)}, "running")});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].kind, Kind::missing);
  EXPECT_EQ(findings[0].group, "b");
  EXPECT_THAT(findings[0].ranks, ElementsAre(3));
  EXPECT_EQ(findings[1].kind, Kind::waiting);
  EXPECT_THAT(findings[1].text, HasSubstr("rank 2 is in barrier #7 of group 'b'"));
}

TEST(FlightExplanationTest, RanksThatWaitForOneAnotherAreACircle) {
  const std::vector<int> both = {0, 1};
  const auto findings =
      explain({flight(0, {call(1, FlightState::running, "all_reduce", "a", both)}),
               flight(1, {call(1, FlightState::running, "all_reduce", "b", both)})},
              2);
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0].kind, Kind::circle);
  EXPECT_THAT(findings[0].text,
              AllOf(HasSubstr("ranks 0 and 1 wait for one another"),
                    HasSubstr("rank 0 waits for rank 1 in all_reduce #1 of group 'a'"),
                    HasSubstr("rank 1 waits for rank 0 in all_reduce #1 of group 'b'")));
}

TEST(FlightExplanationTest, MessagesAreWaitedForToo) {
  FlightOperation receive = call(3, FlightState::running, "recv");
  receive.root = 1;
  const auto findings = explain({flight(0, {call(1, FlightState::done), receive}),
                                 flight(1, {call(1, FlightState::done)}, "running")});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::missing);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].text, HasSubstr("rank 0 has waited for 12.0 s for rank 1; rank 1 last"));
}

TEST(FlightExplanationTest, RanksWithoutARecordAreUnknownNotMissing) {
  const auto findings = explain(
      {flight(0, {call(1, FlightState::running)}), flight(1, {call(1, FlightState::running)})});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::unknown);
  EXPECT_THAT(findings[0].ranks, ElementsAre(2, 3));
  EXPECT_THAT(findings[0].text, HasSubstr("there is no record of ranks 2 and 3"));
}

TEST(FlightExplanationTest, ARankThatWentOnWithoutWaitingIsNotMissed) {
  // A broadcast's source does not wait for the others.
  const auto findings = explain({flight(0, {call(1, FlightState::done, "broadcast"),
                                            call(2, FlightState::done, "broadcast")}),
                                 flight(1, {call(1, FlightState::running, "broadcast")}),
                                 flight(2, {call(1, FlightState::running, "broadcast")}),
                                 flight(3, {call(1, FlightState::running, "broadcast")})});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::together);
  EXPECT_THAT(findings[0].text, Not(HasSubstr("rank 0")));
}

TEST(FlightExplanationTest, WhoHasCalledLessIsBehindWhereNobodyWaits) {
  const auto findings =
      explain({flight(0, {call(1, FlightState::done), call(2, FlightState::done)}),
               flight(1, {call(1, FlightState::done)})},
              2);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::behind);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].text,
              HasSubstr("at train.cc:2: rank 0 has called it; rank 1 has not come; rank 1 last"));
}

TEST(FlightExplanationTest, GroupsOfOneNameAreToldApart) {
  const std::vector<int> low = {0, 1}, high = {2, 3};
  const auto findings =
      explain({flight(0, {call(4, FlightState::done, "all_reduce", "tp", low)}, "running"),
               flight(1, {call(4, FlightState::done, "all_reduce", "tp", low)}, "running"),
               flight(2, {call(4, FlightState::running, "all_reduce", "tp", high)}),
               flight(3, {call(3, FlightState::done, "all_reduce", "tp", high)}, "running")});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Kind::missing);
  EXPECT_THAT(findings[0].ranks, ElementsAre(3));
  EXPECT_THAT(findings[0].text, HasSubstr("all_reduce #4 of group 'tp of ranks 2 and 3'"));
}

TEST(FlightExplanationTest, AGroupThatIsMadeAnewDoesNotMeetItsFormerSelf) {
  // All left the first 'world' after a barrier; rank 1 has not come to the second one's first call.
  const auto former = [] {
    return std::vector{call(1, FlightState::done, "barrier"), call(2, FlightState::failed)};
  };
  auto waiting = former();
  waiting.push_back(call(1, FlightState::running));
  const std::vector<int> both = {0, 1};
  const auto findings = explain({flight(0, waiting), flight(1, {}, "running")}, 2);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].kind, Kind::missing);
  EXPECT_THAT(findings[0].text, HasSubstr("all_reduce #1 of group 'world'"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
}

TEST(FlightExplanationTest, WhoWaitsForARankOfAnotherNodeIsNotTheCause) {
  const std::vector<int> tp = {0, 1}, dp = {1, 3};
  const auto findings =
      explain({flight(0, {call(1, FlightState::running, "all_reduce", "tp", tp)}),
               flight(1, {call(1, FlightState::running, "all_reduce", "dp", dp)})});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].kind, Kind::unknown);
  EXPECT_THAT(findings[0].ranks, ElementsAre(3));
  EXPECT_EQ(findings[0].since, kNow - 12);
}

TEST(FlightExplanationTest, WhereAllIsOverNothingIsFound) {
  EXPECT_THAT(
      explain({flight(0, {call(1, FlightState::done)}), flight(1, {call(1, FlightState::done)})}),
      IsEmpty());
  EXPECT_THAT(explain({}), IsEmpty());
}

TEST(FlightExplanationTest, ManyRanksAreToldInRanges) {
  EXPECT_EQ(rank_list_text({3}), "rank 3");
  EXPECT_EQ(rank_list_text({4, 3, 4}), "ranks 3 and 4");
  EXPECT_EQ(rank_list_text({0, 1, 2, 3, 9, 11, 12}), "ranks 0-3, 9, 11 and 12");
}

}  // namespace
}  // namespace dtrun::rendezvous
