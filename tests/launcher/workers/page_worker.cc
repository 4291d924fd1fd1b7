// A rank that does to the job page what a real worker would, without the layers in between:
//     page_worker MODE...      one mode per local rank
// and so shows the launcher states that are hard to reach in time. Waits for its peers by watching
// the page: this is the one worker that may spin.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/env.h"
#include "dtrun/base/futex.h"
#include "dtrun/rendezvous/job_page.h"

namespace {

using dtrun::base::Deadline;
using dtrun::rendezvous::JobPage;
using dtrun::rendezvous::RankState;

int number(const char* name) {
  return static_cast<int>(*dtrun::base::parse_integer(*dtrun::base::get_env(name)));
}

struct Self {
  JobPage page = JobPage::open(number("DTRUN_JOB_PAGE_FD"));
  int local_rank = number("LOCAL_RANK");
  int local_world_size = number("LOCAL_WORLD_SIZE");

  void set(RankState state) const {
    page.slot(local_rank).state.store(static_cast<std::uint32_t>(state));
  }
  // Until every other rank is in the state.
  void await_peers(RankState state) const {
    for (int i = 0; i < local_world_size; ++i)
      while (i != local_rank && page.slot(i).state.load() != static_cast<std::uint32_t>(state))
        ::sched_yield();
  }
  // As a blocked collective: until the page is aborted; then fails as a victim.
  [[noreturn]] void wait_for_abort() const {
    while (!page.aborted())
      dtrun::base::futex_wait(page.header().abort, 0, Deadline::after(std::chrono::seconds(30)));
    std::fprintf(stderr, "woken: %s\n", page.describe_cause().c_str());
    page.slot(local_rank).victim_of = page.header().cause.global_rank;
    std::exit(3);
  }
};

void begin_operation(const Self& self) {
  auto& slot = self.page.slot(self.local_rank);
  auto& operation = slot.ring[0];
  std::snprintf(operation.name, sizeof operation.name, "all_reduce");
  std::snprintf(operation.group, sizeof operation.group, "world");
  operation.sequence = 41;
  slot.operations = 1;
  slot.bytes = 4096;
  self.set(RankState::kInCollective);
}

// As a stray pointer does, or worse.
[[noreturn]] void spoil(const Self& self) {
  self.await_peers(RankState::kInit);  // they have opened it
  (void)!::ftruncate(self.page.fd(), 0);
  std::memset(
      static_cast<void*>(&self.page.header()), 0x7e,
      sizeof(dtrun::rendezvous::JobPageHeader) +
          static_cast<std::size_t>(self.local_world_size) * sizeof(dtrun::rendezvous::RankSlot));
  while (true) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  const Self self;
  if (self.local_rank + 1 >= argc) return 64;
  const std::string mode = argv[self.local_rank + 1];
  if (mode == "wait-in-init") {
    self.set(RankState::kInit);
    self.wait_for_abort();
  } else if (mode == "wait-in-collective") {
    begin_operation(self);
    self.wait_for_abort();
  } else if (mode == "finish-after-the-others") {
    begin_operation(self);
    self.await_peers(RankState::kExited);
    self.set(RankState::kLeft);
  } else if (mode == "exit-before-init") {
    self.await_peers(RankState::kInit);
  } else if (mode == "exit-in-init") {
    self.set(RankState::kInit);
    self.await_peers(RankState::kInit);
  } else if (mode == "exit-in-collective") {
    self.await_peers(RankState::kInCollective);
    begin_operation(self);
  } else if (mode == "exit-without-leaving") {
    self.set(RankState::kRunning);
    self.await_peers(RankState::kInCollective);
  } else if (mode == "leave") {
    self.set(RankState::kLeft);
  } else if (mode == "kill-self") {
    self.await_peers(RankState::kInCollective);
    begin_operation(self);
    ::raise(SIGKILL);
  } else if (mode == "spoil") {
    spoil(self);
  } else if (mode == "fail-when-spoilt") {
    self.set(RankState::kInit);
    while (self.page.header().magic == JobPage::kMagic) ::sched_yield();
    return 7;
  } else if (mode.starts_with("victim-of-")) {
    self.page.slot(self.local_rank).victim_of = mode.back() - '0';
    return 1;
  } else if (mode == "late") {
    begin_operation(self);
    while (true) ::pause();
  } else if (mode == "root-after-victims") {
    self.await_peers(RankState::kExited);
    return 9;
  } else {
    return 64;
  }
  return 0;
}
