// Elections over a real etcd: agents as objects on one loop, and as processes where they are killed
// or stopped.
#include "dtrun/rendezvous/etcd_election.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "dtrun/base/unique_fd.h"
#include "rendezvous/own_etcd_client.h"
#include "support/promptness.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::EtcdLab;

constexpr seconds kTtl{3};

class EtcdElectionTest : public EtcdLabTest {};

EtcdElectionSettings settings_of(const EtcdLab& lab, const std::string& run,
                                 const std::string& node) {
  EtcdElectionSettings settings;
  settings.etcd.endpoints = lab.endpoints();
  settings.run_id = run;
  settings.node = node;
  settings.address = {"10.0.0.1", static_cast<std::uint16_t>(1000 + node.back())};
  settings.ttl = kTtl;
  return settings;
}

// One agent, and what it was told: "leads EPOCH", "follows NODE EPOCH", "down", "closed VERDICT",
// "trouble". The epochs are counted from 1 on.
class Agent {
 public:
  Agent(base::EventLoop& loop, const EtcdElectionSettings& settings)
      : election(std::make_unique<EtcdElection>(
            loop, settings,
            EtcdElectionCallbacks{
                .on_leader = [this](const ElectedHead& its_head) { take(its_head); },
                .on_stepped_down =
                    [this](const SteppedDown& its_down) {
                      down = its_down;
                      told.push_back("down");
                    },
                .on_closed =
                    [this](const std::string& verdict) { told.push_back("closed " + verdict); },
                .on_trouble =
                    [this](const base::Error& error) {
                      trouble = error.what();
                      told.push_back("trouble");
                    }})) {}

  bool was_told(const std::string& what) const {
    return std::find(told.begin(), told.end(), what) != told.end();
  }

  std::vector<std::string> told;
  ElectedHead head;
  SteppedDown down;
  std::string trouble;
  std::unique_ptr<EtcdElection> election;

 private:
  void take(const ElectedHead& its_head) {
    head = its_head;
    told.push_back(head.who == ElectedHead::Who::self ? "leads" : "follows " + head.node);
  }
};

void run_until(base::EventLoop& loop, const std::function<bool()>& done) {
  const Deadline deadline = Deadline::after(seconds(60));
  while (!done()) {
    ASSERT_FALSE(deadline.expired()) << "nobody has told what was waited for";
    loop.run_some(Deadline::after(milliseconds(100)));
  }
}

std::vector<EtcdKeyValue> keys_in_etcd(const EtcdLab& lab, const std::string& prefix) {
  return OwnEtcdClient(lab.endpoints()).keys(prefix);
}

TEST_F(EtcdElectionTest, OneLeadsTheOthersFollowAndTheNextGoesOnWithTheRounds) {
  base::EventLoop loop;
  Agent a(loop, settings_of(*lab_, "run/1", "a"));
  run_until(loop, [&] { return a.was_told("leads"); });
  EXPECT_EQ(a.head.last_round, 0);
  EXPECT_EQ(a.head.address.to_string(), "10.0.0.1:1097");
  EXPECT_EQ(a.election->held_epoch(), a.head.epoch);
  Agent b(loop, settings_of(*lab_, "run/1", "b"));
  Agent other_run(loop, settings_of(*lab_, "run/2", "c"));
  run_until(loop, [&] { return b.was_told("follows a") && other_run.was_told("leads"); });
  EXPECT_EQ(b.head.address.to_string(), a.head.address.to_string());
  EXPECT_EQ(b.head.epoch, a.head.epoch);
  EXPECT_EQ(b.election->held_epoch(), std::nullopt);
  const std::string prefix = "/torch/elastic/rendezvous/run%2F1/";
  const auto keys = keys_in_etcd(*lab_, prefix);
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0].key, prefix + "leader");
  EXPECT_EQ(keys[1].key, prefix + "members/a");
  EXPECT_EQ(keys[2].key, prefix + "members/b");

  int recorded = 0;
  for (const int round : {1, 2, 7}) a.election->record_round(round, [&] { ++recorded; });
  // Of no effect: it does not lead.
  b.election->record_round(100, [&] { recorded += 100; });
  run_until(loop, [&] { return recorded == 3; });
  a.election.reset();  // gives the leadership back, which is faster than any lease
  run_until(loop, [&] { return b.was_told("leads"); });
  EXPECT_EQ(b.head.last_round, 7);
  EXPECT_GT(b.head.epoch, a.head.epoch);
  EXPECT_EQ(keys_in_etcd(*lab_, prefix + "members/").size(), 1u);

  Agent d(loop, settings_of(*lab_, "run/1", "d"));
  run_until(loop, [&] { return d.was_told("follows b"); });
  bool closed = false;
  b.election->close("all done", [&] { closed = true; });
  run_until(loop, [&] { return closed && d.was_told("closed all done"); });
  run_until(loop, [&] { return b.was_told("closed all done"); });
  EXPECT_EQ(b.election->held_epoch(), std::nullopt);
  // Closed is final.
  Agent late(loop, settings_of(*lab_, "run/1", "e"));
  run_until(loop, [&] { return !late.told.empty(); });
  EXPECT_THAT(late.told, ElementsAre("closed all done"));
}

