// Contender: one library's collectives, as one rank sees them. dtrun-bench has one over a
// ProcessGroup (group_contender.h); the peers in bench/ have their own, measured by the same loop
// (measurement.h).
#pragma once

#include <vector>

#include "bench/operation.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::bench {

/// A call's tensors on this rank, flat: the same one twice where the operation works in place.
struct Buffers {
  tensors::LocalTensor input;
  tensors::LocalTensor output;
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Where its tensors lie.
  virtual tensors::Device device() const { return tensors::kCpu; }
  virtual bool has(Operation) const { return true; }
  /// In how many buffers at once it can work.
  virtual int most_buffers() const { return 1 << 10; }
  /// Until the next prepare() run(i) makes that call on buffers[i].
  virtual void prepare(const Call& call, const std::vector<Buffers>& buffers) = 0;
  virtual void run(std::size_t buffer) = 0;
  virtual void barrier() = 0;
  /// On rank 0 the values of all ranks one after the other, else empty. All give equally many.
  virtual std::vector<double> collect(const std::vector<double>& values) = 0;
  /// Likewise on each rank: for a few values.
  virtual std::vector<double> share(const std::vector<double>& values) = 0;
};

}  // namespace dtrun::bench
