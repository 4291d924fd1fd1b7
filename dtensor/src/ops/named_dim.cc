#include "ops/named_dim.h"

#include <algorithm>
#include <string>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

int dim_below(std::string_view op, const Tensor& a, int dim, int dims) {
  if (dim >= -dims && dim < dims) [[likely]]
    return dim < 0 ? dim + dims : dim;
  const std::string tensor =
      a.is_distributed()
          ? a.spec().to_string()
          : std::string(tensors::dtype_short_name(a.dtype())) + tensors::shape_to_string(a.shape());
  const std::string range = std::to_string(-dims) + " to " + std::to_string(dims - 1);
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    std::string(op) + ": dim " + std::to_string(dim) + " is out of range",
                    "the tensor is " + tensor,
                    dims == 0 ? "no dim, for it has none" : "a dim from " + range);
}

}  // namespace

int named_dim(std::string_view op, const Tensor& a, int dim) {
  return dim_below(op, a, dim, a.dim());
}
int named_dim_or_only(std::string_view op, const Tensor& a, int dim) {
  return dim_below(op, a, dim, std::max(1, a.dim()));
}

}  // namespace dtrun::dtensor
