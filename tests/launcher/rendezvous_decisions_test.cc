// Who hosts the c10d rendezvous, and what its options mean: without a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "meeting/host_election.h"
#include "options/node_range.h"
#include "options/port_range.h"
#include "options/rendezvous_conf.h"
#include "plan/launch_plan.h"
#include "sources/option_sources.h"
#include "text/spelling.h"

namespace dtrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Role = HostElection::Role;

Options options_for(const std::string& host) {
  Options options;
  options.rendezvous = Rendezvous::kC10d;
  options.rounds.max_nodes = 2;
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
            "127.0.0.1");
  EXPECT_EQ(elect_host(options_for("localhost"), facts({"127.0.0.1"})).listen_address, "127.0.0.1");
  EXPECT_EQ(elect_host(options_for("node2"), facts({"::1", "10.0.0.2"})).listen_address,
            "10.0.0.2");
}

TEST(HostElectionTest, AnEndpointThatIsEveryMachineItselfIsSaidToBeForOne) {
  EXPECT_THAT(elect_host(options_for("localhost"), facts({"127.0.0.1"})).reason,
              HasSubstr("only agents of this one can join"));
  Options one = options_for("127.0.0.1");
  one.rounds.max_nodes = 1;
  EXPECT_EQ(elect_host(one, facts({"127.0.0.1"})).reason,
            "127.0.0.1 is an address of this machine");
}

TEST(HostElectionTest, ANameThatIsTheLoopbackOnEveryNodeIsSaidToBe) {
  Options options = options_for("master");
  const HostElection election = elect_host(options, facts({"127.0.1.1"}));
  EXPECT_EQ(election.role, Role::kHost);
  EXPECT_THAT(election.reason, HasSubstr("on which master is 127.0.1.1 hosts a job of its own"));
  options.step_nodes = "node[1-2]";
  EXPECT_THAT(error_of([&] { elect_host(options, facts({"127.0.1.1"})); }),
              AllOf(HasSubstr("'master' of --rdzv_endpoint is 127.0.1.1, which every node is"),
                    HasSubstr("node[1-2]")));
  // A node's own name may be, in its own /etc/hosts.
  options.master_addr = "node2.elsewhere";
  EXPECT_THAT(elect_host(options, facts({"127.0.1.1"})).reason,
              testing::Not(HasSubstr("of its own")));
  options.master_addr = "master";
  options.hosting = Hosting::kAlways;
  EXPECT_EQ(elect_host(options, facts({"127.0.1.1"})).role, Role::kHost);
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
  one.rounds.max_nodes = 1;
  EXPECT_EQ(elect_host(one, facts({"127.0.1.1"})).listen_address, "127.0.1.1");
}

TEST(HostElectionTest, TheFirstByAddressOfSeveralMachinesBehindOneNameHosts) {
  const Options options = options_for("headless");
  // As each of three machines may be answered.
  const std::vector<std::string> order_here = {"fd00::1", "10.0.0.10", "10.0.0.9"},
                                 elsewhere = {"10.0.0.9", "fd00::1", "10.0.0.10"};
  EndpointFacts first = facts(order_here), second = facts(elsewhere), third = facts(elsewhere);
  first.own_addresses = {"127.0.0.1", "10.0.0.9"};
  second.own_addresses = {"127.0.0.1", "10.0.0.10"};
  third.own_addresses = {"127.0.0.1", "fd00::1"};
  const HostElection host = elect_host(options, first);
  EXPECT_EQ(host.role, Role::kHost);
  EXPECT_EQ(host.listen_address, "10.0.0.9");
  for (const EndpointFacts& other : {second, third}) {
    const HostElection member = elect_host(options, other);
    EXPECT_EQ(member.role, Role::kMember);
    EXPECT_THAT(member.reason, AllOf(HasSubstr("headless is several machines"),
                                     HasSubstr("hosts, 10.0.0.9; this one has")));
    EXPECT_THAT(member.addresses, ElementsAre("10.0.0.9", "10.0.0.10", "fd00::1"));
  }
  // All of one machine with two networks: no other can have the first.
  first.own_addresses = order_here;
  EXPECT_EQ(elect_host(options, first).role, Role::kHost);
  // What the resolver adds for this machine alone is no address for the others.
  EXPECT_THAT(elect_host(options_for("node1"), facts({"127.0.1.1", "10.0.0.1"})).addresses,
              ElementsAre("10.0.0.1"));
}

