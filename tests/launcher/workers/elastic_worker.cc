// A rank of an elastic job:
//     elastic_worker [fail RANK RESTARTS CODE]
// joins the store of its round, says where it stands once all ranks have come, and waits there for
// the key "finish", which ends it with 0. With `fail` that rank exits with CODE while there have
// been fewer than RESTARTS restarts. Whatever else happens to it, dtrun must end it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "dtrun/base/env.h"
#include "dtrun/rendezvous/tcp_store.h"
#include "dtrun/rendezvous/worker_env.h"

namespace {

using dtrun::base::Deadline;

// Before "finish" is awaited, so that a test which has read it can count on the rank being there.
void say_where(const dtrun::rendezvous::WorkerEnv& worker) {
  std::printf("rank %d of %d, node %d of %d, restart %d of %d, pid %d, store %s:%d\n", worker.rank,
              worker.world_size, worker.group_rank, worker.group_world_size, worker.restart_count,
              worker.max_restarts, ::getpid(), worker.master_addr.c_str(), worker.master_port);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto worker = dtrun::rendezvous::read_worker_env(dtrun::base::Environment::current());
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  try {
    const auto store =
        dtrun::rendezvous::connect_tcp_store({worker.master_addr, worker.master_port});
    // Of an empty store: the first rank of this round to come is the first of all.
    if (store->add("here", 1) > worker.world_size) {
      std::printf("rank %d found another round's store\n", worker.rank);
      return 99;
    }
    store->barrier("all", worker.world_size, deadline);
    const bool fails =
        argc == 5 && worker.rank == std::atoi(argv[2]) && worker.restart_count < std::atoi(argv[3]);
    if (fails) return std::atoi(argv[4]);
    say_where(worker);
    store->get("finish", deadline);
    return 0;
  } catch (const std::exception& error) {
    std::printf("error of rank %d: %s\n", worker.rank, error.what());
    std::fflush(stdout);
  }
  while (true) ::pause();
}
