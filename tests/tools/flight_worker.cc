// A rank whose job comes to an end, or to none, for a reason that its last operations show:
//     flight_worker fail|hang|stop|circle
#include <sched.h>
#include <signal.h>
#include <unistd.h>

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
  if (mode == "hang" && is_second)
    while (true) ::pause();
  if (mode == "stop" && is_second) ::raise(SIGSTOP);
  Tensor numbers = ones({8});
  if (mode == "circle") dist::recv(numbers, is_second ? 0 : 1);
  dist::all_reduce(numbers);
  dist::destroy_process_group();
  return 0;
}
