// Crowds around a server that serves a job at the same time: dribblers, floods, resets. The job
// must not notice, and nothing may be left of them.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "rendezvous/served_store.h"
#include "wire/rate_limited_log.h"

namespace dtrun::rendezvous {
namespace {

constexpr const char* kHello = "00 ce f7 85 3c";
constexpr const char* kHalfSet = "01 02 0*7 '/d' 00 10 0*6 'be'";

// Both ends of thousands of connections live in this process.
void allow_descriptors(rlim_t count) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min(count, limit.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// Some of what a job does.
class Job {
 public:
  explicit Job(const ServedStore& server) : first_(server.client()), second_(server.client()) {}

  void step() {
    ++steps_;
    const std::string key = "step" + std::to_string(steps_);
    first_->set(key, "done");
    second_->wait({key}, RawClient::limit());
    EXPECT_EQ(second_->get(key, RawClient::limit()), "done");
    EXPECT_EQ(second_->add("steps", 1), steps_);
  }

 private:
  std::shared_ptr<Store> first_, second_;
  int steps_ = 0;
};

TEST(StoreSiegeTest, AThousandDribblersDoNotHoldUpAJob) {
  allow_descriptors(4096);
  const ServedStore server;
  Job job(server);
  std::vector<RawClient> dribblers;
  for (int i = 0; i < 1000; ++i) {
    dribblers.emplace_back(server.port());
    dribblers.back().send(bytes(kHello) + (i % 2 ? bytes(kHalfSet) : std::string()));
  }
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < dribblers.size(); ++i) {
      // The byte of an operation and of its length, or one more of the value.
      dribblers[i].send(std::string(1, i % 2 ? 'x' : round == 0 ? '\3' : '\0'));
      if (i % 100 == 0) job.step();
    }
  }
  job.step();
}

TEST(StoreSiegeTest, AFloodOfSilentConnectionsGoesByWhileAJobRuns) {
  allow_descriptors(4096);
  TcpStoreServerOptions options;
  options.max_newcomers = 64;
  const ServedStore server(options);
  Job job(server);
  std::vector<RawClient> flood;
  for (int i = 0; i < 1000; ++i) {
    flood.emplace_back(server.port());
    if (i % 100 == 0) job.step();
  }
  for (std::size_t i = 0; i + 64 < flood.size(); i += 50) EXPECT_TRUE(flood[i].closed_by_peer());
  job.step();
  RawClient(server.port()).handshake();
}

TEST(StoreSiegeTest, FiveThousandWhoConnectBeforeAnySpeaksAreAllServed) {
  allow_descriptors(16'384);
  const ServedStore server;
  std::vector<RawClient> clients;
  for (int i = 0; i < 5000; ++i) clients.emplace_back(server.port());
  for (RawClient& client : clients) client.send(bytes("00 ce f7 85 3c 0d 'pid1'"));
  for (RawClient& client : clients) EXPECT_EQ(client.receive(4), "pid1");
}

// Descriptors are counted by process: the crowd has one of its own. Exits with 0 where it went
// well.
template <typename Crowd>
void besiege_with_few_descriptors(Crowd crowd) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    allow_descriptors(4096);
    ::_exit(crowd() ? 0 : 1);
  }
  const rlimit low{256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

std::vector<base::UniqueFd> silent_connections(std::uint16_t port, int count) {
  std::vector<base::UniqueFd> result;
  for (int i = 0; i < count; ++i)
    result.push_back(base::connect_tcp("127.0.0.1", port, RawClient::limit()));
  return result;
}

// One after the other, so that none is silent for long: who comes when all descriptors are theirs
// finds nobody who says nothing.
std::vector<base::UniqueFd> visitors_of_the_gate(std::uint16_t port, int count) {
  std::vector<base::UniqueFd> result;
  for (int i = 0; i < count; ++i) {
    result.push_back(base::connect_tcp("127.0.0.1", port, RawClient::limit()));
    ::send(result.back().get(), "\xd7", 1, MSG_NOSIGNAL);
  }
  return result;
}

bool is_answered_at(std::uint16_t port) {
  const base::UniqueFd client = base::connect_tcp("127.0.0.1", port, RawClient::limit());
  const std::string request = bytes("00 ce f7 85 3c 0d 'pid1'");
  std::string reply(4, '\0');
  base::send_all(client.get(), request.data(), request.size(), RawClient::limit());
  base::receive_all(client.get(), reply.data(), reply.size(), RawClient::limit());
  return reply == "pid1";
}

const char* why_no_siege_here() {
#ifdef __SANITIZE_ADDRESS__
  return "UBSan opens a pipe to check a pointer, and finds none valid where it cannot";
#elif defined(__SANITIZE_THREAD__)
  return "the thread sanitizer does not let a forked child of a threaded process go on";
#else
  return nullptr;
#endif
}

TEST(StoreSiegeTest, With256DescriptorsSilentConnectionsMakeRoomForThoseWhoAsk) {
  if (const char* why = why_no_siege_here()) GTEST_SKIP() << why;
  const ServedStore server;
  Job job(server);
  job.step();
  besiege_with_few_descriptors([&] {
    const auto flood = silent_connections(server.port(), 600);
    return is_answered_at(server.port());
  });
  job.step();
}

TEST(StoreSiegeTest, With256DescriptorsThoseAtTheGateMakeRoomForWhoHasTheToken) {
  if (const char* why = why_no_siege_here()) GTEST_SKIP() << why;
  const Token token("0123456789abcdef", "the test");
  const ServedStore server({.token = token});
  besiege_with_few_descriptors([&] {
    const auto flood = visitors_of_the_gate(server.port(), 600);
    // More of them come while he is there.
    const auto store = connect_tcp_store({.host = "127.0.0.1",
                                          .port = server.port(),
                                          .connect_timeout = std::chrono::seconds(20),
                                          .token = token});
    const auto more = visitors_of_the_gate(server.port(), 300);
    return store->add("n", 1) == 1;
  });
}

TEST(StoreSiegeTest, ResetsInTheMiddleOfARequestConcernNobodyElse) {
  const ServedStore server;
  Job job(server);
  for (int i = 0; i < 200; ++i) {
    RawClient client(server.port());
    client.send(bytes(kHello) + bytes(i % 2 ? kHalfSet : "06 01 0*7 02 0*7 '/w'"));
    if (i % 4 == 0) client.expect_in_step();  // the server is seen to have read it
    client.reset();
    if (i % 20 == 0) job.step();
  }
  job.step();
}

TEST(StoreSiegeTest, AThousandBadConnectionsCostAFewLinesOfLog) {
  testing::internal::CaptureStderr();
  {
    const ServedStore server;
    for (int i = 0; i < 1000; ++i) {
      RawClient client(server.port());
      client.send("GET / HTTP/1.1\r\n\r\n");
      EXPECT_TRUE(client.closed_by_peer());
    }
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("there is no operation 71"), std::string::npos) << log;
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 10) << log;
}

TEST(RateLimitedLogTest, DroppedLinesAreCounted) {
  constexpr auto kPeriod = std::chrono::milliseconds(20);
  testing::internal::CaptureStderr();
  RateLimitedLog seldom(base::log::Component::kStore, std::chrono::hours(1));
  for (int i = 0; i < 1000; ++i) seldom.warning("one of many");
  const std::string few = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(few.begin(), few.end(), '\n'), 6) << few;
  EXPECT_NE(few.find("more lines like these are only counted"), std::string::npos) << few;

