#include "support/rank_processes.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store.h"
#include "dtrun/rendezvous/tcp_store_server.h"

#if defined(__SANITIZE_THREAD__)
// Else every process with threads takes a second to end.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "atexit_sleep_ms=0";
}
#endif

namespace dtrun::test {

using base::Deadline;
using base::EventLoop;
using base::UniqueFd;
using collectives::GroupOptions;
using collectives::ProcessGroup;
using rendezvous::RankState;

namespace {

constexpr auto kPatience = std::chrono::seconds(60);

std::string read_all(int fd) {
  std::string text;
  char buffer[1024];
  ssize_t count;
  while ((count = ::read(fd, buffer, sizeof(buffer))) > 0)
    text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

}  // namespace

RankProcesses::RankProcesses(int size, const RankOptions& options, Guard guard,
                             const RankBody& body) {
  if (guard == Guard::job_page)
    job_page_ = std::make_shared<rendezvous::JobPage>(rendezvous::JobPage::create(size));
  for (int rank = 0; rank < size; ++rank) {
    base::Pipe port = base::make_pipe();
    base::Pipe result = base::make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
      own_port_ = std::move(port.read_end);
      own_result_ = std::move(result.write_end);
      ports_.clear();
      results_.clear();
      run_rank(rank, size, options, body);
    }
    pids_.push_back(child);
    ports_.push_back(std::move(port.write_end));
    results_.push_back(std::move(result.read_end));
  }
  UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = base::local_port(listener.get());
  loop_ = std::make_unique<EventLoop>();
  auto server = std::make_unique<rendezvous::TcpStoreServer>(*loop_, std::move(listener));
  store_thread_ = std::thread([loop = loop_.get(), held = std::move(server)]() mutable {
    loop->run();
    held.reset();
  });
  for (const UniqueFd& fd : ports_)
    EXPECT_EQ(::write(fd.get(), &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
}

void RankProcesses::run_rank(int rank, int size, const RankOptions& options, const RankBody& body) {
  std::string result = "ok";
  try {
    std::uint16_t port = 0;
    if (::read(own_port_.get(), &port, sizeof(port)) != static_cast<ssize_t>(sizeof(port)))
      ::_exit(3);
    const std::shared_ptr<rendezvous::Store> store =
        rendezvous::connect_tcp_store({.host = "127.0.0.1", .port = port});
    if (options.cpus != 0) bind_to_cpus(options.cpus);
    GroupOptions group = group_options(store, rank, size, options);
    group.job_page = job_page_;
    group.local_rank = rank;
    if (job_page_) {
      job_page_->slot(rank).pid.store(::getpid());
      job_page_->slot(rank).global_rank.store(rank);
    }
    body(ProcessGroup::create(std::move(group)));
  } catch (const base::Error& error) {
    result = std::to_string(static_cast<int>(error.code())) + " " + error.what();
  } catch (const std::exception& error) {
    result = "9 " + std::string(error.what());
  }
  if (::write(own_result_.get(), result.data(), result.size()) < 0) ::_exit(4);
  ::_exit(testing::Test::HasFailure() ? 5 : 0);
}

RankProcesses::~RankProcesses() {
  for (const pid_t pid : pids_) {
    if (pid <= 0) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  loop_->stop();
  store_thread_.join();
}

void RankProcesses::signal(int rank, int number) const {
  ASSERT_EQ(::kill(pid(rank), number), 0) << std::strerror(errno);
}

void RankProcesses::await_operation(int rank, std::uint64_t n) const {
  const rendezvous::RankSlot& slot = job_page_->slot(rank);
  const Deadline deadline = Deadline::after(kPatience);
  while (slot.operations.load() < n || state_of(slot) != RankState::kInCollective) {
    ASSERT_FALSE(deadline.expired()) << "rank " << rank << " did not begin operation " << n;
    ::sched_yield();
  }
}

int RankProcesses::await_stop_or_end(int rank) const {
  siginfo_t change{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid(rank)), &change, WSTOPPED | WEXITED | WNOWAIT), 0)
      << std::strerror(errno);
  return change.si_code;
}

void RankProcesses::stop(int rank) const {
  signal(rank, SIGSTOP);
  ASSERT_EQ(await_stop_or_end(rank), CLD_STOPPED) << "rank " << rank << " has ended";
}

void RankProcesses::continue_stopped(int rank) const {
  if (await_stop_or_end(rank) == CLD_STOPPED) signal(rank, SIGCONT);
}

void RankProcesses::kill_in_operation(int rank, std::uint64_t n) const {
  const Deadline deadline = Deadline::after(kPatience);
  for (;;) {
    await_operation(rank, n);
    if (testing::Test::HasFatalFailure()) return;
    stop(rank);
    if (testing::Test::HasFatalFailure()) return;
    // It may have ended that one meanwhile.
    if (state_of(job_page_->slot(rank)) == RankState::kInCollective) break;
    signal(rank, SIGCONT);
    ASSERT_FALSE(deadline.expired()) << "rank " << rank << " was in no operation when stopped";
  }
  signal(rank, SIGKILL);
}

RankProcesses::Ended RankProcesses::wait(int rank) {
  Ended ended;
  pid_t& child = pids_[static_cast<std::size_t>(rank)];
  EXPECT_EQ(::waitpid(child, &ended.status, 0), child);
  if (job_page_ && WIFSIGNALED(ended.status)) {
    rendezvous::Cause cause;
    cause.global_rank = rank;
    cause.local_rank = rank;
    cause.pid = child;
    cause.signal = WTERMSIG(ended.status);
    cause.state_at_death = static_cast<std::int32_t>(state_of(job_page_->slot(rank)));
    job_page_->abort(cause);
  }
  child = 0;
  const std::string text = read_all(results_[static_cast<std::size_t>(rank)].get());
  if (text.empty() || text == "ok") return ended;
  const std::size_t space = text.find(' ');
  ended.thrown = Thrown{static_cast<base::ErrorCode>(std::stoi(text)), text.substr(space + 1)};
  return ended;
}

}  // namespace dtrun::test
