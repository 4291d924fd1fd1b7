#include "dtrun/runtime/worker.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <optional>

#include "crash_handler.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/collectives/backend_spec.h"
#include "dtrun/rendezvous/file_store.h"
#include "dtrun/rendezvous/job_page.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "dtrun/rendezvous/program_note.h"
#include "dtrun/rendezvous/tcp_store.h"
#include "dtrun/tensor/cuda.h"
#include "escaped_exception.h"
#include "init_method.h"
#include "job_place.h"
#include "live_workers.h"
#include "rank_device.h"
#include "simulated_place.h"
#include "store_host.h"

namespace dtrun::runtime {

using base::Deadline;
using base::log::Component;
using rendezvous::RankState;

// Torn down from the bottom up: the group says goodbye while the store still answers.
struct Worker::Impl {
  LiveWorker live;
  rendezvous::WorkerEnv env;
  tensors::Device device;
  std::shared_ptr<rendezvous::JobPage> job_page;  // null: none, as under another launcher
  int slot = 0;                                   // of this rank, in the page
  std::unique_ptr<StoreHost> store_host;
  std::shared_ptr<rendezvous::Store> store;
  collectives::ProcessGroup world;

  void take_slot();
  void set_state(RankState state) const {
    if (job_page) job_page->slot(slot).state.store(static_cast<std::uint32_t>(state));
  }
};

namespace {

// Of a process that initializes more than once, too.
void warn_once_of_no_page(const base::Error& error) {
  static std::once_flag told;
  std::call_once(told, [&] {
    base::log::warning(Component::kRuntime,
                       "this rank goes on without dtrun's job page, as under torchrun, and learns "
                       "of the end of others by its connections to them: {}",
                       error.what());
  });
}

// Null: there is none, or somebody between the launcher and this process has closed it.
std::shared_ptr<rendezvous::JobPage> open_job_page(const rendezvous::WorkerEnv& env) {
  if (env.job_page_fd < 0) {
    base::log::info(Component::kRuntime,
                    "no launcher of ours: peers on this machine are watched by pidfd");
    return nullptr;
  }
  try {
    return std::make_shared<rendezvous::JobPage>(
        rendezvous::JobPage::open(env.job_page_fd, env.job_page_id));
  } catch (const base::Error& error) {
    if (error.code() != base::ErrorCode::kProtocol) throw;
    warn_once_of_no_page(error);
    return nullptr;
  }
}

// Says that this rank waits in init from now on, and looks whether one of its node has gone
// already. The guard does it the other way round: it notes an exit in the page, then looks who
// waits. So of the two at least one sees the other.
void wait_in_init(const rendezvous::JobPage& page, rendezvous::RankSlot& own, int rank) {
  own.state.store(static_cast<std::uint32_t>(RankState::kInit));
  for (int i = 0; i < page.slot_count(); ++i) {
    const rendezvous::RankSlot& slot = page.slot(i);
    if (slot.state.load() != static_cast<std::uint32_t>(RankState::kExited)) continue;
    own.victim_of.store(slot.global_rank.load());
    throw base::Error(
        base::ErrorCode::kPeerFailed,
        fmt::format("rank {} (pid {}) exited before it joined; rank {} cannot start without it",
                    slot.global_rank.load(), slot.pid.load(), rank),
        "every rank of a job must come to init", "look at what that rank printed");
  }
}

// Beside the code that does what it says, with which the linker takes it.
[[gnu::section(".note.dtrun"), gnu::used]] alignas(4) const rendezvous::ProgramNote program_note =
    rendezvous::kPresentsStoreToken;

// Of the launcher's, for the store of its ranks.
std::optional<rendezvous::Token> token_of(const rendezvous::WorkerEnv& env) {
  if (env.store_token.empty()) return std::nullopt;
  return rendezvous::Token(env.store_token, "DTRUN_STORE_TOKEN");
}

// Nobody but this rank serves the store of a job that was started by hand.
std::unique_ptr<StoreHost> host_store(const rendezvous::WorkerEnv& env) {
  if (env.use_agent_store || env.rank != 0) return nullptr;
  try {
    return std::make_unique<StoreHost>(env.master_addr, env.master_port, token_of(env));
  } catch (const base::Error& error) {
    throw base::Error(
        error.code(),
        fmt::format("rank 0 cannot serve the job's store at {}:{}", env.master_addr,
                    env.master_port),
        error.why(),
        fmt::format("where the port is in use: another job may have it, or another process that is "
                    "rank 0 of this job, too (`ss -ltnp` shows it); end that, or set another "
                    "MASTER_PORT than {} for all ranks",
                    env.master_port));
  }
}

// At the store of the launcher, of rank 0, or in the file that the init method names.
std::shared_ptr<rendezvous::Store> open_store(const rendezvous::WorkerEnv& env,
                                              const InitMethod& method,
                                              Deadline::Duration timeout) {
  if (method.kind == InitMethod::Kind::file)
    return rendezvous::open_file_store(
        {.path = method.path,
         .workers = env.world_size,
         .leftover = rendezvous::FileStoreOptions::Leftover::discard});
  return rendezvous::connect_tcp_store({.host = env.master_addr,
                                        .port = env.master_port,
                                        .connect_timeout = timeout,
                                        .token = token_of(env)});
}

std::string own_address(const rendezvous::WorkerEnv& env) {
  for (const char* name : {"DTRUN_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"})
    if (const char* names = std::getenv(name); names != nullptr && *names != '\0')
      return base::address_of_interface(names, fmt::format("{}={}", name, names));
  if (!env.master_addr.empty()) return base::source_address_towards(env.master_addr);
  // Ranks that meet in a file know no other host; only peers elsewhere would need the address.
  try {
    return base::source_address_towards(base::host_name());
  } catch (const base::Error& error) {
    base::log::info(Component::kRuntime, "peers must be on this machine: {}", error.what());
    return "127.0.0.1";
  }
}

int connections_per_peer(const base::Environment& environment) {
  constexpr const char* kName = "DTRUN_CONNECTIONS_PER_PEER";
  const std::string text = environment.get(kName).value_or("auto");
  if (text == "auto") return 0;
  const std::optional<long long> number = base::parse_integer(text);
  if (number && *number >= 1 && *number <= collectives::GroupOptions::kMostConnectionsPerPeer)
    return static_cast<int>(*number);
  throw base::Error(
      base::ErrorCode::kInvalidArgument,
      fmt::format("{}={} is no number of connections", kName, text), "",
      fmt::format("set it to a number from 1 to {}, or to auto, which goes by the round trip",
                  collectives::GroupOptions::kMostConnectionsPerPeer));
}

/// The table, and why it cannot be used.
struct Costs {
  collectives::CostTable table;
  std::optional<base::Error> error = {};
};

Costs costs_of(const InitOptions& options) {
  if (options.costs) return {*options.costs};
  constexpr const char* kName = "DTRUN_COST_TABLE";
  const std::string path = options.environment.get(kName).value_or("");
  if (path.empty()) return {};
  try {
    return {collectives::CostTable::read(path)};
  } catch (const base::Error& error) {
    return {collectives::CostTable::unusable(path, error.summary()),
            base::Error(error.code(), fmt::format("{}={}: {}", kName, path, error.summary()),
                        error.why(),
                        "name a file that `dtrun-bench tune` has written, the same on all hosts")};
  }
}

collectives::ProcessGroup join_world(const rendezvous::WorkerEnv& env, const InitOptions& options,
                                     std::shared_ptr<rendezvous::Store> store,
                                     std::shared_ptr<rendezvous::JobPage> job_page, int slot) {
  std::vector<int> ranks(static_cast<std::size_t>(env.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  collectives::GroupOptions group;
  // A restarted job must not meet the keys of its last attempt, nor a second world the first's.
  group.store = rendezvous::make_prefix_store(
      fmt::format("dtrun/{}/{}/{}", env.run_id, env.restart_count, options.generation),
      std::move(store));
  group.rank = env.rank;
  group.global_ranks = std::move(ranks);
  group.backend = options.backend;
  group.timeout = options.timeout;
  group.local_rank = job_page ? slot : env.local_rank;
  group.job_page = std::move(job_page);
  group.address = own_address(env);
  group.machine = options.machine;
  group.connections_per_peer = connections_per_peer(options.environment);
  const Costs costs = costs_of(options);
  group.costs = costs.table;
  if (!costs.error) return collectives::ProcessGroup::create(std::move(group));
  // Ranks whose tables are good would wait for this one: they are told first.
  try {
    collectives::ProcessGroup::create(std::move(group));
  } catch (const base::Error&) {
  }
  throw base::Error(*costs.error);
}

}  // namespace

void Worker::Impl::take_slot() {
  job_page = open_job_page(env);
  if (!job_page) return;
  const std::optional<int> own = job_page->slot_of(env.rank);
  if (!own) {
    base::log::info(Component::kRuntime, "the job page has no place for rank {}", env.rank);
    return job_page.reset();
  }
  slot = *own;
  job_page->slot(slot).pid.store(::getpid());
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::Worker(Worker&&) noexcept = default;

Worker& Worker::operator=(Worker&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Worker::~Worker() {
  if (!impl_) return;
  impl_->world.shutdown();
  impl_->set_state(RankState::kLeft);
}

int Worker::rank() const {
  return impl_->env.rank;
}
int Worker::local_rank() const {
  return impl_->env.local_rank;
}
int Worker::world_size() const {
  return impl_->env.world_size;
}
int Worker::local_world_size() const {
  return impl_->env.local_world_size;
}
const rendezvous::WorkerEnv& Worker::env() const {
  return impl_->env;
}
const std::shared_ptr<rendezvous::Store>& Worker::store() const {
  return impl_->store;
}
const collectives::ProcessGroup& Worker::world() const {
  return impl_->world;
}

tensors::Device Worker::device() const {
  return impl_->device;
}

Worker init(InitOptions options) {
  auto impl = std::make_unique<Worker::Impl>();
  SimulatedPlace* const simulated = SimulatedPlace::of_thread();
  if (simulated != nullptr) options.environment = simulated->environment();
  if (options.rank >= 0) options.environment.set("RANK", std::to_string(options.rank));
  report_escaped_exceptions(options.environment);
  if (simulated == nullptr) report_crashes(options.environment);
  // Somebody thinks about a rank of the job (dtrun --debug-rank), and the others wait for it.
  if (options.environment.contains("DTRUN_IS_DEBUGGED"))
    options.timeout = std::max<Deadline::Duration>(options.timeout, std::chrono::hours(24 * 365));
  const InitMethod method = find_meeting(options);
  impl->env = find_place(options, method);
  const rendezvous::WorkerEnv& env = impl->env;
  // All ranks of a simulation have one log.
  if (simulated == nullptr) base::log::set_prefix(fmt::format("rank {}", env.rank));
  impl->device = device_of_rank(collectives::parse_backend_spec(options.backend), env,
                                tensors::cuda::device_count());
  if (!impl->device.is_cpu()) tensors::cuda::set_device(impl->device.index);

  impl->take_slot();
  if (impl->job_page) wait_in_init(*impl->job_page, impl->job_page->slot(impl->slot), env.rank);
  if (simulated == nullptr && method.kind != InitMethod::Kind::file)
    impl->store_host = host_store(env);
  if (simulated != nullptr) simulated->join(env.world_size);
  impl->store =
      simulated != nullptr ? simulated->store() : open_store(env, method, options.timeout);
  impl->world = join_world(env, options, impl->store, impl->job_page, impl->slot);
  // Where the ranks themselves keep the store, nobody may still be joining when one of them ends.
  if (!env.use_agent_store) impl->world.barrier();
  // An earlier attempt may have missed somebody.
  if (impl->job_page) impl->job_page->slot(impl->slot).victim_of.store(-1);
  impl->set_state(RankState::kRunning);
  base::log::info(Component::kRuntime, "joined {}", impl->world.to_string());
  return Worker(std::move(impl));
}

}  // namespace dtrun::runtime
