#include "dtensor/operator_samples.h"

#include "dtensor/samples/samples.h"

namespace dtrun::dtensor {

Tensors OperatorSample::inputs_in(DType dtype) const {
  Tensors others;
  for (const Tensor& input : inputs) {
    others.push_back(input.dtype() == stand_in ? input.to(dtype) : input);
  }
  return others;
}

std::vector<OperatorSample> operator_samples(std::int64_t rows, std::int64_t columns) {
  Samples samples(rows, columns);
  for (const auto& add_family : {add_arithmetic, add_bits, add_functions, add_casts_and_fills,
                                 add_comparisons, add_reductions, add_rows, add_products, add_views,
                                 add_places, add_orders, add_networks, add_in_place}) {
    add_family(samples);
  }
  return samples.take();
}

}  // namespace dtrun::dtensor
