#include <fmt/core.h>

#include "cuda/blas_api.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {

void BlasHandles::multiply(const Gemm& gemm, const Stream& stream) {
  blas_.require();
  const DeviceGuard guard(stream.device_index());
  Slot* slot = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<Slot>& place = slots_[{stream.device_index(), stream.handle()}];
    if (place == nullptr) place = std::make_unique<Slot>();
    slot = place.get();
  }
  const std::scoped_lock lock(slot->mutex);
  if (slot->handle == nullptr) {
    check_blas(blas_.create(&slot->handle, stream.handle()), "make a handle");
  }
  check_blas(blas_.multiply(slot->handle, gemm), "multiply matrices");
}

void BlasHandles::check_blas(int status, const char* action) const {
  if (status == 0) return;
  // cuBLAS hides the cause where it is the runtime's.
  const Status cause = api_.get_last_error();
  std::string reason = blas_.status_text(status);
  if (cause != Status::success) reason += fmt::format("; {}", api_.error_text(cause));
  throw base::Error(base::ErrorCode::kSystem, fmt::format("cuBLAS cannot {}", action), reason,
                    "its workspace needs memory: empty_cache(), or smaller tensors");
}

}  // namespace dtrun::tensors::cuda
