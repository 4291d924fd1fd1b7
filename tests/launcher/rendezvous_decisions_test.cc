// Who hosts the c10d rendezvous, who may join, which node gets which number: without a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtrun/base/error.h"
#include "host_election.h"
#include "launch_plan.h"
#include "node_roster.h"
#include "rendezvous_conf.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Role = HostElection::Role;

Options options_for(const std::string& host) {
  Options options;
  options.rendezvous = Rendezvous::kC10d;
  options.node_count = 2;
  options.master_addr = host;
  options.master_port = 29400;
  return options;
}

EndpointFacts facts(std::vector<std::string> addresses) {
  return {std::move(addresses),
          "Name or service not known",
          {"127.0.0.1", "10.0.0.2", "::1"},
          {"node2", "node2.cluster"}};
}

template <typename F>
std::string error_of(F&& run) {
  try {
    run();
  } catch (const base::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(HostElectionTest, TheMachineThatTheEndpointNamesHosts) {
  for (const auto& [name, address] : std::vector<std::pair<std::string, std::string>>{
           {"node2", "10.0.0.2"}, {"10.0.0.2", "10.0.0.2"}, {"storage-name", "10.0.0.2"}}) {
    const HostElection election = elect_host(options_for(name), facts({address}));
    EXPECT_EQ(election.role, Role::kHost) << name;
    EXPECT_EQ(election.listen_address, "10.0.0.2") << name;
    EXPECT_THAT(election.reason, HasSubstr("this machine"));
  }
  const HostElection other = elect_host(options_for("node1"), facts({"10.0.0.1"}));
  EXPECT_EQ(other.role, Role::kMember);
  EXPECT_EQ(other.reason,
            "node1 (10.0.0.1) is no address of this machine (127.0.0.1, 10.0.0.2, ::1)");
}

TEST(HostElectionTest, AgentsOfOneMachineAllTryTheSameAddress) {
  EXPECT_EQ(elect_host(options_for("localhost"), facts({"::1", "127.0.0.1"})).listen_address,
            "::1");
  EXPECT_EQ(elect_host(options_for("localhost"), facts({"127.0.0.1"})).listen_address, "127.0.0.1");
  EXPECT_EQ(elect_host(options_for("node2"), facts({"::1", "10.0.0.2"})).listen_address,
            "10.0.0.2");
}

TEST(HostElectionTest, ANameThatMeansTheLoopbackHereIsListenedToEverywhere) {
  EXPECT_EQ(elect_host(options_for("node2"), facts({"127.0.1.1"})).listen_address, "0.0.0.0");
  EXPECT_EQ(elect_host(options_for("node2"), facts({})).listen_address, "0.0.0.0");
  EXPECT_EQ(elect_host(options_for("node2.cluster"), facts({"198.51.100.7"})).listen_address,
            "0.0.0.0");
  EndpointFacts only_v6 = facts({"::1"});
  only_v6.own_addresses = {"::1", "2001:db8::2"};
  EXPECT_EQ(elect_host(options_for("node2"), only_v6).listen_address, "::");
  Options one = options_for("node2");
  one.node_count = 1;
  EXPECT_EQ(elect_host(one, facts({"127.0.1.1"})).listen_address, "127.0.1.1");
}

TEST(HostElectionTest, TheUserCanDecideAndNodeZeroHosts) {
  Options options = options_for("node1");
  options.hosting = Hosting::kAlways;
  EXPECT_EQ(elect_host(options, facts({"10.0.0.1"})).role, Role::kHost);
  options = options_for("node2");
  options.hosting = Hosting::kNever;
  EXPECT_THAT(elect_host(options, facts({"10.0.0.2"})).reason, HasSubstr("is_host=false"));
  options.hosting = Hosting::kByAddress;
  options.node_rank = 1;
  EXPECT_EQ(elect_host(options, facts({"10.0.0.2"})).role, Role::kMember);
  options = options_for("node1");
  options.node_rank = 0;
  EXPECT_THAT(error_of([&] { elect_host(options, facts({"10.0.0.1"})); }),
              AllOf(HasSubstr("this is node 0"), HasSubstr("another machine, 'node1'")));
  options = options_for("node1");
  options.node_count = 1;
  EXPECT_THAT(error_of([&] { elect_host(options, facts({"10.0.0.1"})); }),
              HasSubstr("leave --rdzv_endpoint out"));
}

TEST(HostElectionTest, ANameThatNobodyKnowsIsAnError) {
  EXPECT_THAT(error_of([] { elect_host(options_for("nodde1"), facts({})); }),
              AllOf(HasSubstr("'nodde1'"), HasSubstr("not known on node2"),
                    HasSubstr("Name or service not known")));
}

TEST(MasterAddressTest, IsTheNameUnlessThatMeansTheLoopbackHere) {
  EXPECT_EQ(master_address("node2", "10.0.0.2", {"10.0.0.2"}), "node2");
  EXPECT_EQ(master_address("node2", "0.0.0.0", {"127.0.0.1", "10.0.0.2"}), "10.0.0.2");
  EXPECT_EQ(master_address("localhost", "127.0.0.1", {"127.0.0.1"}), "localhost");
  EXPECT_EQ(master_address("node2", "0.0.0.0", {}), "node2");
}

TEST(NaturalOrderTest, RunsOfDigitsCompareAsNumbers) {
  const std::vector<std::string> ordered = {
      "a", "node1", "node2", "node02-1", "node10", "node10a", "node10b9", "node10b10.x", "rack"};
  for (std::size_t i = 0; i < ordered.size(); ++i)
    for (std::size_t j = 0; j < ordered.size(); ++j)
      EXPECT_EQ(naturally_before(ordered[i], ordered[j]), i < j) << ordered[i] << " " << ordered[j];
}

Hello hello(const std::string& host, int node_rank = kNoNodeRank) {
  return {node_rank, 4, 2, "job", host};
}

TEST(NodeRosterTest, NodesGetNumbersInTheNaturalOrderOfTheirNames) {
  NodeRoster roster(hello("node7"));
  roster.add(0, hello("node10"));
  roster.add(1, hello("gone"));
  roster.add(2, hello("node2"));
  roster.remove(1);
  EXPECT_FALSE(roster.complete());
  Hello big = hello("node2");
  big.local_ranks = 5;
  roster.add(3, big);
  EXPECT_TRUE(roster.complete());
  const auto places = roster.places();
  const auto expect = [&](int id, int node_rank, int base_rank) {
    EXPECT_EQ(places.at(id).node_rank, node_rank) << id;
    EXPECT_EQ(places.at(id).base_rank, base_rank) << id;
  };
  expect(NodeRoster::kHead, 0, 0);
  expect(2, 1, 2);
  expect(3, 2, 4);
  expect(0, 3, 9);
  EXPECT_EQ(roster.world_size(), 11);
}

TEST(NodeRosterTest, NumbersThatAllHaveGivenCount) {
  NodeRoster roster(hello("z", 0));
  roster.add(0, hello("a", 2));
  roster.add(1, hello("b", 1));
  EXPECT_EQ(roster.who_is_here("5 s"), "3 of 4 nodes have joined in 5 s; missing: node 3");
  roster.add(2, hello("c", 3));
  EXPECT_EQ(roster.places().at(0).node_rank, 2);
  EXPECT_EQ(roster.places().at(1).base_rank, 2);
}

TEST(NodeRosterTest, WhoDoesNotFitIsToldWhy) {
  using Kind = Objection::Kind;
  NodeRoster roster(hello("h0"));
  const auto objection = [&](Hello hello, Kind kind) {
    const Objection result = roster.objection_to(hello);
    EXPECT_EQ(result.kind, kind) << result.text;
    return result.text;
  };
  EXPECT_EQ(objection(hello("h1"), Kind::kNone), "");
  Hello other = hello("h1");
  other.run_id = "another";
  EXPECT_THAT(objection(other, Kind::kStranger), HasSubstr("job 'another', and this is job 'job'"));
  other = hello("h1");
  other.node_count = 3;
  EXPECT_THAT(objection(other, Kind::kContradiction), HasSubstr("--nnodes=3"));
  other = hello("h1");
  other.local_ranks = 0;
  EXPECT_THAT(objection(other, Kind::kContradiction), HasSubstr("no rank"));
  other.local_ranks = kMostLocalRanks + 1;
  EXPECT_THAT(objection(other, Kind::kContradiction), HasSubstr("brings 65537 ranks"));
  EXPECT_THAT(objection(hello("h1", 2), Kind::kContradiction), HasSubstr("node 0 without"));
  roster.end("node 0 was stopped");
  EXPECT_THAT(objection(hello("h1"), Kind::kStranger),
              HasSubstr("is ending before it has begun: node 0 was stopped"));
  roster.add(0, hello("h1"));
  roster.start();
  EXPECT_THAT(objection(hello("h2"), Kind::kStranger), HasSubstr("4 nodes (h0, h1)"));

  roster = NodeRoster(hello("h0", 0));
  EXPECT_THAT(objection(hello("h1"), Kind::kContradiction), HasSubstr("without --node_rank"));
  EXPECT_THAT(objection(hello("h1", 4), Kind::kContradiction), HasSubstr("no node 4"));
  EXPECT_THAT(objection(hello("h1", 0), Kind::kContradiction), HasSubstr("taken already, by h0"));
}

TEST(RendezvousConfTest, KnowsItsKeysAndToleratesQuotes) {
  const RendezvousConf conf =
      parse_rendezvous_conf("'timeout=900,join_timeout=2.5,read_timeout=60,is_host=False'");
  EXPECT_EQ(conf.join_timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(conf.read_timeout, std::chrono::seconds(60));
  EXPECT_EQ(conf.hosting, Hosting::kNever);
  EXPECT_EQ(parse_rendezvous_conf("timeout=900").join_timeout, std::chrono::seconds(900));
  EXPECT_EQ(parse_rendezvous_conf("").join_timeout, std::nullopt);
}

TEST(EndpointOptionTest, ThePortIsTorchrunsWhereNoneIsGiven) {
  const auto parse = [](std::vector<std::string> words) {
    words.push_back("true");
    return parse_options("dtrun", words, base::Environment());
  };
  EXPECT_EQ(parse({"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=h"}).master_port, 29400);
  EXPECT_EQ(parse({"--nnodes=2", "--rdzv_endpoint=h"}).master_port, 29500);
  EXPECT_EQ(parse({"--nnodes=2", "--rdzv_endpoint=[::1]:7"}).master_addr, "::1");
  EXPECT_EQ(parse({"--rdzv_backend=c10d"}).master_addr, "127.0.0.1");
  EXPECT_EQ(parse({"--rdzv_backend=c10d"}).node_rank, std::nullopt);
  EXPECT_THAT(parse({"--rdzv_backend=c10d", "--master_port=5"}).warnings,
              testing::ElementsAre(HasSubstr("--master_port is without effect")));
}

}  // namespace
}  // namespace dtrun::launcher
