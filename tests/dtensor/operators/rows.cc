// Normalizations, losses of classes, and what else networks are made of.
#include "dtrun/dtensor/ops/rows.h"
#include "dtensor/operators/operators.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor::vectors {
namespace {

Reduction reduction_of(const Call& c) {
  const std::string name = c.text("reduction");
  return name == "none" ? Reduction::none : name == "sum" ? Reduction::sum : Reduction::mean;
}

}  // namespace

void add_rows(Operators& table) {
  table["mse_loss"] = [](const Call& c) -> Tensors {
    return {mse_loss(c.in(0), c.in(1), reduction_of(c))};
  };
  table["cross_entropy"] = [](const Call& c) -> Tensors {
    if (c.all().size() > 2 || c.has("label_smoothing")) {
      throw base::Error(base::ErrorCode::kUnavailable, "cross_entropy with weights or smoothing");
    }
    return {cross_entropy(
        c.in(0), c.in(1),
        {.reduction = reduction_of(c), .ignore_index = c.integer("ignore_index", -100)})};
  };
}

}  // namespace dtrun::dtensor::vectors
