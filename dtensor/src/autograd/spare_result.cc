#include "autograd/spare_result.h"

#include <atomic>
#include <utility>

#include "autograd/deferred.h"

namespace dtrun::dtensor {

constinit thread_local SpareResult::Kept SpareResult::kept_{};
thread_local SpareResult::EndOfThread SpareResult::end_of_thread_;

SpareResult::EndOfThread::~EndOfThread() {
  kept_.is_closed = true;
  let_go();
}

Tensor::Body* SpareResult::begin(const Spec& to) {
  let_go();
  kept_.spec = to.body();
  return nullptr;
}

bool SpareResult::keep(Tensor::Body& result) noexcept {
  if (kept_.spec != result.spec.body() || kept_.spare != nullptr || kept_.is_closed) return false;
  // As it was made, and nobody has its elements.
  const bool is_plain = !result.producer && !result.deferred && result.view == Tensor::View::none &&
                        !result.is_copy && result.moved_to.load(std::memory_order_relaxed) == 0 &&
                        result.repeated.load(std::memory_order_relaxed) == nullptr;
  if (!is_plain || !result.local.has_one_owner() || tensors::HostMemoryMeter::is_counting())
    return false;
  // The first use of it in a thread orders its end.
  if (!end_of_thread_.stands) return false;
  result.own_anew();
  kept_.spare = &result;
  return true;
}

void SpareResult::let_go() noexcept {
  kept_.spec = nullptr;
  delete std::exchange(kept_.spare, nullptr);
}

}  // namespace dtrun::dtensor
