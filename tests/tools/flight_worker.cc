// A rank whose job comes to an end, or to none, for a reason that its last operations show:
//     flight_worker fail|hang|hang-once|stop|circle|kill|timeout
// hang-once comes in a round that is a restart. With timeout the others wait five seconds.
// With work it ends well, after calls of every kind.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include <dtrun/dtrun.h>

#include "dtrun/rendezvous/job_page.h"

namespace {

// Until every other rank is in its second operation: what a test demands must not depend on who
// runs first.
void await_peers() {
  using dtrun::rendezvous::JobPage;
  using dtrun::rendezvous::RankState;
  const JobPage page = JobPage::open(std::atoi(std::getenv("DTRUN_JOB_PAGE_FD")));
  for (int i = 0; i < page.slot_count(); ++i) {
    const auto& slot = page.slot(i);
    while (slot.global_rank.load() != dtrun::dist::get_rank() &&
           (slot.operations.load() < 2 ||
            slot.state.load() != static_cast<std::uint32_t>(RankState::kInCollective)))
      ::sched_yield();
  }
}

// Of three ranks: two groups, calls at the same time, messages with tags out of order.
void work() {
  using namespace dtrun;
  const int rank = dist::get_rank();
  Tensor numbers = ones({8});
  for (int i = 0; i < 3; ++i) dist::all_reduce(numbers);
  const ProcessGroup pair = dist::new_group({0, 1}, {.name = "pair"});
  if (pair.valid()) dist::all_reduce(numbers, ReduceOp::sum, {.group = pair});
  Tensor one = ones({100000}), another = ones({100000});
  const Work first = dist::all_reduce(one, ReduceOp::sum, {.async_op = true});
  const Work second = dist::all_reduce(another, ReduceOp::sum, {.async_op = true});
  second.wait();
  first.wait();
  if (rank == 0) {
    dist::send(numbers, 1, {.tag = 7});
    dist::send(numbers, 1, {.tag = 8});
  }
  if (rank == 1) {
    dist::recv(numbers, 0, {.tag = 8});
    dist::recv(numbers, 0, {.tag = 7});
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace dtrun;
  const std::string mode = argc > 1 ? argv[1] : "";
  dist::init_process_group();
  dist::barrier();
  // They end by their own error, not by dtrun's signal.
  if (mode == "fail") ::signal(SIGTERM, SIG_IGN);
  const bool is_second = dist::get_rank() == 1;
  if (mode == "fail" && is_second) {
    await_peers();
    ::_exit(3);
  }
  const bool hangs =
      mode == "hang" || mode == "timeout" ||
      (mode == "hang-once" && std::string(std::getenv("TORCHELASTIC_RESTART_COUNT")) == "0");
  if (hangs && is_second)
    while (true) ::pause();
  if (mode == "kill" && is_second) {
    await_peers();
    ::raise(SIGKILL);
  }
  if (mode == "work") work();
  if (mode == "stop" && is_second) ::raise(SIGSTOP);
  Tensor numbers = ones({8});
  if (mode == "circle") dist::recv(numbers, is_second ? 0 : 1);
  dist::OpOptions options;
  if (mode == "timeout") options.timeout = std::chrono::seconds(5);
  dist::all_reduce(numbers, ReduceOp::sum, options);
  dist::destroy_process_group();
  return 0;
}
