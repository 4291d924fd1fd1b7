// Processes that run one function of this program: started, joined, ended, failing; this program
// is its own child.
#include "dtrun/runtime/mp.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>
#include <thread>

#include "dtrun/base/socket.h"
#include "dtrun/runtime/worker.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "support/thrown_error.h"

namespace dtrun::mp {
namespace {

using base::Error;
using base::ErrorCode;
using dtensor::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;
using namespace std::chrono_literals;

constexpr const char* kMethods[] = {"spawn", "fork", "forkserver"};

// A place where children wait until the test opens it.
class Gate {
 public:
  Gate() {
    std::string name = testing::TempDir() + "mp_gate_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    EXPECT_EQ(::mkfifo(path().c_str(), 0600), 0);
  }
  ~Gate() { std::filesystem::remove_all(folder_); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  std::string path() const { return folder_ + "/fifo"; }
  /// Waits until a child is there.
  void open() const { ::close(::open(path().c_str(), O_WRONLY | O_CLOEXEC)); }
  static void wait_at(const std::string& path) {
    ::close(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }

 private:
  std::string folder_;
};

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}
#define REQUIRE(condition) require(condition, #condition)

enum class Colour : std::uint8_t { red, green };

std::string odd_text() {
  return std::string("nul \0 and h\xc3\xa9", 12) + "\n'\"\\";
}

void check_values(int rank, bool yes, Colour colour, double fraction, std::string text,
                  const std::string& by_reference, const char* literal) {
  REQUIRE(rank >= 0 && rank < 2 && yes && colour == Colour::green && fraction == 0.1);
  REQUIRE(text == odd_text() && by_reference.empty());
  REQUIRE(std::string(literal) == "A0");
}
DTRUN_MP_FUNCTION(check_values);

void check_containers(std::vector<bool> bits, std::vector<std::string> texts,
                      std::optional<std::pair<int, std::vector<double>>> present,
                      std::optional<int> absent, std::vector<std::int64_t> many) {
  REQUIRE((bits == std::vector<bool>{true, false, true}));
  REQUIRE((texts == std::vector<std::string>{"", odd_text()}));
  REQUIRE(present && present->first == -1 && present->second == std::vector<double>{1.5});
  REQUIRE(!absent && many.size() == 100'000 && many.back() == 99'999);
}
DTRUN_MP_FUNCTION(check_containers);

void check_tensors(Tensor dense, Tensor strided, Tensor empty, Tensor number, Tensor undefined,
                   std::vector<Tensor> list) {
  REQUIRE(dense.to_string() == tensors::arange(6).view({2, 3}).to_string());
  REQUIRE(dense.dtype() == tensors::DType::i64);
  REQUIRE(strided.to_string() == tensors::arange(6).view({2, 3}).transpose(0, 1).to_string());
  REQUIRE((empty.shape() == tensors::Shape{0, 3}) && empty.dtype() == tensors::DType::bf16);
  REQUIRE(number.dim() == 0 && number.item() == 2.5 && !undefined.defined());
  REQUIRE(list.size() == 1 && list[0].dtype() == tensors::DType::boolean);
  dense.fill_(7);  // its own elements: the parent's stay
}
DTRUN_MP_FUNCTION(check_tensors);

void expect_runs(Process process) {
  process.start();
  EXPECT_TRUE(process.join());
  EXPECT_EQ(process.exitcode(), 0) << process.name();
}

TEST(ArgumentsTest, ComeToTheFunctionAsTheyWereWithEveryStartMethod) {
  for (const std::string method : kMethods) {
    spawn(check_values, args(true, Colour::green, 0.1, odd_text(), "", "A0"),
          {.nprocs = 2, .start_method = method});
    std::vector<std::int64_t> many(100'000);
    for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i);
    expect_runs(
        Process(check_containers,
                args(std::vector<bool>{true, false, true}, std::vector<std::string>{"", odd_text()},
                     std::pair(-1, std::vector<double>{1.5}), std::optional<int>(), many),
                {.start_method = method}));
  }
}

void check_small(std::int8_t, unsigned, std::uint64_t) {}
DTRUN_MP_FUNCTION(check_small);

TEST(ArgumentsTest, ANumberThatDoesNotFitIsRefused) {
  expect_runs(Process(check_small, args(-128L, 4'000'000'000L, 1)));
  EXPECT_THAT(error_of([] { Process(check_small, args(128, 0, 0)); })->what(),
              HasSubstr("the number 128 does not fit in a parameter of type signed char"));
  EXPECT_THAT(error_of([] { Process(check_small, args(0, 5'000'000'000L, 0)); })->what(),
              HasSubstr("5000000000"));
  EXPECT_THAT(error_of([] { Process(check_small, args(0, 0, -1)); })->what(), HasSubstr("-1"));
  EXPECT_TRUE(error_of([] { Process(check_small, args(~std::uint64_t{0}, 0, 0)); }));
}

TEST(ArgumentsTest, TensorsTravelByValue) {
  for (const std::string method : kMethods) {
    const Tensor dense = tensors::arange(6).view({2, 3});
    expect_runs(Process(
        check_tensors,
        args(dense, dense.transpose(0, 1), tensors::ones({0, 3}, {.dtype = tensors::DType::bf16}),
             tensors::full({}, 2.5), Tensor(),
             std::vector<Tensor>{tensors::ones({2}, {.dtype = tensors::DType::boolean})}),
        {.start_method = method}));
    EXPECT_EQ(dense.to_vector()[5], 5.0);
  }
}

void exit_with(int code) {
  std::exit(code);
}
DTRUN_MP_FUNCTION(exit_with);

void wait_at_gate(std::string path) {
  Gate::wait_at(path);
}
DTRUN_MP_FUNCTION(wait_at_gate);

TEST(ProcessTest, TellsItsPlaceInLifeFromStartToEnd) {
  for (const std::string method : kMethods) {
    const Gate gate;
    Process process(wait_at_gate, args(gate.path()), {.name = "waiter", .start_method = method});
    EXPECT_EQ(process.name(), "waiter");
    EXPECT_FALSE(process.daemon());
    EXPECT_EQ(process.pid(), std::nullopt);
    EXPECT_EQ(process.exitcode(), std::nullopt);
    EXPECT_FALSE(process.is_alive());
    process.start();
    EXPECT_TRUE(process.is_alive());
    EXPECT_EQ(::kill(process.pid().value(), 0), 0);
    EXPECT_FALSE(process.join(Deadline::after(1ms)));
    EXPECT_EQ(process.exitcode(), std::nullopt);
    gate.open();
    EXPECT_TRUE(process.join());
    EXPECT_TRUE(process.join()) << "any number of times";
    EXPECT_EQ(process.exitcode(), 0);
    EXPECT_FALSE(process.is_alive());
    process.terminate();
    process.kill();
  }
}

TEST(ProcessTest, TellsItsExitCodeOrMinusTheSignalThatEndedIt) {
  for (const std::string method : kMethods) {
    Process exits(exit_with, args(7), {.start_method = method});
    exits.start();
    exits.join();
    EXPECT_EQ(exits.exitcode(), 7) << method;
    const Gate gate;
    Process terminated(wait_at_gate, args(gate.path()), {.start_method = method});
    terminated.start();
    terminated.terminate();
    EXPECT_TRUE(terminated.join()) << "also where it had not come to its function";
    EXPECT_EQ(terminated.exitcode(), -SIGTERM) << method;
    Process killed(wait_at_gate, args(gate.path()), {.start_method = method});
    killed.start();
    killed.kill();
    killed.join();
    EXPECT_EQ(killed.exitcode(), -SIGKILL) << method;
  }
}

void throw_runtime_error() {
  throw std::runtime_error("the data is bad");
}
DTRUN_MP_FUNCTION(throw_runtime_error);

TEST(ProcessTest, AnExceptionIsPrintedByTheChildWhichExitsWithOne) {
  testing::internal::CaptureStderr();
  Process process(throw_runtime_error, {}, {.name = "reader"});
  process.start();
  process.join();
  EXPECT_EQ(process.exitcode(), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            fmt::format("reader (pid {}): std::runtime_error: the data is bad\n", *process.pid()));
}

TEST(ProcessTest, WhatComesInTheWrongOrderIsRefusedByName) {
  Process process(exit_with, args(0), {.name = "early"});
  for (const auto& [call, action] : std::vector<std::pair<std::string, std::function<void()>>>{
           {"join", [&] { process.join(); }},
           {"terminate", [&] { process.terminate(); }},
           {"kill", [&] { process.kill(); }}}) {
    const auto error = error_of(action);
    ASSERT_TRUE(error) << call;
    EXPECT_EQ(error->code(), ErrorCode::kUsage);
    EXPECT_EQ(error->summary(), call + "() of process 'early' before start()");
  }
  process.start();
  const auto twice = error_of([&] { process.start(); });
  ASSERT_TRUE(twice);
  EXPECT_THAT(twice->what(), HasSubstr("process 'early' (pid"));
  EXPECT_THAT(twice->what(), HasSubstr("has been started already"));
  process.join();
}

TEST(ProcessTest, ACopyOfTheProgramCannotJoinItsParentsChildren) {
  const Gate gate;
  Process process(wait_at_gate, args(gate.path()));
  process.start();
  const auto in_copy = [&] {
    const auto error = error_of([&] { process.join(); });
    REQUIRE(error && testing_support::contains(error->what(), "belongs to pid"));
  };
  expect_runs(Process(in_copy, {}, {.start_method = "fork"}));
  gate.open();
  process.join();
}

void try_to_have_a_child(std::string method) {
  Process child(exit_with, args(0), {.start_method = method});
  child.start();
  REQUIRE(child.join() && child.exitcode() == 0);
}
DTRUN_MP_FUNCTION(try_to_have_a_child);

TEST(DaemonTest, MayNotHaveChildrenWhileOthersMay) {
  for (const std::string method : kMethods) {
    for (const std::string inner : kMethods)
      expect_runs(Process(try_to_have_a_child, args(inner), {.start_method = method}));
    try {
      start_processes([&](int) { return make_task(try_to_have_a_child, std::tuple(method)); },
                      {.daemon = true, .start_method = method}, Site::current());
      FAIL() << method;
    } catch (const ProcessRaisedException& error) {
      EXPECT_THAT(error.text(), HasSubstr("daemonic processes are not allowed to have children"));
    }
  }
}

void check_default_method(int, std::string expected) {
  REQUIRE(get_start_method() == expected);
}
DTRUN_MP_FUNCTION(check_default_method);

TEST(StartMethodTest, OfOneProcessIsNotItsChildrensDefault) {
  for (const std::string method : kMethods)
    expect_runs(
        Process(check_default_method, args(0, get_start_method()), {.start_method = method}));
}

TEST(StartMethodTest, IsSetOnceAndChildrenHaveTheirParents) {
  EXPECT_EQ(get_start_method(), "spawn");
  const auto unknown = error_of([] { set_start_method("thread"); });
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown->what(), AllOf(HasSubstr("'thread'"), HasSubstr("forkserver")));
  set_start_method("forkserver");
  const auto twice = error_of([] { set_start_method("spawn"); });
  ASSERT_TRUE(twice);
  EXPECT_THAT(twice->what(), HasSubstr("set already, to 'forkserver'"));
  expect_runs(Process(check_default_method, args(0, "forkserver")));
  set_start_method("spawn", {.force = true});
  expect_runs(Process(check_default_method, args(0, "spawn")));
  EXPECT_TRUE(error_of([] { Process(exit_with, args(0), {.start_method = "thread"}); }));
  EXPECT_TRUE(error_of([] { spawn(exit_with, {}, {.start_method = "thread"}); }));
}

std::uint64_t working_folder() {
  struct stat folder {};
  REQUIRE(::stat(".", &folder) == 0);
  return folder.st_ino;
}

void check_surroundings(int, std::string value, std::uint64_t folder) {
  const char* text = std::getenv("MP_TEST_VARIABLE");
  REQUIRE(text != nullptr && value == text);
  REQUIRE(working_folder() == folder);
}
DTRUN_MP_FUNCTION(check_surroundings);

TEST(SpawnTest, ChildrenSeeTheEnvironmentAndFolderOfTheMoment) {
  for (const std::string method : kMethods)
    for (const char* value : {"first", "second"}) {
      ::setenv("MP_TEST_VARIABLE", value, 1);
      spawn(check_surroundings, args(value, working_folder()),
            {.nprocs = 2, .start_method = method});
    }
}

// Not by a fresh image: gtest does not start in such a place.
TEST(SpawnTest, AParentInAFolderThatIsNoMoreHasItsChildrenThere) {
  ::setenv("MP_TEST_VARIABLE", "there", 1);
  expect_runs(Process(check_surroundings, args(0, "there", working_folder()),
                      {.start_method = "forkserver"}));  // its server is there now
  const auto before = std::filesystem::current_path();
  std::string folder = testing::TempDir() + "mp_folder_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::filesystem::current_path(folder);
  std::filesystem::remove(folder);
  for (const char* method : {"fork", "forkserver"})
    expect_runs(
        Process(check_surroundings, args(0, "there", working_folder()), {.start_method = method}));
  std::filesystem::current_path(before);
  ::unsetenv("MP_TEST_VARIABLE");
}

void fail_on(int rank, int victim, std::string how) {
  if (rank != victim) return;
  if (how == "throw") throw std::runtime_error("the data is\nbad");
  if (how == "throw int") throw 42;
  if (how == "throw Error") throw Error(ErrorCode::kTimeout, "it took long", "slow", "wait");
  if (how == "kill") ::kill(::getpid(), SIGKILL);
  if (how == "exit") std::exit(3);
}
DTRUN_MP_FUNCTION(fail_on);

ProcessRaisedException raised_by(const std::string& how, const std::string& method) {
  try {
    spawn(fail_on, args(1, how), {.nprocs = 3, .start_method = method});
  } catch (const ProcessRaisedException& error) {
    return error;
  }
  throw std::runtime_error("nothing was raised");
}

TEST(SpawnTest, AnExceptionComesBackWithRankTypeAndText) {
  for (const std::string method : kMethods) {
    const auto error = raised_by("throw", method);
    EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.type(), "std::runtime_error");
    EXPECT_EQ(error.text(), "the data is\nbad");
    EXPECT_EQ(error.summary(), fmt::format("process 1 (pid {}) raised std::runtime_error: the data "
                                           "is\nbad",
                                           error.pid()));
    EXPECT_THAT(raised_by("throw int", method).what(), HasSubstr("raised int"));
    EXPECT_EQ(raised_by("throw Error", method).text(), "it took long\n  why: slow\n  try: wait");
  }
}

TEST(SpawnTest, AnExitOrASignalIsNamedWithRankAndPid) {
  for (const std::string method : kMethods)
    for (const auto& [how, code, words] :
         {std::tuple("kill", -SIGKILL, "was ended by SIGKILL"), {"exit", 3, "with exit code 3"}}) {
      try {
        spawn(fail_on, args(2, how), {.nprocs = 3, .start_method = method});
        FAIL() << method << " " << how;
      } catch (const ProcessExitedException& error) {
        EXPECT_EQ(error.rank(), 2);
        EXPECT_EQ(error.exit_code(), code);
        EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("process 2 (pid {}) ", error.pid())),
                                        HasSubstr(words)));
      }
    }
}

void wait_at_gate_by_rank(int rank, std::string path) {
  if (rank == 0) Gate::wait_at(path);
}
DTRUN_MP_FUNCTION(wait_at_gate_by_rank);

// As a program that makes itself a daemon. With `reuse`, another file takes the hand-over's number.
void close_all_and_throw(int rank, std::string reuse) {
  if (rank != 1) return;
  constexpr int kNumbers = 100;
  for (int fd = 3; fd < kNumbers; ++fd) ::close(fd);
  while (!reuse.empty() && ::open(reuse.c_str(), O_RDWR | O_CLOEXEC) < kNumbers - 1) {
  }
  throw std::runtime_error("the data is bad");
}
DTRUN_MP_FUNCTION(close_all_and_throw);

TEST(SpawnTest, AChildThatHasClosedTheWayBackStillTellsAndHarmsNoFile) {
  const std::string path = testing::TempDir() + "mp_other_file_" + std::to_string(::getpid());
  for (const std::string method : kMethods)
    for (const std::string& reuse : {std::string(), path}) {
      std::ofstream(path) << "untouched";
      testing::internal::CaptureStderr();
      try {
        spawn(close_all_and_throw, args(reuse), {.nprocs = 3, .start_method = method});
        ADD_FAILURE() << method;
      } catch (const ProcessExitedException& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_EQ(error.exit_code(), 1);
      }
      EXPECT_THAT(testing::internal::GetCapturedStderr(),
                  AllOf(HasSubstr("cannot be told of the exception"),
                        HasSubstr("std::runtime_error: the data is bad")))
          << method;
      std::string content;
      std::getline(std::ifstream(path), content);
      EXPECT_EQ(content, "untouched") << method;
    }
  std::filesystem::remove(path);
}

TEST(ProcessTest, OneThatAnotherPartOfTheProgramHasReapedIsNamedAndHoldsNobodyUp) {
  const Gate gate;
  ProcessContext context = spawn(wait_at_gate_by_rank, args(gate.path()),
                                 {.nprocs = 2, .join = false, .grace_period = 20ms});
  const std::vector<pid_t> pids = context.pids();
  ASSERT_EQ(::waitpid(pids[1], nullptr, 0), pids[1]);
  for (int time = 0; time < 2; ++time) {
    const auto error = error_of([&] { context.join(); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), AllOf(HasSubstr(std::to_string(pids[1])),
                                     HasSubstr("another part of this program has reaped it")));
  }
  EXPECT_NE(::kill(pids[0], 0), 0) << "the other was not ended";
  Process process(exit_with, args(0));
  process.start();
  ASSERT_EQ(::waitpid(*process.pid(), nullptr, 0), *process.pid());
  EXPECT_FALSE(process.is_alive());
  process.terminate();  // its number is nobody's, or somebody else's
  EXPECT_TRUE(error_of([&] { process.join(); }));
  spawn(fail_on, args(-1, ""));
}

// Rank 0 fails when the others are there; they would wait for ever, one even through SIGTERM.
void fail_when_both_are_there(int rank, std::string folder) {
  const std::string own = folder + std::to_string(rank);
  if (rank == 0) {
    for (int other = 1; other <= 2; ++other) Gate::wait_at(folder + std::to_string(other));
    throw std::logic_error("first");
  }
  if (rank == 2) ::signal(SIGTERM, SIG_IGN);
  ::close(::open(own.c_str(), O_WRONLY | O_CLOEXEC));
  while (true) ::pause();
}
DTRUN_MP_FUNCTION(fail_when_both_are_there);

TEST(SpawnTest, TheOthersAreEndedWhenOneFailsAlsoThoseThatIgnoreSigterm) {
  for (const std::string method : kMethods) {
    const Gate gate;
    for (const char* rank : {"1", "2"}) ASSERT_EQ(::mkfifo((gate.path() + rank).c_str(), 0600), 0);
    ProcessContext context =
        spawn(fail_when_both_are_there, args(gate.path()),
              {.nprocs = 3, .join = false, .start_method = method, .grace_period = 20ms});
    const std::vector<pid_t> pids = context.pids();
    EXPECT_THROW(context.join(), ProcessRaisedException);
    EXPECT_THROW(context.join(), ProcessRaisedException) << "again";
    if (method == "forkserver") continue;  // there the server reaps, a moment later
    for (const pid_t pid : pids) EXPECT_NE(::kill(pid, 0), 0) << method;
  }
}

TEST(SpawnTest, WithoutJoinItReturnsAtOnceAndTheContextWaits) {
  for (const std::string method : kMethods) {
    const Gate gate;
    ProcessContext context = spawn(wait_at_gate_by_rank, args(gate.path()),
                                   {.nprocs = 3, .join = false, .start_method = method});
    EXPECT_EQ(context.pids().size(), 3U);
    EXPECT_FALSE(context.join(Deadline::after(1ms)));
    gate.open();
    EXPECT_TRUE(context.join());
    EXPECT_TRUE(context.join());
  }
}

TEST(SpawnTest, FewerThanOneProcessIsRefused) {
  for (const int nprocs : {0, -1}) {
    const auto error = error_of([&] { spawn(fail_on, args(0, ""), {.nprocs = nprocs}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error->what(), HasSubstr(fmt::format("nprocs = {}", nprocs)));
  }
}

// The way back is as long for every start method: none may fail half-way, or with another error.
TEST(SpawnTest, AtTheLimitOfOpenFilesItFailsByNameAndLaterStarts) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer looks at every object by way of a pipe of its own";
#endif
  for (const std::string method : kMethods) {
    spawn(fail_on, args(-1, ""), {.start_method = method});  // the server is there
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit before = limit;
    int failures = 0;
    bool started = false;
    for (limit.rlim_cur = 3; !started && limit.rlim_cur < 100; ++limit.rlim_cur) {
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const auto error = error_of([&] { spawn(fail_on, args(-1, ""), {.start_method = method}); });
      ::setrlimit(RLIMIT_NOFILE, &before);
      started = !error;
      if (!error) continue;
      ++failures;
      EXPECT_THAT(error->what(), HasSubstr("raise the limit of open files")) << method;
    }
    EXPECT_TRUE(started && failures > 2) << method;
  }
}

// The first start after the death is the one that finds out.
TEST(SpawnTest, AForkserverThatWasKilledIsReplacedByTheNextStart) {
  for (int time = 0; time < 5; ++time) {
    const Gate gate;
    ProcessContext context = spawn(wait_at_gate_by_rank, args(gate.path()),
                                   {.join = false, .start_method = "forkserver"});
    pid_t server = 0;
    std::string word;
    std::ifstream stat(fmt::format("/proc/{}/stat", context.pids()[0]));
    while (stat >> word && !word.ends_with(')')) {
    }
    stat >> word >> server;
    ASSERT_NE(server, ::getpid());
    ::kill(server, SIGKILL);
    expect_runs(Process(exit_with, args(0), {.start_method = "forkserver"}));
    EXPECT_THROW(context.join(), ProcessExitedException);
  }
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

TEST(SpawnTest, TwoHundredProcessesLeaveNoDescriptor) {
  spawn(fail_on, args(-1, ""), {.start_method = "forkserver"});  // its server stays
  const std::size_t before = open_descriptors();
  for (const std::string method : kMethods)
    for (int run = 0; run < 17; ++run)
      spawn(fail_on, args(-1, ""), {.nprocs = 4, .start_method = method});
  // What is in the list of children until the next start.
  spawn(fail_on, args(-1, ""));
  EXPECT_LE(open_descriptors(), before + 2);
}

void not_registered(int) {}

TEST(FunctionTableTest, AFunctionWithoutANameIsRefusedWithTheLineToWrite) {
  for (const std::string method : {"spawn", "forkserver"}) {
    const auto error = error_of([&] { spawn(not_registered, {}, {.start_method = method}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kUsage);
    EXPECT_THAT(error->what(), HasSubstr("mp_test.cc:"));
    EXPECT_THAT(error->what(), HasSubstr("void (*)(int)"));
    EXPECT_THAT(error->remedy(), HasSubstr("DTRUN_MP_FUNCTION(its_name);"));
    const auto lambda = error_of([&] { spawn([](int) {}, {}, {.start_method = method}); });
    ASSERT_TRUE(lambda);
    EXPECT_THAT(lambda->what(), HasSubstr("is no function"));
    EXPECT_THAT(lambda->remedy(), HasSubstr("fork"));
  }
}

namespace one {
void twin() {}
DTRUN_MP_FUNCTION(twin);
}  // namespace one
namespace two {
void twin() {}
DTRUN_MP_FUNCTION(twin);
}  // namespace two

TEST(FunctionTableTest, TwoFunctionsOfOneNameAreRefusedWithBothPlaces) {
  const auto error = error_of([] { Process(two::twin).start(); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->summary(), HasSubstr("two functions are registered as 'twin'"));
  EXPECT_THAT(error->why(), testing::ContainsRegex("mp_test.cc:[0-9]+, the other at mp_test.cc:"));
}

TEST(ForkTest, RunsAnyCallableOnACopyOfTheMemory) {
  int number = 1;
  std::string text = "captured";
  const auto body = [&number, &text](int rank, std::string word) {
    REQUIRE(number == 1 && text == "captured" && word == "w" && rank < 2);
    number = 2;
  };
  spawn(body, args("w"), {.nprocs = 2, .start_method = "fork"});
  EXPECT_EQ(number, 1);
}

void expect_fork_refused(const std::string& reason) {
  const auto error = error_of([] { spawn([](int) {}, {}, {.start_method = "fork"}); });
  ASSERT_TRUE(error) << reason;
  EXPECT_EQ(error->code(), ErrorCode::kUsage);
  EXPECT_THAT(error->what(), HasSubstr(reason));
  EXPECT_THAT(error->remedy(), HasSubstr("spawn or forkserver"));
}

TEST(ForkTest, IsRefusedWhereThereIsAnotherThread) {
  std::promise<void> go;
  std::thread other([&] { go.get_future().wait(); });
  expect_fork_refused("other thread");
  go.set_value();
  other.join();
  spawn([](int) {}, {}, {.start_method = "fork"});
}

TEST(ForkTest, IsRefusedAfterInit) {
  runtime::InitOptions options;
  // A loopback address of this process alone: nobody takes the port meanwhile.
  const std::string host = fmt::format("127.200.{}.{}", ::getpid() >> 8 & 0xff, ::getpid() & 0xff);
  const int port = base::local_port(base::listen_tcp(host, 0).get());
  options.environment.set("MASTER_ADDR", host);
  options.environment.set("MASTER_PORT", std::to_string(port));
  options.environment.set("RANK", "0");
  options.environment.set("WORLD_SIZE", "1");
  {
    const runtime::Worker worker = runtime::init(options);
    expect_fork_refused("fork after init");
  }
  spawn([](int) {}, {}, {.start_method = "fork"});
}

TEST(SigchldTest, AProgramThatIgnoresItCannotStartProcesses) {
  ::signal(SIGCHLD, SIG_IGN);
  const auto error = error_of([] { spawn(fail_on, args(-1, "")); });
  ::signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("SIGCHLD"));
}

}  // namespace
}  // namespace dtrun::mp

int main(int argc, char** argv) {
  dtrun::mp::run_if_child();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
