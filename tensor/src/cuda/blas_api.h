// BlasApi: the calls of cuBLAS, as a table like CudaApi. The library is opened at the first
// product: linked, its 600 MB would be mapped into every program of a job.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/cuda_api.h"

namespace dtrun::tensors::cuda {

using BlasHandle = struct BlasHandleOfCublas*;

enum class BlasTranspose { no, yes };

/// As BLAS reads it, column by column: result[i] = alpha op(left[i]) op(right[i]) + beta result[i]
/// for i < batch. Sizes and distances in elements. f16 and bf16 are summed in f32.
struct Gemm {
  DType dtype;         ///< of left and right
  DType result_dtype;  ///< the same; of halves f32, too
  BlasTranspose left_transpose;
  BlasTranspose right_transpose;
  int rows;
  int columns;
  int inner;
  const void* left;
  int left_leading;
  std::int64_t left_step;
  const void* right;
  int right_leading;
  std::int64_t right_step;
  void* result;
  int result_leading;
  std::int64_t result_step;
  int batch;
  double alpha = 1;
  double beta = 0;
};

struct BlasApi {
  /// Opens the library where need be. @throws Error kUnavailable
  void (*require)();
  /// cublasStatus_t; 0 is success.
  int (*create)(BlasHandle* handle, StreamHandle stream);
  int (*multiply)(BlasHandle handle, const Gemm& gemm);
  const char* (*status_text)(int status);
};

/// cuBLAS; of a build without CUDA, a table whose require() throws.
const BlasApi& library_blas();

/// One handle per device and stream, because a handle's workspace is one stream's.
class BlasHandles {
 public:
  BlasHandles(const CudaApi& api, const BlasApi& blas) : api_(api), blas_(blas) {}
  /// Enqueues the product. @throws Error kSystem
  void multiply(const Gemm& gemm, const Stream& stream);

 private:
  struct Slot {
    std::mutex mutex;
    BlasHandle handle = nullptr;
  };
  void check_blas(int status, const char* action) const;

  const CudaApi& api_;
  const BlasApi& blas_;
  std::mutex mutex_;
  std::map<std::pair<int, StreamHandle>, std::unique_ptr<Slot>> slots_;
};

}  // namespace dtrun::tensors::cuda
