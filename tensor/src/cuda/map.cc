#include "cuda/map.h"

#include "dtrun/base/check.h"

namespace dtrun::tensors::cuda {

void map(const MapCall& call) {
  const MapFunction function = call.arguments.function;
  DT_CHECK(function != MapFunction::none);
  if (function <= MapFunction::shift_right) return map_arithmetic(call);
  if (function <= MapFunction::logical_not) return map_comparison(call);
  if (function <= MapFunction::where) return map_elementary(call);
  if (function <= MapFunction::softplus) return map_exponential(call);
  map_trigonometric(call);
}

}  // namespace dtrun::tensors::cuda
