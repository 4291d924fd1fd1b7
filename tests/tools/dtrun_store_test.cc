// The program dtrun-store, as its users start it.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store.h"
#include "dtrun/rendezvous/token.h"
#include "support/command.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::error_of;
using testing_support::run_command;

using Words = std::vector<std::string>;

Deadline late() {
  return Deadline::after(seconds(60));
}

class DtrunStoreTest : public testing::Test {
 protected:
  DtrunStoreTest() {
    std::string name = testing::TempDir() + "dtrun_store_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ::abort();
    folder_ = name;
  }
  ~DtrunStoreTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    using std::filesystem::perms;
    std::filesystem::permissions(path(name), perms::owner_read | perms::owner_write);
    return path(name);
  }
  static Words words(Words arguments) {
    arguments.insert(arguments.begin(), DTRUN_STORE_BINARY);
    return arguments;
  }
  /// Started, reached, and its port read.
  void start(Words arguments) {
    arguments.insert(arguments.end(), {"--port", "0", "--port-file", path("port")});
    store_.emplace(words(std::move(arguments)));
    ASSERT_TRUE(store_->wait_for_output("serving at ")) << store_->finish().describe();
    std::ifstream(path("port")) >> port_;
    ASSERT_NE(port_, 0);
  }
  TcpStoreOptions place() const { return {.host = "127.0.0.1", .port = port_}; }
  CommandResult end(int signal_number = SIGTERM) {
    store_->signal(signal_number);
    return store_->finish();
  }
  static CommandResult run(Words arguments) { return run_command(words(std::move(arguments))); }

  std::string folder_;
  std::optional<Command> store_;
  std::uint16_t port_ = 0;
};

TEST_F(DtrunStoreTest, ItServesAndEndsCleanlyOnEitherSignal) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    start({});
    const auto writer = connect_tcp_store(place());
    const auto reader = connect_tcp_store(place());
    writer->set("k", "v");
    EXPECT_EQ(reader->get("k", late()), "v");
    std::thread blocked([&] {
      const auto error = error_of([&] { reader->get("never", late()); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::kConnection);
    });
    const CommandResult result = end(signal_number);
    blocked.join();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(result.out, fmt::format("dtrun-store: serving at 127.0.0.1:{}\n", port_));
    EXPECT_EQ(result.err, "");
    EXPECT_FALSE(std::filesystem::exists(path("port")));
  }
}

TEST_F(DtrunStoreTest, SignalsThatWereIgnoredAtItsStartStayIgnored) {
  store_.emplace(Words{"/bin/sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh", DTRUN_STORE_BINARY,
                       "--port", "0", "--port-file", path("port")});
  ASSERT_TRUE(store_->wait_for_output("serving at ")) << store_->finish().describe();
  std::ifstream(path("port")) >> port_;
  store_->signal(SIGHUP);
  store_->signal(SIGINT);
  const auto store = connect_tcp_store(place());
  store->set("k", "v");
  EXPECT_EQ(store->num_keys(), 1);
  EXPECT_EQ(end().exit_code, 0);
}

TEST_F(DtrunStoreTest, ItListensOnTheOneAddressOnly) {
  start({"--bind", "127.0.0.2"});
  connect_tcp_store({.host = "127.0.0.2", .port = port_})->set("k", "v");
  TcpStoreOptions other = place();
  other.connect_timeout = milliseconds(50);
  EXPECT_EQ(error_of([&] { connect_tcp_store(other); })->why(), "Connection refused");
  EXPECT_EQ(end().exit_code, 0);
  start({"--bind", "0.0.0.0"});
  connect_tcp_store(other = place())->set("k", "v");
  EXPECT_THAT(end().err, HasSubstr("everybody who can reach this machine"));
}

TEST_F(DtrunStoreTest, AServerThatIsStoppedForLongIsNotLostToThoseWhoWaitAndAsk) {
  start({});
  TcpStoreOptions options = place();
  options.lost_after = seconds(1);
  const auto waits = connect_tcp_store(options);
  const auto asks = connect_tcp_store(options);
  std::thread waiter([&] { EXPECT_EQ(waits->get("late", late()), "v"); });
  store_->signal(SIGSTOP);
  // Its host answers for it: longer than a host that is cut off would be borne.
  const auto error = error_of([&] { asks->add("n", 1, Deadline::after(milliseconds(2500))); });
  store_->signal(SIGCONT);
  EXPECT_EQ(error ? error->code() : ErrorCode::kAborted, ErrorCode::kTimeout);
  // Whether that addition happened nobody knows.
  EXPECT_LE(asks->add("n", 1, late()), 2);
  asks->set("late", "v");
  waiter.join();
  EXPECT_EQ(end().exit_code, 0);
}

