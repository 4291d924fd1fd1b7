#include "dtrun/dtensor/autograd/pending_tensor.h"

#include <utility>

#include "move/cause.h"
#include "move/pending_move.h"

namespace dtrun::dtensor {

PendingTensor::PendingTensor(PendingMove move, std::function<Tensor(LocalTensor)> made,
                             const Tensor::Site& site)
    : move_(std::make_unique<PendingMove>(std::move(move))), made_(std::move(made)), site_(site) {}
PendingTensor::PendingTensor(PendingTensor&&) noexcept = default;
PendingTensor& PendingTensor::operator=(PendingTensor&&) noexcept = default;
PendingTensor::~PendingTensor() = default;

bool PendingTensor::is_completed() const {
  return !move_ || move_->is_completed();
}

Tensor PendingTensor::wait() {
  if (move_) {
    const Cause cause("redistribute_async", Cause::Wish::asked, site_);
    arrived_ = made_(move_->wait());
    move_.reset();
    made_ = nullptr;
  }
  return arrived_;
}

}  // namespace dtrun::dtensor
