// Everything that moves elements: copies, conversions, fills, and reading them out.
#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "copy_kernel.h"
#include "cuda_memory.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "element.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

/// Writing through a view that repeats elements would leave the last writer's value.
void require_distinct_elements(std::string_view operation, const Tensor& target) {
  for (std::size_t d = 0; d < target.shape().size(); ++d) {
    if (target.shape()[d] > 1 && target.strides()[d] == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} would write to an expanded tensor of shape {}", operation,
                              shape_to_string(target.shape())),
                  "several of its elements are one place in memory", "clone() it first");
    }
  }
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.dtype() == b.dtype() &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

void copy_on_host(const Tensor& target, const Tensor& source) {
  const LoopOperand operands[] = {LoopOperand::of(target), LoopOperand::of(source)};
  for_each_row(target.shape(), operands, copy_kernel(target.dtype(), source.dtype()));
}

void copy_on_device(const Tensor& target, const Tensor& source) {
  cuda::copy_strided(target.shape(), {target.data(), target.strides()},
                     {source.data(), source.strides()}, item_size(target.dtype()),
                     target.device().index);
}

[[noreturn]] void refuse_conversion_on_device(const Tensor& source, DType dtype) {
  throw Error(ErrorCode::kUnavailable,
              fmt::format("cannot convert {} to {} on {}", dtype_name(source.dtype()),
                          dtype_name(dtype), source.device().to_string()),
              "conversions run on the cpu only", "to(kCpu) first");
}

/// At least one of the two is on a CUDA device; shapes are equal.
void copy_with_device(const Tensor& target, const Tensor& source) {
  if (target.dtype() != source.dtype()) {
    // Converts on whichever side is the host.
    if (source.device().is_cpu()) return copy_with_device(target, source.to(target.dtype()));
    if (target.device().is_cpu()) return copy_on_host(target, source.to(kCpu));
    refuse_conversion_on_device(source, target.dtype());
  }
  if (target.device() == source.device()) return copy_on_device(target, source);
  if (!source.is_contiguous()) return copy_with_device(target, source.clone());
  if (!target.is_contiguous()) {
    const Tensor staged = empty(target.shape(), {target.dtype(), target.device()});
    copy_with_device(staged, source);
    target.copy_(staged);
    return;
  }
  cuda::copy(target.data(), target.device(), source.data(), source.device(), target.bytes());
}

}  // namespace

void require_cpu(std::string_view operation, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.device().is_cpu()) continue;
    throw Error(
        ErrorCode::kUnavailable,
        fmt::format("{} does not run on {} tensors yet", operation, tensor.device().to_string()),
        "CUDA tensors are created, filled, copied and printed only", "to(kCpu) first");
  }
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  require_distinct_elements("copy_", *this);
  Tensor from = source.shape() == shape_ ? source : source.expand(shape_);
  if (numel() == 0 || same_view(*this, from)) return *this;
  if (from.storage() == storage_) from = from.clone();
  if (device().is_cpu() && from.device().is_cpu()) {
    copy_on_host(*this, from);
  } else {
    copy_with_device(*this, from);
  }
  return *this;
}

const Tensor& Tensor::fill_(double value) const {
  require_distinct_elements("fill_", *this);
  if (numel() == 0) return *this;
  const Strides everywhere(shape_.size(), 0);
  std::uint64_t bits = 0;
  const std::int64_t one_step[] = {0, 0};
  char* const one[] = {reinterpret_cast<char*>(&bits), reinterpret_cast<char*>(&value)};
  copy_kernel(dtype_, DType::f64)(one, one_step, 1);
  if (!device().is_cpu()) {
    cuda::fill_strided(shape_, {data(), strides_}, bits, item_size(dtype_), device().index);
    return *this;
  }
  const LoopOperand operands[] = {LoopOperand::of(*this), {&bits, everywhere, item_size(dtype_)}};
  for_each_row(shape_, operands, copy_kernel(dtype_, dtype_));
  return *this;
}

Tensor Tensor::clone() const {
  Tensor copy = empty(shape_, {dtype_, device()});
  if (numel() == 0) return copy;
  if (device().is_cpu()) {
    copy_on_host(copy, *this);
  } else {
    copy_on_device(copy, *this);
  }
  return copy;
}

Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : clone();
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  if (!device().is_cpu()) refuse_conversion_on_device(*this, dtype);
  return empty(shape_, {.dtype = dtype}).copy_(*this);
}

Tensor Tensor::to(Device device) const {
  return device == this->device() ? *this : empty(shape_, {dtype_, device}).copy_(*this);
}

double Tensor::item() const {
  if (numel() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("item() of a tensor of shape {}", shape_to_string(shape_)),
                fmt::format("it has {} elements, not one", numel()), "to_vector()");
  }
  return to_vector().front();
}

std::vector<double> Tensor::to_vector() const {
  const Tensor values = to(kCpu).to(DType::f64).contiguous();
  const double* first = values.data_as<double>();
  return std::vector<double>(first, first + values.numel());
}

std::vector<std::int64_t> Tensor::to_vector_i64() const {
  const Tensor values = to(kCpu).to(DType::i64).contiguous();
  const std::int64_t* first = values.data_as<std::int64_t>();
  return std::vector<std::int64_t>(first, first + values.numel());
}

}  // namespace dtrun::tensors