  testing::internal::CaptureStderr();
  RateLimitedLog often(base::log::Component::kStore, kPeriod);
  for (int i = 0; i < 1000; ++i) often.warning("one of many");
  for (const auto end = base::Deadline::after(kPeriod); !end.expired();) {
  }
  often.warning("one in the next period");
  const std::string more = testing::internal::GetCapturedStderr();
  EXPECT_NE(more.find("more lines like these were left out"), std::string::npos) << more;
}

TEST(StoreSiegeTest, TheEndOfTheServerIsSeenByTwoThousandWhoWait) {
  allow_descriptors(8192);
  ServedStore server;
  std::vector<RawClient> waiters;
  for (int i = 0; i < 2000; ++i) {
    waiters.emplace_back(server.port());
    waiters.back().send(bytes(kHello) + bytes("06 01 0*7 02 0*7 '/w'"));
  }
  waiters.back().expect_in_step();
  server.stop();
  for (RawClient& waiter : waiters) EXPECT_TRUE(waiter.closed_by_peer());
}

// Were a disconnect to look at all who wait for its keys, this would take minutes.
TEST(StoreSiegeTest, WhoGoesCostsWhatItWaitedForAndNotWhatOthersDo) {
  allow_descriptors(8192);
  const ServedStore server;
  constexpr int kKeys = 1000;
  std::string wait = bytes("06 e8 03 0*6");
  for (int i = 0; i < kKeys; ++i) wait += bytes("04 0*7") + std::to_string(1000 + i);
  std::vector<RawClient> waiters;
  for (int i = 0; i < 500; ++i) {
    waiters.emplace_back(server.port());
    waiters.back().send(bytes(kHello) + wait);
  }
  for (RawClient& waiter : waiters) waiter.expect_in_step();
  Job job(server);
  for (std::size_t i = 0; i < waiters.size(); i += 2) waiters[i].reset();
  job.step();
  RawClient setter(server.port());
  setter.handshake();
  std::string sets;
  for (int i = 0; i < kKeys; ++i)
    sets += bytes("01 04 0*7") + std::to_string(1000 + i) + bytes("0*8");
  setter.send(sets);
  for (std::size_t i = 1; i < waiters.size(); i += 2)
    EXPECT_EQ(hex(waiters[i].receive(1)), hex(bytes("00")));
}

}  // namespace
}  // namespace dtrun::rendezvous