TEST(HostElectionTest, AMachineWithoutIPv4HostsAtItsIPv6Address) {
  EndpointFacts only_v6 = facts({"2001:db8::2"});
  only_v6.own_addresses = {"::1", "fe80::1%eth0", "2001:db8::2"};
  const HostElection election = elect_host(options_for("six"), only_v6);
  EXPECT_EQ(election.role, Role::kHost);
  EXPECT_EQ(election.listen_address, "2001:db8::2");
}

TEST(OwnAddressTest, IsWhatTheOthersCanUse) {
  Options options = options_for("");
  EndpointFacts own = facts({"127.0.1.1"});
  own.own_addresses = {"127.0.0.1", "169.254.3.4", "192.168.7.7", "10.0.0.2", "fe80::1%e"};
  EXPECT_EQ(choose_own_address(options, own).host, "10.0.0.2");
  EXPECT_THAT(choose_own_address(options, own).reason, HasSubstr("--local_addr"));
  own.addresses = {"192.168.7.7"};
  EXPECT_EQ(choose_own_address(options, own).listen_address, "192.168.7.7");
  own.own_addresses = {"127.0.0.1", "fe80::1%e"};
  EXPECT_EQ(choose_own_address(options, own).host, "127.0.0.1");
  options.rounds.max_nodes = 1;
  EXPECT_EQ(choose_own_address(options, own).reason, "there is one node");
}

