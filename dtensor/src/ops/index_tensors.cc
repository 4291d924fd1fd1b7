// x[i, j]: several lists of positions are one, into the dims that they pick from as one dim.
#include "autograd/call.h"
#include "autograd/call_text.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/place_error.h"
#include "ops/index_rows.h"
#include "ops/masks.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

struct PickedDim {
  std::string_view op;
  int dim;
  const Tensor* of;  ///< during the call
};

LocalTensor from_start(const LocalTensor& positions, const PickedDim& picked) {
  const std::int64_t size = picked.of->shape()[static_cast<std::size_t>(picked.dim)];
  try {
    return tensors::positions_from_start(picked.op, positions, picked.dim, size);
  } catch (const tensors::PlaceError& error) {
    throw error.into(tensor_text(*picked.of));
  }
}

/// So that an error names the position as it was given, and before anything is picked or written.
constexpr Op<None, PickedDim> kFromStart{
    .name = "index",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const None&, const PickedDim& v,
                const Site&) { return from_start(in[0], v); },
    .list = 0};

struct ClassCount {
  std::int64_t count;
};
void append_key(CallKey& key, const ClassCount& a) {
  key.push_back(a.count);
}
constexpr Op<ClassCount> kOneHot{
    .name = "one_hot",
    .meta = [](Metas in, const ClassCount& a) -> Meta {
      Shape shape = in[0].shape;
      shape.push_back(a.count);
      return {shape, DType::i64};
    },
    .rules =
        [](Rules& r, Metas in, const ClassCount&) {
          const Rules::Indices each = Rules::each_dim(in[0].shape);
          Rules::Indices output = each;
          output.push_back(sharding::kBroadcast);
          r.indices({each}, output).cut_all();
        },
    .local = [](Locals in, const ClassCount& a, const None&,
                const Site&) { return tensors::one_hot(in[0], a.count); },
    .list = 0};

void require_numbers(std::string_view op, const Tensor& positions) {
  if (positions.dtype() == DType::i64) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " with " + std::string(tensors::dtype_name(positions.dtype())) +
                  " positions",
              "positions are int64", "to(DType::i64)");
}

void require_dims_for(std::string_view op, const Tensor& a, const Tensors& positions) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (!positions[i].defined()) refuse_undefined(op, i + 1);
    if (positions[i].dtype() != DType::i32) require_numbers(op, positions[i]);
  }
  if (!positions.empty() && positions.size() <= a.shape().size()) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of a tensor of shape " + tensors::shape_to_string(a.shape()) +
                  " with " + std::to_string(positions.size()) + " lists of positions",
              "it takes one for each dim that is picked from, from the first on",
              "at most " + std::to_string(a.dim()) + " lists");
}

/// What x[i, j] picks: slices of a tensor whose first dims are one.
struct Picked {
  Tensor positions;  ///< in that dim
  Shape flat_shape;  ///< of the tensor
  Shape shape;       ///< of the result
};

Picked picked(std::string_view op, const Tensor& a, const Tensors& given) {
  const Tensors positions = without_masks(op, a.shape(), given);
  require_dims_for(op, a, positions);
  Picked found;
  std::int64_t rows = 1;
  Tensor joint;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    const std::int64_t size = a.shape()[d];
    const Tensor own = call(kFromStart, positions[d].to(DType::i64), None{},
                            PickedDim{op, static_cast<int>(d), &a});
    joint = d == 0 ? own : joint * size + own;
    rows *= size;
  }
  found.shape = joint.shape();
  found.positions = joint;
  found.flat_shape = {rows};
  for (std::size_t d = positions.size(); d < a.shape().size(); ++d) {
    found.shape.push_back(a.shape()[d]);
    found.flat_shape.push_back(a.shape()[d]);
  }
  return found;
}

}  // namespace

Tensor index(const Tensor& a, const Tensor& positions) {
  return index(a, Tensors{positions});
}
Tensor index(const Tensor& a, const Tensors& positions) {
  return named_call("index", {{"input", a}, {"positions", positions}}, [&] {
    const Picked at = picked("index", a, positions);
    return rows_at(a.reshape(at.flat_shape), at.positions);
  });
}

Tensor index_put(const Tensor& a, const Tensor& positions, const Tensor& values, PutMode mode) {
  return index_put(a, Tensors{positions}, values, mode);
}
Tensor index_put(const Tensor& a, const Tensors& positions, const Tensor& values, PutMode mode) {
  return named_call("index_put", {{"input", a}, {"positions", positions}, {"values", values}}, [&] {
    const Picked at = picked("index_put", a, positions);
    Shape slices = at.flat_shape;
    slices[0] = at.positions.numel();
    const Tensor list = at.positions.reshape({slices[0]});
    const Tensor flat = a.reshape(at.flat_shape);
    const Tensor placed = values.expand(at.shape).reshape(slices);
    if (mode == PutMode::accumulate) return index_add(flat, 0, list, placed).reshape(a.shape());
    Shape column(slices.size(), 1);
    column[0] = slices[0];
    return scatter(flat, 0, list.reshape(column).expand(slices), placed).reshape(a.shape());
  });
}

Tensor one_hot(const Tensor& classes, std::optional<std::int64_t> num_classes) {
  return named_call("one_hot", {{"classes", classes}}, [&] {
    require_numbers("one_hot", classes);
    if (num_classes == -1) num_classes.reset();  // PyTorch's word for it
    if (!num_classes && classes.numel() == 0) {
      throw Error(ErrorCode::kInvalidArgument, "one_hot of no classes",
                  "how many there are does not follow from them", "num_classes");
    }
    if (num_classes && *num_classes < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  "one_hot of " + std::to_string(*num_classes) + " classes",
                  "a row has a number for each class", "num_classes from 1");
    }
    const std::int64_t count =
        num_classes ? *num_classes : static_cast<std::int64_t>(max(classes).item()) + 1;
    return call(kOneHot, classes, ClassCount{count});
  });
}

}  // namespace dtrun::dtensor
