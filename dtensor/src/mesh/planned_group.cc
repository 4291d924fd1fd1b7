#include "mesh/planned_group.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/backend.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using collectives::Backend;
using collectives::ProcessGroup;
using collectives::Work;

constexpr const char* kName = "planned";

/// Of ranks of which there is only this one.
class PlannedBackend : public Backend {
 public:
  PlannedBackend(int rank, int size, tensors::DeviceType device_type)
      : rank_(rank), size_(size), device_type_(device_type) {}
  std::string name() const override { return kName; }
  tensors::DeviceType device_type() const override { return device_type_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::optional<Error> lacks(const collectives::Fingerprint& fingerprint) const override {
    return Error(ErrorCode::kUsage, fingerprint.describe() + " between ranks that do not exist",
                 "the mesh is a planned_mesh()",
                 "call it within explain(), or on a mesh of a job's ranks");
  }
  Work start(collectives::Collective) override { return {}; }
  Work start(collectives::Message) override { return {}; }
  std::unique_ptr<Backend> split(const std::vector<int>&, int, const std::string&,
                                 collectives::Call) override {
    return nullptr;
  }
  void reject(const collectives::Fingerprint&, const Error&) override {}
  void abort(const Error&) override {}
  collectives::TransportCounters counters() const override { return {}; }
  std::optional<std::int64_t> bytes_to_send(const collectives::PlannedCall& call) const override {
    if (call.members.empty()) return collectives::bytes_on_one_machine(call, rank_, size_);
    const auto own = std::ranges::find(call.members, rank_);
    return collectives::bytes_on_one_machine(call, static_cast<int>(own - call.members.begin()),
                                             static_cast<int>(call.members.size()));
  }
  void shutdown() override {}

 private:
  const int rank_;
  const int size_;
  const tensors::DeviceType device_type_;
};

}  // namespace

ProcessGroup planned_group(std::vector<int> global_ranks, int rank, std::string name,
                           tensors::DeviceType device_type) {
  const int size = static_cast<int>(global_ranks.size());
  collectives::GroupOptions options;
  options.rank = rank;
  options.name = std::move(name);
  options.global_ranks = std::move(global_ranks);
  return ProcessGroup::over(std::move(options),
                            std::make_unique<PlannedBackend>(rank, size, device_type));
}

bool is_planned(const ProcessGroup& group) {
  return group.backend_name() == kName || group.backend_name() == std::string("cuda:") + kName;
}

ProcessGroup group_of_members(const ProcessGroup& parent, const std::vector<int>& ranks,
                              const std::string& name) {
  if (!is_planned(parent)) return parent.subgroup(ranks, name);
  std::vector<int> global_ranks;
  for (const int rank : ranks)
    global_ranks.push_back(parent.global_ranks()[static_cast<std::size_t>(rank)]);
  const auto own = std::ranges::find(ranks, parent.rank());
  const auto device_type = parent.serves(tensors::DeviceType::cuda) ? tensors::DeviceType::cuda
                                                                    : tensors::DeviceType::cpu;
  return planned_group(std::move(global_ranks), static_cast<int>(own - ranks.begin()), name,
                       device_type);
}

}  // namespace dtrun::dtensor
