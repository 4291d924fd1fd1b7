#include "dtrun/collectives/process_group.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <utility>

#include "dtrun/base/error.h"
#include "group_core.h"
#include "rank_record.h"

namespace dtrun::collectives {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

void check_options(const GroupOptions& options) {
  const auto refuse = [](const char* what) { throw Error(ErrorCode::kInvalidArgument, what); };
  if (!options.store) refuse("a group needs a store");
  if (options.global_ranks.empty()) refuse("a group needs at least one rank");
  if (options.rank < 0 || static_cast<std::size_t>(options.rank) >= options.global_ranks.size())
    refuse("a group's rank must be one of its members'");
  require_timeout(options.timeout, fmt::format("group '{}'", options.name));
  if (options.connections_per_peer < 0 ||
      options.connections_per_peer > GroupOptions::kMostConnectionsPerPeer)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("connections_per_peer of group '{}' is {}", options.name,
                            options.connections_per_peer),
                "",
                fmt::format("give a number from 1 to {}, or 0, which goes by the round trip",
                            GroupOptions::kMostConnectionsPerPeer));
}

}  // namespace

ProcessGroup ProcessGroup::create(GroupOptions options) {
  check_options(options);
  BackendSpec spec = parse_backend_spec(options.backend);
  options.record = record_of(options);
  BackendSet backends = make_backends(options);
  return ProcessGroup(
      std::make_shared<GroupCore>(std::move(options), std::move(spec), std::move(backends)));
}

ProcessGroup ProcessGroup::over(GroupOptions options, std::unique_ptr<Backend> backend) {
  if (!backend || backend->rank() != options.rank ||
      static_cast<std::size_t>(backend->size()) != options.global_ranks.size())
    throw Error(ErrorCode::kInvalidArgument, "a group's backend must have its rank and size");
  BackendSpec spec;
  BackendSet backends;
  if (backend->device_type() == tensors::DeviceType::cpu) {
    spec.cpu = backend->name();
    backends.cpu = std::move(backend);
  } else {
    spec.cuda = backend->name();
    backends.cuda = std::move(backend);
  }
  options.backend = spec.to_string();
  return ProcessGroup(
      std::make_shared<GroupCore>(std::move(options), std::move(spec), std::move(backends)));
}

GroupCore& ProcessGroup::core() const {
  if (!core_)
    throw Error(ErrorCode::kUsage,
                stranger_to_.empty()
                    ? "there is no group here"
                    : fmt::format("this rank is no member of group '{}'", stranger_to_),
                "only the ranks of a group can take part in its calls",
                "ask valid() before using what split() or new_group() returned");
  return *core_;
}

int ProcessGroup::rank() const {
  return core().rank();
}
int ProcessGroup::size() const {
  return core().size();
}
const std::string& ProcessGroup::name() const {
  return core_ ? core_->options().name : stranger_to_;
}
std::string ProcessGroup::backend_name() const {
  return core().spec().to_string();
}
bool ProcessGroup::serves(tensors::DeviceType type) const {
  return core().backend_of(type) != nullptr;
}
const std::vector<int>& ProcessGroup::global_ranks() const {
  return core().options().global_ranks;
}
Deadline::Duration ProcessGroup::timeout() const {
  return core().timeout();
}
void ProcessGroup::set_timeout(Deadline::Duration timeout) const {
  require_timeout(timeout, fmt::format("group '{}'", name()));
  core().set_timeout(timeout);
}

std::string ProcessGroup::to_string() const {
  if (!valid())
    return stranger_to_.empty()
               ? "ProcessGroup(none)"
               : fmt::format("ProcessGroup(name={}, this rank is no member)", stranger_to_);
  return fmt::format("ProcessGroup(name={}, backend={}, rank={}, ranks=[{}])", name(),
                     backend_name(), rank(), fmt::join(global_ranks(), ", "));
}

void ProcessGroup::refuse(OpKind kind, const Error& error, Site site) const {
  core().require_open(kind);
  core().reject(core().next_fingerprint(kind, site), error);
  throw error;
}

void ProcessGroup::abort(const std::string& reason) const {
  core().abort(reason);
}

TransportCounters ProcessGroup::counters() const {
  return core().counters();
}

std::optional<std::int64_t> ProcessGroup::bytes_to_send(const PlannedCall& call) const {
  return core().bytes_to_send(call);
}

CallCounters ProcessGroup::call_counters() const {
  return {name(), rank(), size(), core().meter().counts()};
}

void ProcessGroup::set_call_timing(CallTiming timing) const {
  core().meter().set_timing(timing);
}

std::shared_ptr<tensors::HostAllocator> ProcessGroup::shared_memory() const {
  return core().shared_memory();
}

std::vector<int> ProcessGroup::machines() const {
  return core().machines();
}

const CostTable& ProcessGroup::cost_table() const {
  return core().options().costs;
}

void ProcessGroup::shutdown() const {
  if (core_) core_->leave();
}

}  // namespace dtrun::collectives
