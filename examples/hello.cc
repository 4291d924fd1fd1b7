// The shortest program of a job: who am I among whom?
//
//     dtrun --nproc_per_node=4 hello
#include "dtrun/dtrun.h"

int main() {
  const dtrun::Worker worker = dtrun::init();
  dtrun::print("hello from rank {} (local rank {}) of {}", worker.rank(), worker.local_rank(),
               worker.world_size());
}
