// What a failed call means for the reader.
#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda_api.h"

namespace dtrun::tensors::cuda {
namespace {

using base::Error;
using base::ErrorCode;

bool means_no_device(Status status) {
  constexpr int kDevicesUnavailable = 46;
  constexpr int kStubLibrary = 34;
  constexpr int kDriverMismatch = 803;
  const int number = static_cast<int>(status);
  return status == Status::no_device || status == Status::insufficient_driver ||
         status == Status::invalid_device || number == kDevicesUnavailable ||
         number == kStubLibrary || number == kDriverMismatch;
}

/// The context is broken: every later call of the process fails alike. The runtime's numbers: 214
/// and 220 are hardware faults, 700 an illegal address, 702 a kernel that ran too long, 710 an
/// assertion, 714 to 720 faults of a kernel.
bool is_sticky(Status status) {
  const int number = static_cast<int>(status);
  return number == 214 || number == 220 || number == 700 || number == 702 || number == 710 ||
         (number >= 714 && number <= 720);
}

}  // namespace

void check(const CudaApi& api, Status status, std::string_view action) {
  if (status == Status::success) return;
  const std::string what = fmt::format("cannot {}", action);
  if (status == Status::not_built) {
    throw Error(ErrorCode::kUnavailable, what, api.error_text(status),
                "configure with -DDTRUN_CUDA=ON where the CUDA toolkit is, or use the cpu");
  }
  api.get_last_error();  // or the next, unrelated call reports it again
  const std::string reason = fmt::format("{} ({})", api.error_text(status), api.error_name(status));
  if (means_no_device(status)) {
    throw Error(ErrorCode::kUnavailable, what, reason,
                "a machine with an NVIDIA driver and that device, or the cpu");
  }
  constexpr int kNoKernelImage = 209;
  if (static_cast<int>(status) == kNoKernelImage) {
    throw Error(ErrorCode::kUnavailable, what, reason,
                "configure with -DCMAKE_CUDA_ARCHITECTURES=<this GPU's>, 80 for an A100");
  }
  if (is_sticky(status)) {
    throw Error(ErrorCode::kSystem, what,
                reason +
                    "; an earlier kernel has failed, and no CUDA call of this process can "
                    "succeed any more",
                "end the process; CUDA_LAUNCH_BLOCKING=1 shows which call it was");
  }
  throw Error(ErrorCode::kSystem, what, reason,
              "dtrun-doctor, which calls the driver by itself; the word stands in CUDA's manual");
}

}  // namespace dtrun::tensors::cuda
