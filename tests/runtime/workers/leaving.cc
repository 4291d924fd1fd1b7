// A rank of dist:: that ends in one of several ways, for tests: leaving HOW.
#include <stdlib.h>
#include <string.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main(int, char** argv) {
  const std::string how = argv[1];
  dist::init_process_group();
  dist::all_reduce(ones({4}));
  print("rank {} has reduced", dist::get_rank());
  if (how == "destroy") dist::destroy_process_group();
  for (int again = 0; how == "init-again" && again < 5; ++again) {
    dist::destroy_process_group();
    dist::init_process_group();
    const Tensor tensor = ones({1});
    dist::all_reduce(tensor);
    print("rank {} world {}: {}", dist::get_rank(), again, tensor);
  }
  if (how == "init-again") dist::destroy_process_group();
  if (how == "one-leaves") {
    if (dist::get_rank() == 0) {
      try {
        dist::barrier();
      } catch (const base::Error& error) {
        print("rank 0 hears: {}", error.summary());
      }
      const ProcessGroup rest = dist::shrink_group();
      const Tensor tensor = ones({1});
      dist::all_reduce(tensor, ReduceOp::sum, {.group = rest});
      print("rank 0 goes on in {}: {}", rest.to_string(), tensor);
    }
    dist::destroy_process_group();
  }
  if (how == "exit") ::exit(0);
  if (how == "throw" && dist::get_rank() == 0) throw std::runtime_error("the data is bad");
  if (how == "send-last") {
    // Too much for the ring: it is still under way when main() returns.
    if (dist::get_rank() == 0) dist::isend(ones({1 << 20}), 1);
    if (dist::get_rank() == 1) dist::recv(empty({1 << 20}), 0);
  }
  if (how == "exit-from-thread") {
    dist::barrier();
    std::thread([] { ::exit(0); }).join();
  }
}
