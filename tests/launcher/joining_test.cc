// How agents are kept out, by token; where they listen, by --local_addr and --port_range; and a
// resolver that hangs: several real dtrun on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store.h"
#include "launcher/launcher_job.h"
#include "support/own_port.h"
#include "support/promptness.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;

constexpr const char* kToken = "a-token-of-this-test";

class JoiningTest : public testing::Test {
 protected:
  // dtrun, its standard error with its output.
  std::unique_ptr<Command> start(std::vector<std::string> rest, const char* token = nullptr) {
    std::vector<std::string> command = {"sh",
                                        "-c",
                                        "exec \"$@\" 2>&1",
                                        "sh",
                                        DTRUN_BINARY,
                                        "--rdzv_backend=c10d",
                                        "--rdzv_endpoint=127.0.0.1:" + port_,
                                        "--rdzv_id=j"};
    command.insert(command.end(), rest.begin(), rest.end());
    CommandOptions options = job_.options();
    if (token != nullptr) options.environment["DTRUN_TOKEN"] = token;
    return std::make_unique<Command>(command, options);
  }

  testing_support::OwnPort own_port_;
  std::string port_ = own_port_.text();
  LauncherJob job_;
};

TEST_F(JoiningTest, WithTheTokenAllComeInAndWithoutItNobody) {
  const std::string file = job_.folder() + "/token";
  std::ofstream(file) << kToken << "\n";
  ::chmod(file.c_str(), 0600);
  const std::vector<std::string> work = {"--nnodes=2", "sh", "-c",
                                         "echo rank $RANK of $WORLD_SIZE; env"};
  const auto with = [&](const std::string& option) {
    std::vector<std::string> words = work;
    words.insert(words.begin(), option);
    return words;
  };
  const auto head = start(with("-v"), kToken);
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const CommandResult none = start(work)->finish();
  const CommandResult wrong = start(work, "another-token-of-this-test")->finish();
  for (const CommandResult& stranger : {none, wrong}) {
    EXPECT_EQ(stranger.exit_code, 64) << stranger.describe();
    EXPECT_THAT(stranger.out, AllOf(HasSubstr("token"), Not(HasSubstr("rank "))));
  }
  const auto member = start(with("--rdzv_conf=token_file=" + file));
  for (const CommandResult& result : {member->finish(), head->finish()}) {
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, AllOf(HasSubstr(" of 2\n"), Not(HasSubstr(kToken))));
  }
}

// At the very port where the agents meet.
TEST_F(JoiningTest, TheRanksStoreAsksForATokenOfItsOwn) {
  const std::vector<std::string> work = {
      "--nnodes=2", "--rdzv_conf=store_token=true", "sh", "-c",
      "echo store $MASTER_PORT $DTRUN_STORE_TOKEN; read end < " + job_.folder() + "/end"};
  ASSERT_EQ(::mkfifo((job_.folder() + "/end").c_str(), 0600), 0);
  const auto head = start(work, kToken);
  const auto member = start(work, kToken);
  std::string words, port, token;
  std::istringstream(head->next_line("store ").value_or("")) >> words >> port >> token;
  ASSERT_EQ(port, port_);
  EXPECT_EQ(token.size(), 64u);
  rendezvous::TcpStoreOptions place{.host = "127.0.0.1",
                                    .port = static_cast<std::uint16_t>(std::stoi(port)),
                                    .connect_timeout = std::chrono::seconds(1)};
  EXPECT_THROW(rendezvous::connect_tcp_store(place), base::Error);
  place.connect_timeout = std::chrono::seconds(60);
  for (const std::string& wrong : {std::string(kToken), std::string(64, '0')}) {
    place.token = rendezvous::Token(wrong, "the test");
    EXPECT_THROW(rendezvous::connect_tcp_store(place), base::Error);
  }
  place.token = rendezvous::Token(token, "the test");
  rendezvous::connect_tcp_store(place)->set("k", "v");
  std::ofstream(job_.folder() + "/end") << "\n\n";
  for (const CommandResult& result : {member->finish(), head->finish()}) {
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, Not(HasSubstr(kToken)));
  }
}

