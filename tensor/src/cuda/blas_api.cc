// The one file that calls cuBLAS.
#include "cuda/blas_api.h"

#include <cublas_v2.h>
#include <fmt/core.h>

#include "dtrun/base/check.h"
#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {
namespace {

using base::DynamicLibrary;
using base::Error;
using base::ErrorCode;

/// The newest library of the version that the headers belong to, by the loader's search; else where
/// the toolkit was when this was built.
DynamicLibrary open_library() {
  const std::string name = fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR);
  DynamicLibrary library({name, DTRUN_CUDA_LIBRARY_FOLDER "/" + name});
  if (library.opened()) return library;
  throw Error(ErrorCode::kUnavailable, "cannot multiply matrices on a CUDA device",
              library.reason(), "install cuBLAS, or name its folder in LD_LIBRARY_PATH");
}

/// The header has an older overload of that name.
using GemmFunction = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                        int, int, const void*, const void*, cudaDataType, int,
                                        long long, const void*, cudaDataType, int, long long,
                                        const void*, void*, cudaDataType, int, long long, int,
                                        cublasComputeType_t, cublasGemmAlgo_t);
using CheckedGemm = decltype(static_cast<GemmFunction>(&::cublasGemmStridedBatchedEx));

struct Cublas {
  decltype(&::cublasCreate_v2) create;
  decltype(&::cublasDestroy_v2) destroy;
  decltype(&::cublasSetStream_v2) set_stream;
  decltype(&::cublasSetMathMode) set_math_mode;
  CheckedGemm gemm;
  decltype(&::cublasGetStatusString) status_text;
};

template <typename Function>
void load(const DynamicLibrary& library, const char* name, Function& function) {
  if (!library.find(name, function)) {
    throw Error(ErrorCode::kUnavailable, "cannot multiply matrices on a CUDA device",
                fmt::format("cuBLAS has no {}", name), "a cuBLAS of this build's version");
  }
}

Cublas load_all() {
  const DynamicLibrary library = open_library();
  Cublas cublas{};
  load(library, "cublasCreate_v2", cublas.create);
  load(library, "cublasDestroy_v2", cublas.destroy);
  load(library, "cublasSetStream_v2", cublas.set_stream);
  load(library, "cublasSetMathMode", cublas.set_math_mode);
  load(library, "cublasGemmStridedBatchedEx", cublas.gemm);
  load(library, "cublasGetStatusString", cublas.status_text);
  return cublas;
}

const Cublas& cublas() {
  static const Cublas loaded = load_all();
  return loaded;
}

int create(BlasHandle* handle, StreamHandle stream) {
  cublasHandle_t made = nullptr;
  cublasStatus_t status = cublas().create(&made);
  if (status == CUBLAS_STATUS_SUCCESS) status = cublas().set_stream(made, stream);
  // f32 stays f32 (no TF32), and partial sums of half types are not rounded to them.
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublas().set_math_mode(
        made, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                        CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  }
  if (status != CUBLAS_STATUS_SUCCESS && made != nullptr) cublas().destroy(made);
  if (status == CUBLAS_STATUS_SUCCESS) *handle = reinterpret_cast<BlasHandle>(made);
  return status;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      break;
  }
  DT_CHECK(!"cuBLAS multiplies floating point only");
  return CUDA_R_64F;
}

int multiply(BlasHandle handle, const Gemm& gemm) {
  const cudaDataType_t type = data_type(gemm.dtype), result_type = data_type(gemm.result_dtype);
  const bool is_double = gemm.dtype == DType::f64;
  // The scalars are of the compute type.
  const auto alpha_float = static_cast<float>(gemm.alpha);
  const auto beta_float = static_cast<float>(gemm.beta);
  const auto operation = [](BlasTranspose transpose) {
    return transpose == BlasTranspose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  return cublas().gemm(reinterpret_cast<cublasHandle_t>(handle), operation(gemm.left_transpose),
                       operation(gemm.right_transpose), gemm.rows, gemm.columns, gemm.inner,
                       is_double ? static_cast<const void*>(&gemm.alpha) : &alpha_float, gemm.left,
                       type, gemm.left_leading, gemm.left_step, gemm.right, type,
                       gemm.right_leading, gemm.right_step,
                       is_double ? static_cast<const void*>(&gemm.beta) : &beta_float, gemm.result,
                       result_type, gemm.result_leading, gemm.result_step, gemm.batch,
                       is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

constexpr BlasApi kCublas{
    .require = [] { cublas(); },
    .create = &create,
    .multiply = &multiply,
    .status_text =
        [](int status) { return cublas().status_text(static_cast<cublasStatus_t>(status)); },
};

}  // namespace

const BlasApi& library_blas() {
  return kCublas;
}

}  // namespace dtrun::tensors::cuda
