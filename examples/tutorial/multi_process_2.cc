// mp::spawn: the same as multi_process_1 in one call.
//
//     multi_process_2
#include <string>

#include "dtrun/dtrun.h"

using namespace dtrun;

// The rank is given to every function; the rest comes from spawn's arguments.
void fn(int rank, std::string param1, std::string param2) {
  print("{} {} - rank: {}", param1, param2, rank);
}
DTRUN_MP_FUNCTION(fn);

int main() {
  mp::run_if_child();

  mp::spawn(fn, mp::args("A0", "B1"),
            {.nprocs = 4, .join = true, .daemon = false, .start_method = "spawn"});
}
