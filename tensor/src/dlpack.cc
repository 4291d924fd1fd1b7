#include "dtrun/tensor/dlpack.h"

#include <dlpack/dlpack.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::uint8_t kDLBoolCode = 6;  ///< younger than the header

struct ElementType {
  DType dtype;
  std::uint8_t code;
  std::uint8_t bits;
};
constexpr ElementType kElementTypes[] = {
    {DType::f64, kDLFloat, 64},      {DType::f32, kDLFloat, 32}, {DType::f16, kDLFloat, 16},
    {DType::bf16, kDLBfloat, 16},    {DType::i64, kDLInt, 64},   {DType::i32, kDLInt, 32},
    {DType::i16, kDLInt, 16},        {DType::i8, kDLInt, 8},     {DType::u8, kDLUInt, 8},
    {DType::boolean, kDLBoolCode, 8}};

/// What a tensor that was given away keeps.
struct Shared {
  LocalTensor tensor;
  DLManagedTensor managed{};
};

[[noreturn]] void refuse(const std::string& what,
                         const std::string& hint = "a copy that its library makes of it",
                         const std::string& why = "dtrun has no tensors of that kind") {
  throw Error(ErrorCode::kInvalidArgument,
              "from_dlpack: a DLPack tensor " + what + " cannot be taken", why, hint);
}

void require_device(const std::string& of, int index) {
  const int count = cuda::device_count();
  if (index >= 0 && index < count) return;
  refuse(fmt::format("{} on CUDA device {}", of, index),
         count == 0 ? "a copy on the CPU" : "a copy on a device that is here",
         count == 0 ? std::string("this process has no CUDA device")
                    : fmt::format("this process has CUDA devices 0 to {}", count - 1));
}

DType dtype_from(const DLDataType& type) {
  for (const ElementType& known : kElementTypes) {
    if (type.lanes == 1 && type.code == known.code && type.bits == known.bits) return known.dtype;
  }
  refuse(fmt::format("of type code {}, {} bits, {} lanes", type.code, type.bits, type.lanes),
         "one of float16 to 64, bfloat16, int32, int64, uint8 and bool");
}

Device device_from(const DLDevice& device, const Shape& shape) {
  const std::string of = "of shape " + shape_to_string(shape);
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return kCpu;
    case kDLCUDA:
    case kDLCUDAManaged:
      require_device(of, device.device_id);
      return {DeviceType::cuda, device.device_id};
    default:
      refuse(fmt::format("{} on a device of type {}", of, static_cast<int>(device.device_type)),
             "one on the CPU or a CUDA device");
  }
}

Strides strides_from(const DLTensor& tensor, const Shape& shape) {
  if (tensor.strides == nullptr) return contiguous_strides(shape);
  for (int d = 0; d < tensor.ndim; ++d) {
    if (tensor.strides[d] < 0)
      refuse(fmt::format("with the stride {}", tensor.strides[d]), "a copy");
  }
  return Strides(tensor.strides, tensor.strides + tensor.ndim);
}

/// From the first element to the end of the last one.
std::size_t span_of(const Shape& shape, const Strides& strides, std::size_t item) {
  if (numel(shape) == 0) return 0;
  std::int64_t bytes = 1;
  bool overflow = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t along = 0;
    overflow = __builtin_mul_overflow(shape[d] - 1, strides[d], &along) || overflow;
    overflow = __builtin_add_overflow(bytes, along, &bytes) || overflow;
  }
  overflow = __builtin_mul_overflow(bytes, item, &bytes) || overflow;
  if (overflow) {
    refuse(
        fmt::format("of shape {} and strides {}", shape_to_string(shape), shape_to_string(strides)),
        "one that memory can hold");
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace

DLManagedTensor* to_dlpack(const LocalTensor& tensor) {
  auto shared = std::make_unique<Shared>(Shared{tensor, {}});
  const auto type = std::ranges::find(kElementTypes, tensor.dtype(), &ElementType::dtype);
  DLTensor& view = shared->managed.dl_tensor;
  view.data = tensor.numel() == 0 ? nullptr : tensor.data();
  view.device.device_type = tensor.device().is_cpu() ? kDLCPU : kDLCUDA;
  view.device.device_id = tensor.device().is_cpu() ? 0 : tensor.device().index;
  view.ndim = tensor.dim();
  view.dtype = {type->code, type->bits, 1};
  // The view lives as long as the handle that is kept, and never changes.
  view.shape = const_cast<std::int64_t*>(shared->tensor.shape().data());
  view.strides = const_cast<std::int64_t*>(shared->tensor.strides().data());
  shared->managed.manager_ctx = shared.get();
  shared->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Shared*>(self->manager_ctx);
  };
  return &shared.release()->managed;
}

LocalTensor from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) refuse("that is none");
  const DLTensor& view = managed->dl_tensor;
  const DType dtype = dtype_from(view.dtype);
  if (view.ndim < 0) refuse(fmt::format("of {} dims", view.ndim));
  if (view.ndim > 0 && view.shape == nullptr)
    refuse(fmt::format("of {} dims, no sizes", view.ndim));
  const Shape shape(view.shape, view.shape + view.ndim);
  for (const std::int64_t size : shape) {
    if (size < 0) refuse("of shape " + shape_to_string(shape));
  }
  const Device device = device_from(view.device, shape);
  const Strides strides = strides_from(view, shape);
  char* const data = static_cast<char*>(view.data) + (view.data == nullptr ? 0 : view.byte_offset);
  const std::size_t bytes = span_of(shape, strides, item_size(dtype));
  if (data == nullptr && bytes != 0) refuse("without elements of shape " + shape_to_string(shape));
  if (reinterpret_cast<std::uintptr_t>(data) % item_size(dtype) != 0) {
    refuse(
        fmt::format("whose elements begin {} bytes from where a {} may lie",
                    reinterpret_cast<std::uintptr_t>(data) % item_size(dtype), dtype_name(dtype)),
        "a copy");
  }
  // From here on nothing is refused: what was, stays the caller's.
  auto release = [managed] {
    if (managed->deleter != nullptr) managed->deleter(managed);
  };
  return LocalTensor(Storage::wrap(data, bytes, device, release), dtype, shape, strides);
}

}  // namespace dtrun::tensors