TEST_F(DtrunStoreTest, AnAddressMayStandInBracketsAsItIsPrinted) {
  start({"--bind", "[::1]"});
  connect_tcp_store({.host = "::1", .port = port_})->set("k", "v");
  EXPECT_EQ(end().out, fmt::format("dtrun-store: serving at [::1]:{}\n", port_));
  const CommandResult with_port = run({"--bind", "[::1]:80"});
  EXPECT_EQ(with_port.exit_code, 64) << with_port.describe();
  EXPECT_THAT(with_port.err, HasSubstr("--port names it"));
}

TEST_F(DtrunStoreTest, AStandardErrorThatNobodyReadsHoldsUpNothing) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const base::UniqueFd reader(ends[0]), writer(ends[1]);
  store_.emplace(Words{"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"",
                       fmt::format("/proc/{}/fd/{}", ::getpid(), writer.get()), DTRUN_STORE_BINARY,
                       "-v", "--port", "0", "--port-file", path("port")});
  ASSERT_TRUE(store_->wait_for_output("serving at ")) << store_->finish().describe();
  std::ifstream(path("port")) >> port_;
  // Each costs a line, and the pipe holds 64 KiB.
  for (int i = 0; i < 2000; ++i)
    base::connect_tcp("127.0.0.1", port_, Deadline::after(seconds(60)));
  const auto store = connect_tcp_store(place());
  store->set("k", "v", late());
  EXPECT_EQ(store->num_keys(late()), 1);
  EXPECT_EQ(end().exit_code, 0);
}

// Of the process, as the kernel counts it.
TEST_F(DtrunStoreTest, ItsMemoryStaysWithinWhatItMayHold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  start({"--max-memory", "64MB"});
  const auto writer = connect_tcp_store(place());
  const base::UniqueFd slow = base::connect_tcp("127.0.0.1", port_, late());
  const std::string hello("\x00\xce\xf7\x85\x3c", 5);
  const std::string get("\x03\x02\0\0\0\0\0\0\0/k", 11);
  base::send_all(slow.get(), hello.data(), hello.size(), late());
  const std::string part(1 << 20, 'x');
  std::size_t kept = 0;
  EXPECT_TRUE(error_of([&] {
    for (;; ++kept) {
      writer->append("k", part, late());
      ASSERT_TRUE(writer->check({"k"}, late()));
      base::send_all(slow.get(), get.data(), get.size(), late());
    }
  }));
  EXPECT_GT(kept, 55u);
  std::ifstream status(fmt::format("/proc/{}/status", store_->pid()));
  std::size_t peak_kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> peak_kib;
  EXPECT_GT(peak_kib, 50u << 10);
  EXPECT_LT(peak_kib, std::size_t{64} * 1024 * 11 / 10);
  const auto other = connect_tcp_store(place());
  EXPECT_TRUE(other->delete_key("k", late()));
  EXPECT_EQ(end().exit_code, 0);
}

TEST_F(DtrunStoreTest, ATokenKeepsOthersOut) {
  const std::string secret = "a secret of enough letters";
  start({"--token-file", write("token", secret + "\n")});
  TcpStoreOptions options = place();
  options.connect_timeout = milliseconds(100);
  EXPECT_EQ(error_of([&] { connect_tcp_store(options); })->code(), ErrorCode::kConnection);
  options.connect_timeout = seconds(60);
  options.token = Token("another secret of letters", "the test");
  EXPECT_EQ(error_of([&] { connect_tcp_store(options); })->code(), ErrorCode::kProtocol);
  options.token = Token(secret, "the test");
  const auto store = connect_tcp_store(options);
  store->set("k", "v");
  EXPECT_EQ(store->num_keys(), 1);
  const CommandResult result = end();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr(", with a token\n"));
  // Some refusals, one line.
  EXPECT_THAT(result.err, HasSubstr("refused 127.0.0.1"));
  EXPECT_EQ(result.err.find("refused"), result.err.rfind("refused")) << result.err;
}