// Without a word of the user's: node 0, which has the store, runs a program of dtrun's. It waits
// for a rank that never comes.
TEST_F(JoiningTest, TheStoreOfAProgramOfDtrunsKeepsStrangersOut) {
  const auto head = start({"--nnodes=2", DTRUN_WORKERS "/hello"}, kToken);
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const auto member =
      start({"--nnodes=2", "sh", "-c", "echo store $MASTER_PORT; exec sleep 1000"}, kToken);
  ASSERT_EQ(member->next_line("store "), "store " + port_);
  const rendezvous::TcpStoreOptions place{.host = "127.0.0.1",
                                          .port = static_cast<std::uint16_t>(std::stoi(port_)),
                                          .connect_timeout = std::chrono::seconds(1)};
  EXPECT_THROW(rendezvous::connect_tcp_store(place), base::Error);
  head->signal(SIGTERM);
  const CommandResult result = head->finish();
  EXPECT_EQ(result.exit_code, 143) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("it asks without having proved that it has the token"));
}

// Who wraps it may take the token away, as a container does; the store of the program itself asks.
TEST_F(JoiningTest, AProgramOfDtrunsRunsByItselfAndInAWrapper) {
  const std::string hello = DTRUN_WORKERS "/hello";
  const std::vector<std::string> wrapped = {"-v", "--nnodes=2",        "env",
                                            "-u", "DTRUN_STORE_TOKEN", hello};
  for (const std::vector<std::string>& work :
       {std::vector<std::string>{"-v", "--nnodes=2", hello}, wrapped}) {
    const auto head = start(work, kToken);
    const auto member = start(work, kToken);
    for (const CommandResult& result : {member->finish(), head->finish()}) {
      EXPECT_EQ(result.exit_code, 0) << result.describe();
      EXPECT_EQ(result.out.find("the ranks' store asks for no token: /usr/bin/env is no") !=
                    std::string::npos,
                work == wrapped)
          << result.describe();
    }
  }
}

TEST_F(JoiningTest, ThePortsAndTheAddressAreTheUsers) {
  const base::UniqueFd probe = base::listen_tcp("127.0.0.1", 0);
  const int first = base::local_port(probe.get());  // taken: the next free one is used
  if (first > 65000) GTEST_SKIP() << "no room for a range above port " << first;
  const auto head =
      start({"--nnodes=1:2", "--rdzv_conf=last_call_timeout=0.01", "--local_addr=127.0.0.3",
             "--port_range=" + std::to_string(first) + ":" + std::to_string(first + 500), "sh",
             "-c", "echo at $MASTER_ADDR port $MASTER_PORT."});
  const CommandResult result = head->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  int port = 0;
  const auto at = result.out.find("at 127.0.0.3 port ");
  ASSERT_NE(at, std::string::npos) << result.describe();
  std::sscanf(result.out.c_str() + at, "at 127.0.0.3 port %d", &port);
  EXPECT_GE(port, first);
  EXPECT_LE(port, first + 500);
  const CommandResult wrong = start({"--nnodes=1:2", "--local_addr=192.0.2.1", "true"})->finish();
  EXPECT_EQ(wrong.exit_code, 64) << wrong.describe();
  EXPECT_THAT(wrong.out, HasSubstr("--local_addr=192.0.2.1 is no address of this machine"));
}

// A name server that takes questions and never answers, in a mount namespace of the job's own.
TEST_F(JoiningTest, AResolverThatHangsDoesNotKeepSignalsFromBeingSeen) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, for a name server of its own";
  const base::UniqueFd server(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  address.sin_addr.s_addr = htonl(0x7f00004d);  // 127.0.0.77
  if (::bind(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    GTEST_SKIP() << "port 53 is taken here";
  const std::string file = job_.folder() + "/resolv.conf";
  std::ofstream(file) << "nameserver 127.0.0.77\noptions timeout:30\n";
  for (const int number : {SIGINT, SIGTERM}) {
    Command job(
        {"unshare", "-m", "sh", "-c", "mount --bind " + file + " /etc/resolv.conf && exec \"$@\"",
         "sh", DTRUN_BINARY, "--nnodes=2", "--rdzv_backend=c10d",
         "--rdzv_endpoint=hangs.invalid:29400", "true"},
        job_.options());
    pollfd question{server.get(), POLLIN, 0};
    if (::poll(&question, 1, 10'000) != 1) {
      job.signal(SIGKILL);
      GTEST_SKIP() << "the resolver here asks no name server: " << job.finish().describe();
    }
    char bytes[512];
    while (::recv(server.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    const auto then = std::chrono::steady_clock::now();
    job.signal(number);
    const CommandResult result = job.finish();
    EXPECT_LT(std::chrono::steady_clock::now() - then, testing_support::kPatience);
    EXPECT_EQ(result.exit_code, 128 + number) << result.describe();
    while (::recv(server.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
  }
}

}  // namespace
}  // namespace dtrun::launcher
