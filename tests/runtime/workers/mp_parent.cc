// A parent of processes, for tests: mp_parent HOW METHOD [TOKEN]. The token is there to be found in
// the command lines of all its processes.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "dtrun/dtrun.h"

namespace {

using namespace dtrun;

void wait_for_ever(std::string word) {
  print("{}", word);
  while (true) ::pause();
}
DTRUN_MP_FUNCTION(wait_for_ever);

void wait_with_a_child(int rank) {
  mp::Process child(wait_for_ever, mp::args("held by " + std::to_string(rank)));
  child.start();
  child.join();
}
DTRUN_MP_FUNCTION(wait_with_a_child);

// Ends when somebody opens the FIFO for writing.
void wait_for_fifo(std::string path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::close(fd);
  print("child done");
}
DTRUN_MP_FUNCTION(wait_for_fifo);

void print_by_stdio(int rank) {
  std::printf("by stdio, without an end of line (%d) ", rank);
}
DTRUN_MP_FUNCTION(print_by_stdio);

void reduce(int rank, int world_size) {
  dist::init_process_group(dist::InitProcessGroup{.rank = rank, .world_size = world_size});
  const Tensor tensor = ones({2});
  dist::all_reduce(tensor);
  print("rank {} of {}: {}", rank, world_size, tensor);
  dist::destroy_process_group();
}
DTRUN_MP_FUNCTION(reduce);

void do_nothing() {}
DTRUN_MP_FUNCTION(do_nothing);

int hold(const std::string& method) {
  mp::set_start_method(method);
  mp::spawn(wait_with_a_child, {}, {.nprocs = 2, .start_method = method});
  return 0;
}

// The thread that starts the child is gone before the child is.
int start_on_a_thread(const std::string& method) {
  std::vector<mp::Process> processes;
  std::thread([&] {
    processes.emplace_back(wait_for_ever, mp::args("held"),
                           mp::ProcessOptions{.start_method = method});
    processes[0].start();
  }).join();
  print("the thread has ended");
  processes[0].join();
  return 0;
}

int leave(const std::string& method, const char* fifo, bool daemon) {
  mp::Process process =
      daemon
          ? mp::Process(wait_for_ever, mp::args("held"), {.daemon = true, .start_method = method})
          : mp::Process(wait_for_fifo, mp::args(fifo), {.start_method = method});
  process.start();
  print("main done");
  return 0;
}

// A job of its own inside each rank of dtrun's, then dtrun's.
int reduce_twice(const std::string& method, const char* inner_host, const char* inner_port) {
  const std::string host = ::getenv("MASTER_ADDR");
  const std::string port = ::getenv("MASTER_PORT");
  ::setenv("MASTER_ADDR", inner_host, 1);
  ::setenv("MASTER_PORT", inner_port, 1);
  mp::spawn(reduce, mp::args(2), {.nprocs = 2, .start_method = method});
  ::setenv("MASTER_ADDR", host.c_str(), 1);
  ::setenv("MASTER_PORT", port.c_str(), 1);
  Worker worker = init();
  const Tensor tensor = ones({1});
  worker.world().all_reduce(tensor);
  print("outer rank {}: {}", worker.rank(), tensor);
  return 0;
}

int run(const std::string& how, const std::string& method, const char* argument,
        const char* second) {
  if (how == "hold") return hold(method);
  if (how == "thread") return start_on_a_thread(method);
  if (how == "leave-daemon") return leave(method, argument, true);
  if (how == "leave-child") return leave(method, argument, false);
  if (how == "reduce") mp::spawn(reduce, mp::args(2), {.nprocs = 2, .start_method = method});
  if (how == "reduce-twice") return reduce_twice(method, argument, second);
  if (how == "stdio") {
    std::printf("parent ");
    mp::spawn(print_by_stdio, {}, {.nprocs = 2, .start_method = method});
  }
  if (how == "not-announced" || how == "announced-late") {
    ::setenv("MP_PARENT_RETURNS", "1", 1);
    mp::Process process(do_nothing, {}, {.start_method = method});
    process.start();
    process.join();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "announced-late" && ::getenv("MP_PARENT_RETURNS") != nullptr) return 5;
  if (how != "not-announced") mp::run_if_child();
  try {
    return run(how, argc > 2 ? argv[2] : "spawn", argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