TEST_F(EtcdElectionTest, AKeyThatIsTakenAwayEndsALeadershipAndSoDoesALease) {
  base::EventLoop loop;
  Agent agent(loop, settings_of(*lab_, "taken", "a"));
  run_until(loop, [&] { return agent.was_told("leads"); });
  const Interrupt interrupt;
  EtcdOptions options;
  options.endpoints = lab_->endpoints();
  EtcdClient client(options, interrupt);
  const std::string leader = "/torch/elastic/rendezvous/taken/leader";
  client.remove(EtcdKeys::one(leader), Deadline::after(seconds(60)));
  run_until(loop, [&] { return agent.told.size() == 3; });
  EXPECT_THAT(agent.told, ElementsAre("leads", "down", "leads"));
  EXPECT_GT(agent.head.epoch, agent.down.epoch);
  EXPECT_EQ(agent.down.cause, SteppedDown::Cause::replaced);
  const auto key = keys_in_etcd(*lab_, leader).at(0);
  client.revoke_lease(key.lease, Deadline::after(seconds(60)));
  run_until(loop, [&] { return agent.told.size() == 5; });
  EXPECT_THAT(agent.told, ElementsAre("leads", "down", "leads", "down", "leads"));
  EXPECT_EQ(keys_in_etcd(*lab_, "/torch/elastic/rendezvous/taken/members/").size(), 1u);
  // Somebody else's leadership ends ours, and what is no address is said.
  client.put(leader, R"({"host":"h","port":7,"node":"x"})", 0, Deadline::after(seconds(60)));
  run_until(loop, [&] { return agent.was_told("down") && agent.told.back() != "leads"; });
  bool recorded = false;
  agent.election->record_round(3, [&] { recorded = true; });
  for (const char* wrong : {"no json", "[]", "{}", R"({"host":"h","port":70000})"}) {
    client.put(leader, wrong, 0, Deadline::after(seconds(60)));
    Agent other(loop, settings_of(*lab_, "taken", "b"));
    run_until(loop, [&] { return other.was_told("trouble"); });
    EXPECT_THAT(other.trouble, HasSubstr("holds no address of a head"));
  }
  EXPECT_FALSE(recorded);
}

// Who leads no more and does not know it yet judges too late: what was written before stands.
TEST_F(EtcdElectionTest, AVerdictThatComesTooLateGivesWayToTheOneThatIsWritten) {
  OwnEtcdClient another(lab_->endpoints());
  bool was_too_late = false;
  for (int i = 0; i < 50 && !was_too_late; ++i) {
    base::EventLoop loop;
    const std::string run = "late" + std::to_string(i);
    const std::string prefix = "/torch/elastic/rendezvous/" + run + "/";
    Agent agent(loop, settings_of(*lab_, run, "a"));
    run_until(loop, [&] { return agent.was_told("leads"); });
    bool is_written = false;
    agent.election->close("well", [&] { is_written = true; });
    // Its thread asks for a lease first: mostly this is quicker.
    EtcdTxn txn;
    txn.if_created_at(prefix + "closed", 0)
        .then_put(prefix + "closed", "badly")
        .then_delete(EtcdKeys::one(prefix + "leader"));
    was_too_late = another->txn(txn, Deadline::after(seconds(60))).succeeded;
    const std::string verdict = was_too_late ? "closed badly" : "closed well";
    run_until(loop,
              [&] { return agent.was_told("closed well") || agent.was_told("closed badly"); });
    EXPECT_TRUE(agent.was_told(verdict)) << verdict;
    agent.election.reset();
    loop.run_some(Deadline::after(milliseconds(0)));
    EXPECT_EQ(is_written, !was_too_late);
  }
  EXPECT_TRUE(was_too_late);
}

// An agent in a process of its own; what it is told it writes, a line each.
class AgentProcess {
 public:
  AgentProcess(const EtcdLab& lab, const std::string& run, const std::string& node)
      : pipe_(base::make_pipe()), pid_(::fork()) {
    if (pid_ == 0) live(settings_of(lab, run, node));
    pipe_.write_end.reset();
  }
  ~AgentProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void signal(int number) const { ::kill(pid_, number); }

  /// The next line, "" after a minute.
  std::string next() {
    while (text_.find('\n') == std::string::npos) {
      pollfd wait{pipe_.read_end.get(), POLLIN, 0};
      char block[256];
      if (::poll(&wait, 1, 60000) <= 0) return "";
      const ssize_t n = ::read(pipe_.read_end.get(), block, sizeof block);
      if (n <= 0) return "";
      text_.append(block, static_cast<std::size_t>(n));
    }
    const std::string line = text_.substr(0, text_.find('\n'));
    text_.erase(0, line.size() + 1);
    return line;
  }

