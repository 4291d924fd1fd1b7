// What each collective is in NCCL's calls. Pure: these make launches, which the group runs. Lists
// have one buffer per rank; all ranks choose the same calls, because they choose by counts that all
// ranks know, never by where a rank's buffers lie.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nccl/operation.h"

namespace dtrun::collectives::nccl {

/// Who composes: tables that the launches keep.
struct Composer {
  std::shared_ptr<NcclApi> nccl;
  std::shared_ptr<DeviceApi> device;
  int device_index = 0;
  int rank = 0;

  /// @param factor of a premul_sum
  Launch collective(const CollectiveView& collective, double factor = 1) const;
  /// In a communicator of the two: the sender is 0, the receiver 1.
  Launch send(Buffer buffer, QueueKey queue) const;
  Launch receive(Buffer buffer, QueueKey queue) const;
  /// Of one device, in the communicator of the whole group: one group of sends and receives, which
  /// the first launch makes.
  std::vector<Launch> batch(const std::vector<Message>& messages) const;

 private:
  using Buffers = std::vector<Buffer>;
  /// How a reduction combines: NCCL's number for it, or the factor of a premul_sum, which NCCL
  /// makes a number for.
  struct Combine {
    Reduction op;
    std::optional<double> factor;
    tensors::DType dtype;
  };

  Launch broadcast(const CollectiveView& collective) const;
  Launch all_reduce(Buffer input, Buffer output, const Combine& combine) const;
  Launch reduce(const CollectiveView& collective, const Combine& combine) const;
  /// Equal counts: one call, over a buffer of its own where the outputs do not lie one after the
  /// other. Others: a group of broadcasts.
  Launch all_gather(Buffer input, Buffers outputs) const;
  /// Likewise; others: a group of reductions.
  Launch reduce_scatter(Buffer output, Buffers inputs, const Combine& combine) const;
  /// A group of sends and receives: to every other rank its input, from every other its output. A
  /// rank's own part is copied, empty parts are left out. Either list may be short.
  Launch exchange(Buffers outputs, Buffers inputs) const;
  /// An all_reduce of one byte, for which the host waits.
  Launch barrier() const;
  /// The list in which only that rank has a part.
  Buffers only(int other, const Buffer& buffer) const;
  Launch launch(std::function<Result(Communicator, DeviceStream)> issue) const;
  /// With NCCL's number for what combines, which lives as long as the call needs it.
  Launch reduction_launch(const Combine& combine,
                          std::function<Result(Reduction, Communicator, DeviceStream)> issue) const;
};

}  // namespace dtrun::collectives::nccl
