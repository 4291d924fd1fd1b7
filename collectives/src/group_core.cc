#include "group_core.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;
using tensors::DeviceType;

GroupCore::GroupCore(GroupOptions options, BackendSpec spec, BackendSet backends)
    : options_(std::move(options)),
      size_(static_cast<int>(options_.global_ranks.size())),
      spec_(std::move(spec)),
      backends_(std::move(backends)),
      timeout_(options_.timeout.count()) {
  if (base::get_env("DTRUN_TIME_CALLS") == "all") meter_->set_timing(CallTiming::all_calls);
}

void GroupCore::refuse(const LocalTensor& tensor, std::string_view what) const {
  if (tensor.defined()) backend_for(tensor.device(), what);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is an undefined tensor", what));
}

void GroupCore::refuse(tensors::Device device, std::string_view what) const {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is on {}, and group '{}' has no backend for it: its backend is '{}'",
                          what, device.to_string(), options_.name, spec_.to_string()),
              "",
              fmt::format("move the tensor, or make the group with one backend per device, as "
                          "cpu:cpu,cuda:nccl; usable here are: {}",
                          usable_backends()));
}

void GroupCore::remember(const base::CallSite& site) {
  set_site(last_print_, site);
  last_site_ = site;
}

void GroupCore::reject(const Fingerprint& fingerprint, const Error& error) const {
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda})
    if (Backend* backend = backend_of(type)) backend->reject(fingerprint, error);
}

void GroupCore::abort(const std::string& reason) const {
  if (left_) return;
  const int me = options_.global_ranks[static_cast<std::size_t>(rank())];
  const Error error(ErrorCode::kAborted,
                    fmt::format("rank {} has aborted group '{}'{}{}", me, options_.name,
                                reason.empty() ? "" : ": ", reason),
                    "", "make a new group of the ranks that are to go on");
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda})
    if (Backend* backend = backend_of(type)) backend->abort(error);
}

void GroupCore::require_open(const char* call) const {
  if (!left_) return;
  throw Error(ErrorCode::kAborted,
              fmt::format("{} in group '{}', which rank {} has left", call, options_.name,
                          options_.global_ranks[static_cast<std::size_t>(rank())]),
              "the group was shut down before this call",
              "make all calls before shutdown() or destroy_process_group()");
}

TransportCounters GroupCore::counters() const {
  TransportCounters sum;
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda}) {
    const Backend* backend = backend_of(type);
    if (backend == nullptr) continue;
    const TransportCounters more = backend->counters();
    sum.shared_memory_bytes_sent += more.shared_memory_bytes_sent;
    sum.shared_memory_bytes_received += more.shared_memory_bytes_received;
    sum.tcp_bytes_sent += more.tcp_bytes_sent;
    sum.tcp_bytes_received += more.tcp_bytes_received;
  }
  return sum;
}

std::optional<std::int64_t> GroupCore::bytes_to_send(const PlannedCall& call) const {
  const Backend* backend = backend_of(DeviceType::cpu);
  if (backend == nullptr) return std::nullopt;
  return backend->bytes_to_send(call);
}

std::vector<int> GroupCore::machines() const {
  const Backend* backend = backend_of(DeviceType::cpu);
  return backend == nullptr ? std::vector<int>() : backend->machines();
}

std::shared_ptr<tensors::HostAllocator> GroupCore::shared_memory() const {
  Backend* const backend = backend_of(DeviceType::cpu);
  if (backend != nullptr)
    if (std::shared_ptr<tensors::HostAllocator> memory = backend->shared_memory()) return memory;
  throw Error(ErrorCode::kUnavailable,
              fmt::format("group '{}' has no shared memory for tensors", options_.name),
              backend == nullptr
                  ? "it serves no tensors of the cpu"
                  : fmt::format("its backend {} reads tensors in its own way", backend->name()),
              "make the group over the backend cpu, or let tensors lie in ordinary memory");
}

std::vector<int> GroupCore::ended_ranks() const {
  std::set<int> ended;
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda})
    if (Backend* backend = backend_of(type))
      for (const int rank : backend->ended_ranks()) ended.insert(rank);
  return {ended.begin(), ended.end()};
}

void GroupCore::leave() {
  left_ = true;
  // The GPU's work may need the cpu's backend until it is over.
  for (const DeviceType type : {DeviceType::cuda, DeviceType::cpu})
    if (Backend* backend = backend_of(type)) backend->shutdown();
}

void require_timeout(base::Deadline::Duration timeout, std::string_view whose) {
  if (timeout > base::Deadline::Duration::zero()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the timeout of {} is {}", whose,
                          timeout == base::Deadline::Duration::zero() ? "0 s" : "negative"),
              "nothing could be done in that time", "give a time, or leave the timeout out");
}

}  // namespace dtrun::collectives
