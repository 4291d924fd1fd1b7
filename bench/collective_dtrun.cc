// One rank of collective_bench: dtrun's cpu backend, started by dtrun. With --shared-memory before
// the calls, the tensors lie where the ranks read one another's in place; with --tcp no two ranks
// share memory.
#include <optional>
#include <string_view>

#include "bench/group_contender.h"
#include "collective_contender.h"
#include "dtrun/runtime/worker.h"

int main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  dtrun::runtime::InitOptions options;
  const char* const rank = std::getenv("RANK");
  if (first == "--tcp" && rank != nullptr) options.machine = rank;
  const dtrun::runtime::Worker worker = dtrun::runtime::init(std::move(options));
  std::shared_ptr<dtrun::tensors::HostAllocator> memory;
  std::optional<dtrun::tensors::HostAllocatorScope> scope;
  const bool is_in_place = first == "--shared-memory";
  if (is_in_place) scope.emplace(*(memory = worker.world().shared_memory()));
  const int words = is_in_place || first == "--tcp" ? 1 : 0;
  dtrun::bench::GroupContender dtrun(worker.world(), worker.store(), worker.device());
  return dtrun::bench::run_contender(dtrun, argc - words, argv + words);
}
