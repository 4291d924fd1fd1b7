// Catalogue: one tensor in every layout that it can have on a mesh, with what every rank holds
// then.
#pragma once

#include <vector>

#include "dtensor/layout_catalogue.h"
#include "dtensor/plan_simulator.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {

/// -3, -2, ... in that shape, of f64.
inline LocalTensor global_tensor(const tensors::Shape& shape) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensors::numel(shape); ++i) {
    values.push_back(static_cast<double>(i - 3));
  }
  return tensors::tensor_from(values, shape, tensors::DType::f64);
}

/// A tensor of one shape in every layout that it can have, with what every rank holds then.
struct Catalogue {
  tensors::Shape shape;
  std::vector<Layout> layouts;
  std::vector<std::vector<std::vector<double>>> locals;  ///< by layout and rank
};
inline Catalogue catalogue_of(const tensors::Shape& shape, const std::vector<int>& mesh,
                              const std::vector<ReduceOp>& ops) {
  Catalogue catalogue{shape, all_layouts(shape, mesh, ops), {}};
  PlanSimulator simulator(shape, mesh);
  for (const Layout& layout : catalogue.layouts) {
    simulator.fill(global_tensor(shape).to_vector(), layout);
    std::vector<std::vector<double>>& locals = catalogue.locals.emplace_back();
    for (int rank = 0; rank < simulator.world(); ++rank) {
      locals.push_back(simulator.local_of(rank));
    }
  }
  return catalogue;
}

inline DTensor placed(const Catalogue& catalogue, std::size_t index, const DeviceMesh& mesh) {
  const Layout& layout = catalogue.layouts[index];
  const Spec spec = make_spec(mesh, layout, catalogue.shape, tensors::DType::f64);
  const std::vector<double>& local = catalogue.locals[index][static_cast<std::size_t>(mesh.rank())];
  return DTensor(spec, tensors::tensor_from(local, spec.local_box().shape, tensors::DType::f64));
}

}  // namespace dtrun::dtensor
