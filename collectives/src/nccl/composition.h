// What each collective is in NCCL's calls. Pure: these make launches, which the group runs. Lists
// have one buffer per rank; all ranks choose the same calls, because they choose by counts that all
// ranks know, never by where a rank's buffers lie.
#pragma once

#include <memory>
#include <vector>

#include "nccl/operation.h"

namespace dtrun::collectives::nccl {

/// Who composes: tables that the launches keep.
struct Composer {
  std::shared_ptr<NcclApi> nccl;
  std::shared_ptr<DeviceApi> device;
  int device_index = 0;
  int rank = 0;

  Launch broadcast(Buffer buffer, int source) const;
  Launch all_reduce(Buffer input, Buffer output, Reduction op) const;
  Launch reduce(Buffer input, Buffer output, int destination, Reduction op) const;
  /// Equal counts: one call, over a buffer of its own where the outputs do not lie one after the
  /// other. Others: a group of broadcasts.
  Launch all_gather(Buffer input, std::vector<Buffer> outputs) const;
  /// Likewise; others: a group of reductions.
  Launch reduce_scatter(Buffer output, std::vector<Buffer> inputs, Reduction op) const;
  // Groups of sends and receives; a rank's own part is copied, empty parts are left out.
  Launch gather(Buffer input, std::vector<Buffer> outputs, int destination) const;
  Launch scatter(Buffer output, std::vector<Buffer> inputs, int source) const;
  Launch all_to_all(std::vector<Buffer> outputs, std::vector<Buffer> inputs) const;
  /// An all_reduce of one byte, for which the host waits.
  Launch barrier() const;
  /// In a communicator of the two: the sender is 0, the receiver 1.
  Launch send(Buffer buffer, LaneKey lane) const;
  Launch receive(Buffer buffer, LaneKey lane) const;

 private:
  /// To every other rank its input, from every other its output. Either list may be empty.
  Launch exchange(std::vector<Buffer> outputs, std::vector<Buffer> inputs) const;
  Launch launch(std::function<Result(Communicator, DeviceStream)> issue) const;
};

}  // namespace dtrun::collectives::nccl
