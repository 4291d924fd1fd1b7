// Where an nccl backend begins, in a build that has NCCL.
#include <fmt/core.h>

#include "cpu/commons_door.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "make_backend.h"
#include "membership.h"
#include "nccl/nccl_backend.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

namespace {

bool is_set(const char* name) {
  return base::get_env(name).value_or("0") == "1";
}

std::shared_ptr<nccl::NcclWorld> make_world(const GroupOptions& options, const std::string& host) {
  auto world = std::make_shared<nccl::NcclWorld>();
  world->nccl = nccl::real_nccl_api();
  world->device = real_device_api();
  world->store = options.store;
  world->job_page = options.job_page;
  world->record = record_of(options);
  world->host = host;
  world->machine = cpu::locality_here();
  world->local_rank = options.local_rank;
  if (is_set("TORCH_NCCL_BLOCKING_WAIT")) world->host_wait = nccl::HostWait::yes;
  world->compare_calls = base::get_env("TORCH_DISTRIBUTED_DEBUG").value_or("") == "DETAIL";
  world->gpus_are_shared = is_set("NCCL_MULTI_RANK_GPU_ENABLE");
  return world;
}

}  // namespace

std::optional<Error> nccl_obstacle() {
  if (real_device_api()->device_count() > 0) {
    try {
      nccl::real_nccl_api();
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }
  return Error(ErrorCode::kUnavailable,
               "backend 'nccl' needs one GPU per rank: this machine has none",
               "no driver, or no device that this process may use (CUDA_VISIBLE_DEVICES)",
               "start the ranks where GPUs are");
}

std::unique_ptr<Backend> make_nccl_backend(const GroupOptions& options) {
  Card mine;
  mine.global_rank = options.global_ranks[static_cast<std::size_t>(options.rank)];
  const std::vector<Card> cards = exchange_cards(options, mine, options.joining_deadline());
  nccl::NcclGroupSpec spec;
  spec.key = "nccl";
  spec.name = options.name;
  spec.rank = options.rank;
  spec.global_ranks = options.global_ranks;
  spec.timeout = options.timeout;
  const std::string host = cards[static_cast<std::size_t>(options.rank)].host;
  return std::make_unique<nccl::NcclBackend>(
      std::make_shared<nccl::NcclGroup>(make_world(options, host), std::move(spec)));
}

}  // namespace dtrun::collectives
