// Processes from the user's own program: started one by one, joined one by one.
//
//     multi_process_1
#include <string>
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

// What the children run, all at the same time.
void fn(int rank, std::string param1, std::string param2) {
  print("{} {} - rank: {}", param1, param2, rank);
}
DTRUN_MP_FUNCTION(fn);  // a fresh image finds it by its name

int main() {
  mp::run_if_child();  // a fresh image begins in main as well

  mp::set_start_method("spawn");
  std::vector<mp::Process> processes;
  for (int rank = 0; rank < 4; ++rank) {
    // A daemon is ended when the main process ends.
    mp::Process process(fn, mp::args(rank, "A0", "B1"), {.daemon = true});
    process.start();
    processes.push_back(std::move(process));
  }
  for (mp::Process& process : processes) process.join();

  print("Main Process is done");
}
