// One rank that meets the others, for tests: meet METHOD RANK WORLD_SIZE [BACKEND]; METHOD
// "setenv:PORT" sets the environment by hand in the program itself.
#include <stdlib.h>

#include <string>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main(int argc, char** argv) {
  const std::string method = argv[1];
  dist::InitProcessGroup options;
  if (method.starts_with("setenv:")) {
    ::setenv("MASTER_ADDR", "localhost", 1);
    ::setenv("MASTER_PORT", method.substr(7).c_str(), 1);
    ::setenv("RANK", argv[2], 1);
    ::setenv("WORLD_SIZE", argv[3], 1);
  } else {
    options.init_method = method;
    options.rank = ::atoi(argv[2]);
    options.world_size = ::atoi(argv[3]);
  }
  if (argc > 4) options.backend = argv[4];
  dist::init_process_group(options);
  const Tensor tensor = ones({1});
  dist::all_reduce(tensor);
  print("rank {} of {}: {}", dist::get_rank(), dist::get_world_size(), tensor);
  dist::destroy_process_group();
}