 private:
  [[noreturn]] void live(const EtcdElectionSettings& settings) {
    const auto say = [&](const std::string& line) {
      const std::string text = line + "\n";
      if (::write(pipe_.write_end.get(), text.data(), text.size()) < 0) ::_exit(1);
    };
    base::EventLoop loop;
    std::unique_ptr<EtcdElection> election;
    election = std::make_unique<EtcdElection>(
        loop, settings,
        EtcdElectionCallbacks{
            .on_leader =
                [&](const ElectedHead& head) {
                  const bool self = head.who == ElectedHead::Who::self;
                  say(self ? "leads" : "follows " + head.node);
                },
            .on_stepped_down =
                [&](const SteppedDown&) { say(election->held_epoch() ? "holds on" : "down"); },
            .on_closed = [&](const std::string& verdict) { say("closed " + verdict); },
            .on_trouble = [&](const base::Error&) { say("trouble"); }});
    loop.run();
    ::_exit(0);
  }

  base::Pipe pipe_;
  pid_t pid_;
  std::string text_;
};

// Two runs, so that both leases run out at the same time.
TEST_F(EtcdElectionTest, ALeaderThatIsStoppedOrKilledIsReplacedAndFenced) {
  AgentProcess a(*lab_, "stopped", "a");
  AgentProcess c(*lab_, "killed", "c");
  ASSERT_EQ(a.next(), "leads");
  ASSERT_EQ(c.next(), "leads");
  AgentProcess b(*lab_, "stopped", "b");
  AgentProcess d(*lab_, "killed", "d");
  ASSERT_EQ(b.next(), "follows a");
  ASSERT_EQ(d.next(), "follows c");
  const auto begin = Deadline::Clock::now();
  a.signal(SIGSTOP);
  c.signal(SIGKILL);
  ASSERT_EQ(b.next(), "leads");
  ASSERT_EQ(d.next(), "leads");
  EXPECT_LT(Deadline::Clock::now() - begin, kTtl + testing_support::kPatience);
  a.signal(SIGCONT);
  EXPECT_EQ(a.next(), "down");
  EXPECT_EQ(a.next(), "follows b");
}

TEST_F(EtcdElectionTest, WithoutEtcdALeaderStepsDownInTimeAndMembersAreToldOnce) {
  base::EventLoop loop;
  Agent a(loop, settings_of(*lab_, "outage", "a"));
  run_until(loop, [&] { return a.was_told("leads"); });
  Agent b(loop, settings_of(*lab_, "outage", "b"));
  run_until(loop, [&] { return b.was_told("follows a"); });
  const std::int64_t epoch = a.head.epoch;
  const auto time_to_step_down = [&](const Agent& leader) {
    const auto begin = Deadline::Clock::now();
    lab_->signal("kill", 1);
    run_until(loop, [&] { return leader.told.back() == "down"; });
    return Deadline::Clock::now() - begin;
  };
  const auto took = time_to_step_down(a);
  EXPECT_EQ(a.down.cause, SteppedDown::Cause::lapsed);
  EXPECT_THAT(a.down.why, HasSubstr(lab_->endpoints()[0].to_string()));
  EXPECT_EQ(a.election->held_epoch(), std::nullopt);
  EXPECT_THAT(b.told, testing::Contains("trouble"));
  lab_->start();
  // Its lease lives on in etcd: nobody else has led.
  run_until(loop, [&] { return a.told.back() == "leads" || b.told.back() == "leads"; });
  EXPECT_GE(std::max(a.head.epoch, b.head.epoch), epoch);
  EXPECT_EQ(std::count(b.told.begin(), b.told.end(), "trouble"), 1);
  // It was some 0.3 s before the lease's end. Where the machine was busy, another leader is tried.
  constexpr seconds kInTime = kTtl + seconds(1);
  if (took >= kInTime)
    testing_support::expect_promptness(kInTime, [&] {
      Agent again(loop, settings_of(*lab_, "busy", "c"));
      run_until(loop, [&] { return again.was_told("leads"); });
      const auto its_time = time_to_step_down(again);
      lab_->start();
      return its_time;
    });
}

TEST(NoElectionTest, WithoutAnEtcdTheReasonIsToldAndTheEndIsQuick) {
  base::EventLoop loop;
  EXPECT_EQ(error_of([&] { EtcdElection(loop, {}, {}); })->code(), ErrorCode::kInvalidArgument);
  EtcdElectionSettings settings;
  settings.etcd.endpoints = {{"127.0.0.1", 1}};
  settings.run_id = "none";
  settings.node = "a";
  settings.ttl = kTtl;
  const auto begin = Deadline::Clock::now();
  {
    Agent agent(loop, settings);
    loop.run_some(Deadline::after(milliseconds(50)));
    EXPECT_THAT(agent.told, testing::IsEmpty());
  }
  EXPECT_LT(Deadline::Clock::now() - begin, testing_support::kPatience);
}

}  // namespace
}  // namespace dtrun::rendezvous
