// One rank of collective_bench: dtrun's cpu backend, started by dtrun.
#include "bench/group_contender.h"
#include "collective_contender.h"
#include "dtrun/runtime/worker.h"

int main(int argc, char** argv) {
  const dtrun::runtime::Worker worker = dtrun::runtime::init();
  dtrun::bench::GroupContender dtrun(worker.world(), worker.store(), worker.device());
  return dtrun::bench::run_contender(dtrun, argc, argv);
}
