// The launcher is the parent, and the whole program runs once per rank.
//
//     dtrun --nproc_per_node=4 multi_process_3
#include <cstdlib>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  // RANK, LOCAL_RANK, WORLD_SIZE and the others were set by dtrun.
  const char* rank = std::getenv("RANK");
  print("hello world, {}", rank != nullptr ? rank : "and no launcher");
}
