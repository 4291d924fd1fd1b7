#include "collectives/simulation_state.h"

namespace dtrun::test {

using simulated::End;
using simulated::Stream;

Stream* NcclSimulation::State::make_stream() {
  streams.push_back(std::make_unique<Stream>());
  return streams.back().get();
}

Stream& NcclSimulation::State::stream(int rank, collectives::DeviceStream handle) {
  if (handle != nullptr) return *reinterpret_cast<Stream*>(handle);
  Stream*& mine = default_streams[rank];
  if (mine == nullptr) mine = make_stream();
  return *mine;
}

void NcclSimulation::State::run() {
  if (frozen) return;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < streams.size(); ++i)
      while (!streams[i]->tasks.empty() && streams[i]->tasks.front()()) {
        streams[i]->tasks.pop_front();
        moved = true;
      }
  }
  changed.notify_all();
}

bool NcclSimulation::State::runs_kernels(int rank, int device) const {
  for (const std::unique_ptr<End>& end : ends)
    if ((options.one_gpu || end->world_rank == rank) && end->device == device && end->kernels > 0 &&
        !end->is_aborted)
      return true;
  return false;
}

void NcclSimulation::State::await_idle(Lock& lock, const End& end, const std::string& who) {
  const auto is_idle = [&] { return !runs_kernels(end.world_rank, end.device); };
  if (!changed.wait_for(lock, options.patience, is_idle))
    violate(end.world_rank, who + " stood behind a kernel of another communicator");
}

}  // namespace dtrun::test
