#include "collectives/nccl_simulation.h"

#include <algorithm>

#include "collectives/simulation_state.h"

namespace dtrun::test {

NcclSimulation::NcclSimulation(Options options) : state_(std::make_shared<State>(options)) {}
NcclSimulation::~NcclSimulation() = default;

void NcclSimulation::freeze(bool frozen) {
  const std::scoped_lock lock(state_->mutex);
  state_->frozen = frozen;
  state_->run();
}

void NcclSimulation::break_rank(int rank, collectives::nccl::Result result) {
  const std::scoped_lock lock(state_->mutex);
  state_->broken[rank] = result;
}

void NcclSimulation::hang_aborts(bool hang) {
  const std::scoped_lock lock(state_->mutex);
  state_->aborts_hang = hang;
  state_->changed.notify_all();
}

int NcclSimulation::made_beside_kernels(int rank) {
  const std::scoped_lock lock(state_->mutex);
  return state_->made_beside_kernels[rank];
}

std::vector<std::string> NcclSimulation::violations() {
  const std::scoped_lock lock(state_->mutex);
  return state_->violations;
}

std::vector<std::string> NcclSimulation::calls(int rank) {
  const std::scoped_lock lock(state_->mutex);
  return state_->calls[rank];
}

int NcclSimulation::count(int rank, const std::string& call) {
  const std::vector<std::string> all = calls(rank);
  return static_cast<int>(std::count(all.begin(), all.end(), call));
}

}  // namespace dtrun::test