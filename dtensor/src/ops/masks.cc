// Masks as positions: where they are true. How many elements that are is data, so that every rank
// must know the whole mask; on a mesh it is gathered.
#include "ops/masks.h"

#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "move/cause.h"
#include "ops/whole.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// Row-major numbers of the true elements.
LocalTensor true_numbers(const LocalTensor& mask) {
  return tensors::true_positions(mask.contiguous().view({mask.numel()}));
}

/// What all ranks of the mesh have alike, where `like` is distributed.
Tensor known_to_all(const Tensor& like, const LocalTensor& local) {
  if (!like.is_distributed()) return Tensor(local);
  return Tensor::from_local(Tensor(local), like.device_mesh(),
                            Placements(like.placements().size(), Replicate()));
}

/// @param argument its place among the operands of the call
LocalTensor whole_mask(const Tensor& mask, std::string_view call, std::size_t argument) {
  const Cause cause = Cause::of_operand(argument);
  return whole_of(mask, call);
}

/// A list for each dim of the mask, as long as it has true elements; whole on every rank.
Tensors positions_of(const Tensor& mask, std::string_view call, std::size_t argument) {
  Tensors lists;
  LocalTensor numbers = true_numbers(whole_mask(mask, call, argument));
  for (int dim = mask.dim(); dim-- > 0;) {
    const std::int64_t size = std::max<std::int64_t>(1, mask.size(dim));
    lists.insert(lists.begin(), known_to_all(mask, tensors::remainder(numbers, size)));
    numbers = tensors::floor_divide(numbers, size);
  }
  return lists;
}

}  // namespace

Tensors without_masks(std::string_view op, const Shape& shape, const Tensors& positions) {
  Tensors lists;
  std::size_t argument = 0;
  for (const Tensor& given : positions) {
    ++argument;
    // As in PyTorch u8 is a mask here, from before there was bool, and never positions.
    const bool is_mask =
        given.defined() && (given.dtype() == DType::boolean || given.dtype() == DType::u8);
    if (!is_mask) {
      lists.push_back(given);
      continue;
    }
    const auto at = static_cast<std::ptrdiff_t>(lists.size());
    const bool fits = given.dim() > 0 && lists.size() + given.shape().size() <= shape.size() &&
                      given.shape() == Shape(shape.begin() + at, shape.begin() + at + given.dim());
    if (!fits) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(op) + " of a tensor of shape " + tensors::shape_to_string(shape) +
                      " with a mask of shape " + tensors::shape_to_string(given.shape()),
                  "a mask has the sizes of the dims that it stands for, here from dim " +
                      std::to_string(at) + " on",
                  "expand() it");
    }
    for (Tensor& list : positions_of(given.to(DType::boolean), op, argument))
      lists.push_back(std::move(list));
  }
  return lists;
}

Tensor nonzero(const Tensor& a) {
  return named_call("nonzero", {{"input", a}}, [&] {
    if (a.dim() == 0) {
      const bool is_zero = whole_mask(a, "nonzero", 0).to(DType::boolean).item() == 0;
      return known_to_all(a, tensors::zeros({is_zero ? 0 : 1, 0}, {DType::i64, a.device()}));
    }
    const NoGrad no_grad;
    return stack(positions_of(a.dtype() == DType::boolean ? a : ne(a, 0), "nonzero", 0), 1);
  });
}

Tensor masked_select(const Tensor& a, const Tensor& mask) {
  return named_call("masked_select", {{"input", a}, {"mask", mask}}, [&] {
    if (mask.dtype() != DType::boolean) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "masked_select with a tensor of " + std::string(tensors::dtype_name(mask.dtype())),
          "a mask is bool", "ne(mask, 0)");
    }
    const Shape shape = tensors::broadcast_shapes(a.shape(), mask.shape());
    const Tensor list =
        known_to_all(mask, true_numbers(whole_mask(mask, "masked_select", 1).expand(shape)));
    return index_select(a.expand(shape).reshape({tensors::numel(shape)}), 0, list);
  });
}

}  // namespace dtrun::dtensor