TEST_F(DtrunStoreTest, AnImpossibleRequestHasAnExitCodeOfItsOwn) {
  const base::UniqueFd taken = base::listen_tcp("127.0.0.1", 0);
  const std::string port = std::to_string(base::local_port(taken.get()));
  const std::string nowhere = path("no/port");
  const std::string link = path("link");
  std::filesystem::create_symlink("/proc/self/fd/1", link);
  struct Case {
    Words arguments;
    int exit_code;
    Words texts;
  };
  const Case cases[] = {
      {{"--port", port}, 71, {"cannot listen on 127.0.0.1:" + port, "EADDRINUSE"}},
      {{"--bind", "192.0.2.1", "--port", "0"}, 71, {"192.0.2.1", "EADDRNOTAVAIL"}},
      {{"--bind", "no-such-host.invalid"}, 69, {"cannot listen on no-such-host.invalid"}},
      {{"--port", "0", "--port-file", nowhere}, 71, {nowhere, "ENOENT"}},
      {{"--token-file", path("none")}, 64, {"--token-file", path("none")}},
      {{"--token-file", write("short", "short")}, 64, {"--token-file", "too short"}},
      {{"--port", "65536"}, 64, {"--port", "--help"}},
      {{"--legacy", "1.8"}, 64, {"--legacy", "1.8"}},
      {{"--token-file", ""}, 64, {"--token-file", "names no file"}},
      {{"--port-file", ""}, 64, {"--port-file", "names no file"}},
      {{"--port", "0", "--port-file", link}, 64, {link, "no plain file"}},
      {{"--port", "0", "--port-file", folder_}, 64, {folder_, "no plain file"}},
      {{"--max-memory", "0"}, 64, {"--max-memory", "above 0"}},
      {{"--max-key", "-1"}, 64, {"--max-key", "above 0"}},
      {{"--max-connections", "-1"}, 64, {"--max-connections"}},
      {{"--max-value", "much"}, 64, {"--max-value", "much"}},
      {{"--max-connections", "1000000000"}, 71, {"1000000000 connections", "ulimit"}},
      {{"--max-connections", "18446744073709551615"}, 71, {"18446744073709551615 connections"}},
      {{"--frobnicate"}, 64, {"--frobnicate", "--help"}},
      {{"stray"}, 64, {"stray"}},
  };
  for (const Case& it : cases) {
    const CommandResult result = run(it.arguments);
    EXPECT_EQ(result.exit_code, it.exit_code) << result.describe();
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("dtrun-store: error: ")) << result.describe();
    for (const std::string& text : it.texts) EXPECT_THAT(result.err, HasSubstr(text));
  }
  EXPECT_FALSE(std::filesystem::exists(path("no")));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(DtrunStoreTest, HelpAndVersionAreToldOnStandardOutput) {
  const CommandResult help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* option :
       {"--bind", "--port", "--port-file", "--token-file", "--legacy", "--max-connections",
        "--max-memory", "--max-key", "--max-value", "--verbose"})
    EXPECT_THAT(help.out, HasSubstr(option));
  const CommandResult version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("dtrun-store ")) << version.out;
}

TEST_F(DtrunStoreTest, WhoComesWhenItIsFullIsClosedAndTheOthersGoOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens a pipe to check a pointer, and finds none valid where it cannot";
#endif
  start({"--max-connections", "3"});
  std::vector<std::shared_ptr<Store>> clients;
  TcpStoreOptions options = place();
  options.connect_timeout = seconds(1);
  const auto full = error_of([&] {
    while (clients.size() < 100) clients.push_back(connect_tcp_store(options));
  });
  ASSERT_TRUE(full);
  EXPECT_EQ(full->code(), ErrorCode::kConnection);
  EXPECT_GE(clients.size(), 3u);
  EXPECT_LE(clients.size(), 24u);
  for (const auto& client : clients) client->add("n", 1);
  EXPECT_EQ(clients.front()->add("n", 0), static_cast<std::int64_t>(clients.size()));
  EXPECT_EQ(end().exit_code, 0);
}

TEST_F(DtrunStoreTest, LimitsOfKeysAndValuesAreThoseAskedFor) {
  start({"--max-key", "16", "--max-value", "1KB", "--legacy", "2.1"});
  const auto store = connect_tcp_store(place());
  store->set("short", std::string(1024, 'v'));
  EXPECT_EQ(store->get("short", late()).size(), 1024u);
  const auto too_long = connect_tcp_store(place());
  EXPECT_EQ(error_of([&] {
              too_long->set("short", std::string(1025, 'v'));
              too_long->num_keys();
            })->code(),
            ErrorCode::kConnection);
  EXPECT_EQ(store->get("short", late()).size(), 1024u);
  EXPECT_EQ(end().exit_code, 0);

  start({"--max-memory", "1MB", "--legacy", "off"});
  const auto greedy = connect_tcp_store(place());
  const auto modest = connect_tcp_store(place());
  EXPECT_EQ(error_of([&] {
              for (int i = 0; i < 100; ++i) {
                greedy->set(std::to_string(i), std::string(100000, 'v'));
                greedy->try_get("0");
              }
            })->code(),
            ErrorCode::kConnection);
  EXPECT_EQ(modest->get("0", late()).size(), 100000u);
  EXPECT_EQ(end().exit_code, 0);
}

TEST_F(DtrunStoreTest, ItNeedsNoStandardStreamsAndLeavesAnothersPortFile) {
  const std::string start_it = fmt::format("exec '{}' --port 0 --port-file '{}' <&- >&- 2>&-",
                                           DTRUN_STORE_BINARY, path("port"));
  Command store({"/bin/sh", "-c", start_it});
  std::uint16_t port = 0;
  while (port == 0 && !::kill(store.pid(), 0)) {
    std::ifstream(path("port")) >> port;
    std::this_thread::yield();
  }
  const auto client = connect_tcp_store({.host = "127.0.0.1", .port = port});
  client->set("k", "v");
  EXPECT_EQ(client->num_keys(), 1);
  write("port", "1\n");
  store.signal(SIGTERM);
  EXPECT_EQ(store.finish().exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(path("port")));
}

}  // namespace
}  // namespace dtrun::rendezvous
