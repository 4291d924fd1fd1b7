// A rank that does one thing wrong, for tests: misbehave HOW [RANK [ARGUMENT]]. Only rank RANK
// (default 2) misbehaves; the others go on as if nothing were. misbehave loop RANK TOKEN [ELEMENTS
// [RANKS]]: of so many, RANKS of which share memory.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "dtrun/dtrun.h"

namespace {

using namespace dtrun;

int number_of(const char* variable) {
  const char* text = ::getenv(variable);
  return text == nullptr ? -1 : ::atoi(text);
}

// All-reduces until something ends it; prints a line once the first is through, so that a test
// knows where it is.
void reduce_for_ever(const Worker& worker, int victim, const char* how, std::int64_t elements) {
  const Tensor tensor = ones({elements});
  for (long step = 0;; ++step) {
    if (worker.rank() == victim && step == 3 && ::strcmp(how, "kill-in-collective") == 0)
      ::kill(::getpid(), SIGKILL);
    if (worker.rank() == victim && step == 3 && ::strcmp(how, "exit-in-collective") == 0)
      ::_exit(number_of("EXIT_CODE"));
    worker.world().all_reduce(tensor, ReduceOp::max);
    if (step == 0) print("rank {} (pid {}) has reduced", worker.rank(), ::getpid());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const int victim = argc > 2 ? ::atoi(argv[2]) : 2;
  const int env_rank = number_of("RANK");
  if (how == "exit-before-init" && env_rank == victim) return argc > 3 ? ::atoi(argv[3]) : 0;

  InitOptions options;
  if (argc > 5) options.machine = std::to_string(env_rank / ::atoi(argv[5]));
  Worker worker = init(std::move(options));
  const bool mine = worker.rank() == victim;
  if (how == "throw" && mine) throw std::runtime_error("the data is\nbad");
  if (how == "throw-int" && mine) throw 42;
  if (how == "other-shape") worker.world().all_reduce(ones({mine ? 5 : 4}));
  if (how == "other-operation") {
    if (mine) {
      worker.world().barrier();
    } else {
      worker.world().all_reduce(ones({4}));
    }
  }
  // Each rank has two of the rows, the victim the one with a class that is none.
  if (how == "wrong-class") {
    const DeviceMesh mesh = DeviceMesh(worker.world(), {worker.world_size()});
    const Tensor scores = ones({2 * worker.world_size(), 3}, mesh, {Shard(0)});
    const Tensor classes = Tensor::from_local(tensor({0, mine ? 9 : 1}), mesh, {Shard(0)});
    print("the loss is {}", cross_entropy(scores, classes).item());
  }
  if (how == "leave-early" && mine) return 0;
  if (how == "leave-early") worker.world().barrier();
  if (how == "loop" || how == "kill-in-collective" || how == "exit-in-collective")
    reduce_for_ever(worker, victim, how.c_str(), argc > 4 ? ::atoi(argv[4]) : 1 << 14);
  print("rank {} is done", worker.rank());
}