TEST(OwnAddressTest, IsTheUsersWhereItIsOfThisMachine) {
  Options options = options_for("");
  options.local_addr = "node2-ib";
  const OwnAddress named = choose_own_address(options, facts({"10.0.0.2"}));
  EXPECT_EQ(named.host, "node2-ib");
  EXPECT_EQ(named.listen_address, "10.0.0.2");
  EXPECT_EQ(choose_own_address(options, facts({"127.0.1.1"})).listen_address, "0.0.0.0");
  EXPECT_THAT(error_of([&] { choose_own_address(options, facts({"10.9.9.9"})); }),
              AllOf(HasSubstr("--local_addr=node2-ib is no address"), HasSubstr("10.0.0.2")));
  EXPECT_THAT(error_of([&] { choose_own_address(options, facts({})); }),
              HasSubstr("does not resolve"));
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
  options.rounds.max_nodes = 1;
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

TEST(RendezvousConfTest, KnowsTorchrunsKeysAndToleratesQuotes) {
  const RendezvousConf conf = parse_rendezvous_conf(
      "'timeout=900,join_timeout=2.5,read_timeout=60,is_host=False,last_call_timeout=1,"
      "close_timeout=7,heartbeat_timeout=4,keep_alive_interval=0.5,keep_alive_max_attempt=6,"
      "store_type=file,protocol=https,ssl_cert=/c,ssl_cert_key=/k,ca_cert=/a,token_file=/t'");
  EXPECT_EQ(conf.join_timeout, milliseconds(2500));
  EXPECT_EQ(conf.read_timeout, seconds(60));
  EXPECT_EQ(conf.last_call_timeout, seconds(1));
  EXPECT_EQ(conf.close_timeout, seconds(7));
  EXPECT_EQ(conf.keep_alive_interval, milliseconds(500));
  EXPECT_EQ(conf.keep_alive_max_attempt, 6);
  EXPECT_EQ(conf.hosting, Hosting::kNever);
  EXPECT_EQ(conf.store_type, StoreType::kFile);
  EXPECT_EQ(conf.protocol, EtcdProtocol::kHttps);
  EXPECT_EQ(conf.ssl_cert + conf.ssl_cert_key + conf.ca_cert + conf.token_file, "/c/k/a/t");
  const RendezvousConf older =
      parse_rendezvous_conf("cert=/c,key=/k,cacert=/a,etcd_prefix=/torchelastic/p2p");
  EXPECT_EQ(older.ssl_cert + older.ssl_cert_key + older.ca_cert, "/c/k/a");
  EXPECT_THAT(keys_without_effect(older, Rendezvous::kEtcd, NodeCount::kFixed),
              ElementsAre(HasSubstr("'etcd_prefix'")));
  EXPECT_EQ(conf.proof, AgentProof::kByPlace);
  EXPECT_EQ(parse_rendezvous_conf("token=munge").proof, AgentProof::kMunge);
  EXPECT_EQ(parse_rendezvous_conf("token=none,store_token=false").proof, AgentProof::kNone);
  EXPECT_EQ(conf.store_token, std::nullopt);
  EXPECT_EQ(parse_rendezvous_conf("store_token=true").store_token, true);
  EXPECT_EQ(parse_rendezvous_conf("timeout=900").join_timeout, seconds(900));
  EXPECT_EQ(parse_rendezvous_conf("").join_timeout, std::nullopt);
}

TEST(RendezvousConfTest, WhatCannotBeReadIsNamed) {
  const std::vector<std::vector<std::string>> cases = {
      {"speed=9", "'speed=9'", "no key", "the keys are join_timeout, timeout"},
      {"join_timout=9", "'join_timout=9'", "did you mean join_timeout?"},
      {"keepalive_interval=9", "did you mean keep_alive_interval?"},
      {"join_timeout", "'join_timeout' is not key=value"},
      {"join_timeout=", "is not key=value"},
      {"=5", "'=5' is not key=value"},
      {",", "'' is not key=value"},
      {"timeout=1,timeout=2", "'timeout=2' is given twice"},
      {"close_timeout=0", "close_timeout=0", "0.001 or more"},
      {"heartbeat_timeout=nan", "heartbeat_timeout=nan", "number of seconds"},
      {"last_call_timeout=5s", "number of seconds"},
      {"keep_alive_max_attempt=0", "from 1 to 1000000"},
      {"keep_alive_max_attempt=2.5", "from 1 to 1000000"},
      {"is_host=maybe", "must be true or false"},
      {"store_type=redis", "must be tcp or file"},
      {"protocol=ftp", "must be http or https"},
      {"ssl_cert=/c,cert=/d", "'cert=/d' is given twice"},
      {"ssl_cert_key=/k", "is the key of no certificate"}};
  for (const auto& words : cases) {
    const std::string error = error_of([&] { parse_rendezvous_conf(words[0]); });
    for (std::size_t i = 1; i < words.size(); ++i)
      EXPECT_THAT(error, HasSubstr(words[i])) << words[0];
    EXPECT_THAT(error, HasSubstr("try: "));
  }
}

TEST(RendezvousConfTest, AKeyThatDecidesNothingIsSaidToDoSo) {
  const RendezvousConf conf = parse_rendezvous_conf(
      "is_host=1,store_type=tcp,protocol=http,last_call_timeout=1,heartbeat_timeout=5,timeout=1");
  EXPECT_THAT(keys_without_effect(conf, Rendezvous::kC10d, NodeCount::kElastic),
              ElementsAre(HasSubstr("'protocol'"), HasSubstr("'heartbeat_timeout'")));
  EXPECT_THAT(keys_without_effect(conf, Rendezvous::kEtcd, NodeCount::kFixed),
              ElementsAre(HasSubstr("'is_host'"), HasSubstr("'store_type'"),
                          AllOf(HasSubstr("'last_call_timeout'"), HasSubstr("--nnodes")),
                          HasSubstr("'heartbeat_timeout'")));
  EXPECT_THAT(keys_without_effect(conf, Rendezvous::kFile, NodeCount::kElastic),
              testing::Contains(HasSubstr("the first agent hosts")));
}

TEST(NodeRangeTest, IsOneNumberOrTwo) {
  EXPECT_EQ(parse_node_range("3").least, 3);
  EXPECT_EQ(parse_node_range("3").most, 3);
  EXPECT_EQ(parse_node_range("1:4").least, 1);
  EXPECT_EQ(parse_node_range("1:4").most, 4);
  const std::vector<std::pair<std::string, std::string>> nonsense = {
      {"", "'' is no number"},      {"x", "'x' is no number"},
      {":", "MIN '' is no number"}, {"1:", "MAX '' is no number"},
      {"1:2:3", "three fields"},    {"0", "at least 1"},
      {"0:2", "MIN is 0"},          {"2:1", "at least 2 and at most 1"},
      {"-1:2", "MIN is -1"},        {"1:2147483648", "more nodes"},
      {"1: 2", "MAX ' 2' is no"},   {"99999999999999999999", "no number"}};
  for (const auto& [text, demand] : nonsense)
    EXPECT_THAT(error_of([&] { parse_node_range(text); }), HasSubstr(demand)) << text;
}

TEST(PortRangeTest, IsOnePortOrTwo) {
  EXPECT_EQ(parse_port_range("5000").last, 5000);
  EXPECT_EQ(parse_port_range("5000:5010").first, 5000);
  EXPECT_EQ(parse_port_range("5000:5010").last, 5010);
  for (const char* text : {"", "0", "0:5", "5:", "a:b", "1:65536", "1:2:3"})
    EXPECT_THAT(error_of([&] { parse_port_range(text); }), HasSubstr("is no port")) << text;
  EXPECT_THAT(error_of([&] { parse_port_range("7:6"); }), HasSubstr("before it begins"));
}

TEST(PortRangeTest, TheFirstFreePortIsTakenAndNoneIsAnError) {
  const base::UniqueFd any = listen_in_range("127.0.0.1", {});
  const std::uint16_t taken = base::local_port(any.get());
  EXPECT_NE(taken, 0);
  EXPECT_THAT(error_of([&] {
                listen_in_range("127.0.0.1", {taken, taken});
              }),
              AllOf(HasSubstr("no port of --port_range"), HasSubstr("is free on 127.0.0.1")));
  if (taken == 65535) return;
  const base::UniqueFd next = listen_in_range("127.0.0.1", {taken, 65535});
  EXPECT_GT(base::local_port(next.get()), taken);
}

TEST(SpellingTest, TheNearestNameIsTheOneMeant) {
  const std::vector<std::string_view> names = {"timeout", "join_timeout", "is_host"};
  EXPECT_EQ(nearest_name("timeuot", names), "timeout");
  EXPECT_EQ(nearest_name("joni", names), "join_timeout");
  EXPECT_EQ(nearest_name("ishost", names), "is_host");
  EXPECT_EQ(nearest_name("speed", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(65, 't'), names), "");
}

class RendezvousOptionsTest : public testing::Test {
 protected:
  static Options parse(std::vector<std::string> words) {
    words.emplace_back("true");
    return parse_options("dtrun", words, base::Environment());
  }
};

TEST_F(RendezvousOptionsTest, ThePortIsTorchrunsWhereNoneIsGiven) {
  EXPECT_EQ(parse({"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=h"}).master_port, 29400);
  EXPECT_EQ(parse({"--nnodes=2", "--rdzv_endpoint=h"}).master_port, 29500);
  EXPECT_EQ(parse({"--nnodes=2", "--rdzv_endpoint=[::1]:7"}).master_addr, "::1");
  EXPECT_EQ(parse({"--rdzv_backend=c10d"}).master_addr, "127.0.0.1");
  EXPECT_EQ(parse({"--rdzv_endpoint="}).master_addr, "127.0.0.1");
  EXPECT_EQ(parse({"--rdzv_backend=c10d"}).node_rank, std::nullopt);
  EXPECT_THAT(parse({"--rdzv_backend=c10d", "--master_port=5"}).warnings,
              testing::ElementsAre(HasSubstr("--master_port is without effect")));
}

// torchrun's --help: "IPv6 should have the pattern `[0:0:0:0:0:0:0:1]`".
TEST_F(RendezvousOptionsTest, AnAddressOfIpv6MayStandInBrackets) {
  EXPECT_EQ(parse({"--master_addr=[0:0:0:0:0:0:0:1]"}).master_addr, "0:0:0:0:0:0:0:1");
  EXPECT_EQ(parse({"--master_addr=::1"}).master_addr, "::1");
  EXPECT_EQ(parse({"--rdzv_backend=c10d", "--local_addr=[::1]"}).local_addr, "::1");
  EXPECT_THAT(error_of([] { parse({"--master_addr=node1:29500"}); }),
              HasSubstr("must be a host without a port"));
  EXPECT_THAT(error_of([] { parse({"--master_addr=[::1"}); }), HasSubstr("must be a host: "));
}

TEST_F(RendezvousOptionsTest, TheHeartbeatWindowIsIntervalTimesAttempts) {
  EXPECT_EQ(parse({}).rounds.silence_window, seconds(15));
  EXPECT_EQ(parse({"--rdzv_conf=keep_alive_interval=2"}).rounds.silence_window, seconds(6));
  const Options options = parse({"--rdzv_conf=keep_alive_interval=0.5,keep_alive_max_attempt=2"});
  EXPECT_EQ(options.rounds.keep_alive_interval, milliseconds(500));
  EXPECT_EQ(options.rounds.silence_window, seconds(1));
}

TEST_F(RendezvousOptionsTest, AFileIsAnEndpointOfC10d) {
  const Options options = parse({"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=/a:b/c",
                                 "--rdzv_conf=store_type=file"});
  EXPECT_EQ(options.rendezvous, Rendezvous::kFile);
  EXPECT_EQ(options.head_file, "/a:b/c");
  EXPECT_EQ(options.master_port, std::nullopt);
  EXPECT_THAT(error_of([] {
                parse({"--rdzv_backend=c10d", "--rdzv_conf=store_type=file"});
              }),
              HasSubstr("needs --rdzv_endpoint"));
}

}  // namespace
}  // namespace dtrun::launcher
