#include "nccl/nccl_types.h"

#include <fmt/core.h>

namespace dtrun::collectives::nccl {

using base::Error;
using base::ErrorCode;
using tensors::DType;

DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return DataType::f64;
    case DType::f32:
      return DataType::f32;
    case DType::f16:
      return DataType::f16;
    case DType::bf16:
      return DataType::bf16;
    case DType::i64:
      return DataType::i64;
    case DType::i32:
      return DataType::i32;
    case DType::i16:
      return DataType::f16;  // nccl has none of two bytes; it only moves these
    case DType::i8:
      return DataType::i8;
    case DType::u8:
    case DType::boolean:
      return DataType::u8;
  }
  return DataType::u8;
}

namespace {

[[noreturn]] void refuse_reduction(ReduceOp op, DType dtype) {
  throw Error(
      ErrorCode::kUnavailable,
      fmt::format("nccl has no {} of {} tensors", reduce_op_name(op), tensors::dtype_name(dtype)),
      "", "use a group of backend 'staged', or move the tensors to the cpu");
}

}  // namespace

Reduction reduction(ReduceOp op, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  if (dtype == DType::i16) refuse_reduction(op, dtype);
  switch (op) {
    case ReduceOp::sum:
      return boolean ? Reduction::max : Reduction::sum;
    case ReduceOp::premul_sum:
      return Reduction::sum;
    case ReduceOp::avg:
      return Reduction::average;
    case ReduceOp::product:
      return boolean ? Reduction::min : Reduction::product;
    case ReduceOp::min:
      return Reduction::min;
    case ReduceOp::max:
      return Reduction::max;
    case ReduceOp::bor:
      if (boolean) return Reduction::max;
      break;
    case ReduceOp::band:
      if (boolean) return Reduction::min;
      break;
    case ReduceOp::bxor:
      break;
  }
  refuse_reduction(op, dtype);
}

namespace {

std::string_view meaning_of(Result result) {
  switch (result) {
    case Result::remote_error:
      return "a peer failed, or the network to it broke: look at the other ranks' output first";
    case Result::invalid_usage:
      return "NCCL refuses several ranks on one GPU: give each rank a GPU of its own, or use "
             "backend 'staged'; NCCL_DEBUG=WARN says more";
    case Result::unhandled_cuda_error:
      return "an error of an earlier kernel may show only here: CUDA_LAUNCH_BLOCKING=1 shows it "
             "where it happens; NCCL_DEBUG=WARN says more";
    default:
      return "NCCL_DEBUG=WARN says more";
  }
}

ErrorCode code_of(Result result) {
  switch (result) {
    case Result::remote_error:
      return ErrorCode::kPeerFailed;
    case Result::invalid_usage:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kSystem;
  }
}

}  // namespace

Error failure_of(NcclApi& api, Result result, std::string_view action, Communicator communicator) {
  return Error(code_of(result), fmt::format("nccl cannot {}: {}", action, api.error_text(result)),
               api.last_error(communicator), std::string(meaning_of(result)));
}

Result check(NcclApi& api, Result result, std::string_view action, Communicator communicator) {
  if (result != Result::success && result != Result::in_progress)
    throw failure_of(api, result, action, communicator);
  return result;
}

}  // namespace dtrun::collectives::nccl
