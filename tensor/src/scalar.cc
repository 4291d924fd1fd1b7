#include "dtrun/tensor/scalar.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"

namespace dtrun::tensors::values {

std::int64_t Scalar::to_i64() const {
  if (kind_ == Kind::floating) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      fmt::format("{} is asked for as an integer", floating_),
                      "it was written as a floating point number", "to_double()");
  }
  return integer_;
}

DType Scalar::dtype_of(Kind kind) {
  switch (kind) {
    case Kind::boolean:
      return DType::boolean;
    case Kind::integer:
      return DType::i64;
    case Kind::floating:
      break;
  }
  return DType::f32;
}

void Scalar::refuse(std::uint64_t value) {
  throw base::Error(base::ErrorCode::kInvalidArgument, fmt::format("{} is beyond int64", value),
                    "numbers that are not floating point are kept as int64",
                    "write it as a double");
}

}  // namespace dtrun::tensors::values
