#include "job_place.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"

namespace dtrun::runtime {
namespace {

using base::Error;
using base::ErrorCode;
using rendezvous::MasterAddress;
using rendezvous::WorkerEnv;

void check_arguments(const InitOptions& options, int rank, int world_size) {
  const auto refuse = [](const std::string& what, const char* why) {
    throw Error(ErrorCode::kInvalidArgument, what, why,
                "leave it away where dtrun starts the program: the environment has it");
  };
  if (rank < -1) refuse(fmt::format("init was called with rank {}", rank), "ranks count from 0");
  if (world_size < -1 || world_size == 0)
    refuse(fmt::format("init was called with world_size {}", world_size),
           "a job has at least one rank");
  if (world_size > 0 && rank >= world_size)
    refuse(fmt::format("init was called with rank {} and world_size {}", rank, world_size),
           "ranks count from 0 to world_size - 1");
  if (options.timeout <= base::Deadline::Duration::zero())
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("init was called with a timeout of {}", base::format_duration(options.timeout)),
        "the ranks need time to meet", "the default is 30 minutes");
}

}  // namespace

InitMethod find_meeting(const InitOptions& options) {
  InitMethod method = parse_init_method(options.init_method);
  if (method.kind != InitMethod::Kind::environment) return method;
  const std::string folder = rendezvous::mpirun_folder(options.environment);
  if (folder.empty()) return method;
  method.kind = InitMethod::Kind::file;
  method.path = folder + "/dtrun-store";
  base::log::info(base::log::Component::kRuntime, "mpirun has started us: we meet at {}",
                  method.path);
  return method;
}

WorkerEnv find_place(const InitOptions& options, const InitMethod& method) {
  const int rank = options.rank != -1 ? options.rank : method.rank.value_or(-1);
  const int world_size =
      options.world_size != -1 ? options.world_size : method.world_size.value_or(-1);
  check_arguments(options, rank, world_size);
  base::Environment environment = options.environment;
  if (rank != -1) environment.set("RANK", std::to_string(rank));
  if (world_size != -1) environment.set("WORLD_SIZE", std::to_string(world_size));
  if (method.kind == InitMethod::Kind::environment)
    return rendezvous::read_worker_env(environment, MasterAddress::needed);
  if (method.kind == InitMethod::Kind::file) {
    environment.unset("TORCHELASTIC_USE_AGENT_STORE");
    return rendezvous::read_worker_env(environment, MasterAddress::optional);
  }
  // The launcher's store is used where the method names just that; else rank 0 serves one.
  const std::string port = std::to_string(method.port);
  if (environment.get("MASTER_ADDR") != method.host || environment.get("MASTER_PORT") != port)
    environment.unset("TORCHELASTIC_USE_AGENT_STORE");
  environment.set("MASTER_ADDR", method.host);
  environment.set("MASTER_PORT", port);
  return rendezvous::read_worker_env(environment, MasterAddress::needed);
}

}  // namespace dtrun::runtime
