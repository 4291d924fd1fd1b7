// PendingTensor: a tensor that is on its way: what redistribute_async() gives.
#pragma once

#include <functional>
#include <memory>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

class PendingMove;

class PendingTensor {
 public:
  /// For whoever has started it. @param made the tensor of what has arrived @param site of the call
  PendingTensor(PendingMove move, std::function<Tensor(LocalTensor)> made,
                const Tensor::Site& site);
  PendingTensor(PendingTensor&&) noexcept;
  PendingTensor& operator=(PendingTensor&&) noexcept;
  /// A collective that nobody waited for goes on; what was to come after it does not happen.
  ~PendingTensor();

  /// Whether wait() will return at once.
  bool is_completed() const;
  /// The tensor, which takes part in gradients. What takes more than one collective does the
  /// further ones here: all ranks call it at the same place of the program. The second call gives
  /// the same tensor. @throws what redistribute() throws
  Tensor wait();

 private:
  std::unique_ptr<PendingMove> move_;  ///< null: it has arrived
  std::function<Tensor(LocalTensor)> made_;
  Tensor arrived_;
  Tensor::Site site_;
};

}  // namespace dtrun::dtensor
