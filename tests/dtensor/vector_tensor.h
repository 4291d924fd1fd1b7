// Vector tensors: the tensors of the vector files as local and distributed tensors, and their
// comparison as the files' README demands.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dtensor/vector_layout.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {

inline LocalTensor tensor_of(const boost::json::value& value, const tensors::Shape& shape,
                             tensors::DType dtype) {
  return tensors::tensor_from(test::numbers_of(value), shape, dtype);
}

/// The global tensor.
inline LocalTensor tensor_of(const boost::json::object& item) {
  return tensor_of(item.at("value"), test::sizes_of(item.at("shape")),
                   tensors::parse_dtype(test::text_of(item.at("dtype"))));
}

inline LocalTensor cut(const LocalTensor& tensor, const Box& box) {
  LocalTensor part = tensor;
  for (std::size_t d = 0; d < box.shape.size(); ++d) {
    part = part.narrow(static_cast<int>(d), box.offsets[d], box.shape[d]);
  }
  return part;
}

/// An input of a case, placed as it says, without communication.
inline DTensor placed_input(const boost::json::object& input, const DeviceMesh& mesh) {
  const LocalTensor global = tensor_of(input);
  const Spec spec = make_spec(mesh, placements_of(input.at("placements")), global.shape(),
                              global.dtype(), order_of(input.if_contains("shard_order")));
  const std::size_t rank = static_cast<std::size_t>(mesh.rank());
  if (input.contains("locals")) {
    return DTensor(
        spec, tensor_of(input.at("locals").as_array()[rank],
                        test::sizes_of(input.at("local_shapes").as_array()[rank]), global.dtype()));
  }
  return DTensor(spec, cut(global, spec.local_box()).contiguous());
}

struct Tolerance {
  double relative;
  double absolute;
};
inline Tolerance tolerance_of(tensors::DType dtype) {
  switch (dtype) {
    case tensors::DType::f64:
      return {1e-9, 1e-10};
    case tensors::DType::f32:
      return {2e-5, 1e-5};
    case tensors::DType::f16:
      return {3e-3, 3e-3};
    case tensors::DType::bf16:
      return {2e-2, 2e-2};
    default:
      return {0, 0};
  }
}

/// How the first wrong element differs; empty where all are right.
inline std::string difference(const LocalTensor& actual, const LocalTensor& expected,
                              const Tolerance& tolerance) {
  if (actual.shape() != expected.shape() || actual.dtype() != expected.dtype()) {
    return "shape or dtype: " + tensors::shape_to_string(actual.shape()) + " for " +
           tensors::shape_to_string(expected.shape());
  }
  const std::vector<double> a = actual.to_vector();
  const std::vector<double> e = expected.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool equal = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    if (!equal &&
        !(std::abs(a[i] - e[i]) <= tolerance.absolute + tolerance.relative * std::abs(e[i]))) {
      return "element " + std::to_string(i) + " is " + std::to_string(a[i]) + ", not " +
             std::to_string(e[i]);
    }
  }
  return "";
}

/// The tolerance that a case demands.
inline Tolerance tolerance_of(const test::VectorCase& item) {
  if (item.at("exact").as_bool()) return {0, 0};
  return tolerance_of(tensors::parse_dtype(
      test::text_of(item.at("outputs").as_array().at(0).as_object().at("dtype"))));
}

}  // namespace dtrun::dtensor
