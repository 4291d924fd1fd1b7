// Gradient check: a function's gradient against finite differences in f64, and value and gradient
// on every layout against those of one rank.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {

using Function = std::function<Tensor(const Tensor&)>;
using Values = std::vector<double>;
inline constexpr tensors::TensorOptions kDoubles{.dtype = DType::f64};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A number that all results have a part in, each another.
inline Tensor weighed(const Tensor& result) {
  const Tensor weights = randn(result.shape(), {7}, kDoubles);
  return sum(result.is_distributed()
                 ? result * distribute_tensor(weights, result.device_mesh(),
                                              Placements(result.placements().size(), Replicate()),
                                              {.source_rank = -1})
                 : result * weights);
}

inline Tensor gradient_of(const Function& function, const Tensor& at) {
  const Tensor x = at.detach().requires_grad_();
  weighed(function(x)).backward();
  return x.grad();
}

inline void expect_gradient_right(const Function& function, const Tensor& x) {
  const std::vector<double> gradient = gradient_of(function, x).to_vector();
  const std::vector<double> at = x.to_vector();
  constexpr double kStep = 1e-6;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const auto moved = [&](double by) {
      std::vector<double> values = at;
      values[i] += by;
      return weighed(function(tensor_from(values, x.shape(), DType::f64))).item();
    };
    EXPECT_NEAR(gradient[i], (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-7) << "element " << i;
  }
}

inline void expect_gradient_right(const Function& function, const Shape& shape) {
  expect_gradient_right(function, randn(shape, {1}, kDoubles));
}

/// The gradient, as part of a graph when a gradient of it is wanted, has the right gradient itself.
inline void expect_second_derivative_right(const Function& function, const Tensor& x) {
  expect_gradient_right(
      [&](const Tensor& at) {
        const Tensor leaf = at.requires_grad() ? at : at.detach().requires_grad_();
        weighed(function(leaf)).backward({.create_graph = true});
        const Tensor found = leaf.grad();
        leaf.set_grad({});
        return found;
      },
      x);
}

/// On a line and a square, the input cut along each dim, whole, and Partial.
inline void expect_right_on_meshes(const Function& function, const Tensor& whole) {
  const Tensor expected = function(whole);
  const Tensor expected_gradient = gradient_of(function, whole);
  for (const std::vector<int>& mesh_shape : {std::vector<int>{3}, std::vector<int>{2, 2}}) {
    const int world = mesh_shape.size() == 1 ? mesh_shape[0] : mesh_shape[0] * mesh_shape[1];
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, mesh_shape);
      for (const Placement& first : {Shard(0), Shard(-1), Replicate(), Partial()}) {
        for (const Placement& second : {Shard(0), Shard(-1), Replicate(), Partial()}) {
          const Placements placements =
              mesh_shape.size() == 1 ? Placements{first} : Placements{first, second};
          SCOPED_TRACE(placements_to_string(placements));
          const Tensor x = distribute_tensor(whole, mesh, placements, {.source_rank = -1});
          EXPECT_EQ(difference(function(x).full_tensor(), expected, {1e-12, 1e-12}), "");
          const Tensor gradient = gradient_of(function, x);
          EXPECT_EQ(difference(gradient.full_tensor(), expected_gradient, {1e-12, 1e-12}), "");
          for (const Placement& placement : gradient.placements())
            EXPECT_FALSE(placement.is_partial());
        }
      }
    });
  }
}
inline void expect_right_on_meshes(const Function& function, const Shape& shape) {
  expect_right_on_meshes(function, randn(shape, {1}, kDoubles));
}

/// Both: against finite differences, and on every layout.
inline void expect_right(const Function& function, const Tensor& x) {
  expect_gradient_right(function, x);
  expect_right_on_meshes(function, x);
}
inline void expect_right(const Function& function, const Shape& shape = {5, 4}) {
  expect_right(function, randn(shape, {1}, kDoubles));
}

}  // namespace dtrun::dtensor
