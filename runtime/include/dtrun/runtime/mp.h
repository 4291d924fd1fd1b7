// mp: torch.multiprocessing's Process and spawn: processes that run one function of this program.
// Not thread-safe; one Process belongs to one thread. Children never outlive a parent that dies.
//
//     void fn(int rank, std::string param1, std::string param2) { ... }
//     DTRUN_MP_FUNCTION(fn);                        // a fresh image finds it by its name
//
//     int main() {
//       mp::run_if_child();                         // a fresh image begins in main, too
//       mp::spawn(fn, mp::args("A0", "B1"), {.nprocs = 4});
//     }
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"

namespace dtrun::mp {}  // namespace dtrun::mp
