// The distributed operations against the plain ones on the global tensors, on ranks that are
// threads.
#include "dtrun/dtensor/ops/basic.h"

#include <gtest/gtest.h>

#include <map>

#include "dtensor/catalogue.h"
#include "dtensor/refusal.h"
#include "dtensor/vector_tensor.h"
#include "support/rank_threads.h"
#include "tensor/all_dtypes.h"

namespace dtrun::dtensor {
namespace {

using tensors::DType;
using tensors::Shape;
using test::VectorCase;

DTensor result_of(const VectorCase& item, const DeviceMesh& mesh) {
  const boost::json::array& inputs = item.at("inputs").as_array();
  const DTensor a = placed_input(inputs[0].as_object(), mesh);
  const std::string op = test::text_of(item.at("op"));
  if (op == "mul_scalar") return mul(a, item.at("args").at("other").to_number<double>());
  const DTensor b = placed_input(inputs[1].as_object(), mesh);
  if (op == "add") {
    const boost::json::value* alpha = item.at("args").as_object().if_contains("alpha");
    return add(a, alpha == nullptr ? b : mul(b, alpha->to_number<double>()));
  }
  return op == "mul" ? mul(a, b) : matmul(a, b);
}

TEST(OpsTest, EveryVectorGivesItsValue) {
  std::map<std::vector<int>, std::vector<VectorCase>> by_mesh;
  std::size_t cases = 0;
  for (VectorCase& item : test::read_vector_file("ops")) {
    by_mesh[test::ints_of(item.at("mesh"))].push_back(std::move(item));
    ++cases;
  }
  test::expect_cases(cases, 416);
  for (const auto& [shape, items] : by_mesh) {
    int world = 1;
    for (const int size : shape) world *= size;
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, shape);
      for (const VectorCase& item : items) {
        SCOPED_TRACE(test::text_of(item.at("id")));
        const LocalTensor expected = tensor_of(item.at("outputs").as_array().at(0).as_object());
        EXPECT_EQ(difference(result_of(item, mesh).full_tensor(), expected, tolerance_of(item)),
                  "");
      }
    });
  }
}

using Operation = DTensor (*)(const DTensor&, const DTensor&);
using LocalOperation = LocalTensor (*)(const LocalTensor&, const LocalTensor&);

void expect_all_pairs_right(const std::vector<int>& mesh_shape, Operation operation,
                            LocalOperation local_operation,
                            const std::vector<std::pair<Shape, Shape>>& shapes,
                            const std::vector<ReduceOp>& ops) {
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  for (const auto& [left, right] : shapes) {
    const Catalogue a = catalogue_of(left, mesh_shape, ops);
    const Catalogue b = catalogue_of(right, mesh_shape, ops);
    const LocalTensor expected = local_operation(global_tensor(left), global_tensor(right));
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, mesh_shape);
      for (std::size_t i = 0; i < a.layouts.size(); ++i) {
        for (std::size_t j = 0; j < b.layouts.size(); ++j) {
          const DTensor x = placed(a, i, mesh);
          const DTensor y = placed(b, j, mesh);
          SCOPED_TRACE(x.spec().to_string() + " with " + y.spec().to_string());
          EXPECT_EQ(difference(operation(x, y).full_tensor(), expected, {0, 1e-9}), "");
        }
      }
    });
  }
}

const std::vector<std::vector<int>> kMeshes = {{1}, {2}, {3}, {5}, {2, 2}};
const std::vector<ReduceOp> kReduceOps = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max};

/// All shapes on the lines, the first two on the grid, where there are many more pairs of layouts.
LocalTensor add_plain(const LocalTensor& a, const LocalTensor& b) {
  return tensors::add(a, b);
}
LocalTensor mul_plain(const LocalTensor& a, const LocalTensor& b) {
  return tensors::mul(a, b);
}

void expect_right_on_all_meshes(Operation operation, LocalOperation local_operation,
                                const std::vector<std::pair<Shape, Shape>>& shapes) {
  for (const int size : {1, 2, 3, 5}) {
    expect_all_pairs_right({size}, operation, local_operation, shapes, kReduceOps);
  }
  expect_all_pairs_right({2, 2}, operation, local_operation, {shapes[0], shapes[1]},
                         {ReduceOp::sum, ReduceOp::max});
}

TEST(OpsTest, AddIsRightForEveryPairOfLayouts) {
  expect_right_on_all_meshes(add, add_plain,
                             {{{5, 3}, {5, 3}},
                              {{5, 3}, {3}},
                              {{5, 1}, {1, 3}},
                              {{3, 0}, {3, 1}},
                              {{}, {4}},
                              {{1, 2}, {1, 2}}});
}

TEST(OpsTest, MulIsRightForEveryPairOfLayouts) {
  expect_right_on_all_meshes(
      mul, mul_plain,
      {{{5, 3}, {5, 3}}, {{7, 2}, {1, 2}}, {{1, 3}, {5, 1}}, {{0}, {1}}, {{4}, {}}});
}

TEST(OpsTest, MatmulIsRightForEveryPairOfLayouts) {
  expect_right_on_all_meshes(
      matmul, tensors::matmul,
      {{{5, 7}, {7, 3}}, {{1, 2}, {2, 8}}, {{3, 0}, {0, 2}}, {{0, 3}, {3, 2}}});
}

TEST(OpsTest, MulByANumberIsRightForEveryLayoutAndEveryNumber) {
  for (const std::vector<int>& mesh_shape : kMeshes) {
    const Catalogue a = catalogue_of({5, 3}, mesh_shape, {ReduceOp::sum, ReduceOp::max});
    int world = 1;
    for (const int size : mesh_shape) world *= size;
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, mesh_shape);
      for (std::size_t i = 0; i < a.layouts.size(); ++i) {
        const DTensor x = placed(a, i, mesh);
        SCOPED_TRACE(x.spec().to_string());
        // The same tensor with several numbers: a decision must not remember the first one.
        for (const double number : {2.0, -3.0, 0.5}) {
          EXPECT_EQ(difference((x * number).full_tensor(),
                               tensors::mul(global_tensor({5, 3}), number), {0, 0}),
                    "");
        }
      }
    });
  }
}

TEST(OpsTest, DtypesPromoteAsThoseOfLocalTensors) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const DTensor whole = ones({4}, mesh, {Shard(0)}, DType::i64);
    const DTensor partial = ones({4}, mesh, {Partial()}, DType::i32);
    EXPECT_EQ((whole + partial).dtype(), DType::i64);
    EXPECT_EQ((whole * 0.5).dtype(), DType::f32);
    EXPECT_EQ((partial * 0.5).full_tensor().to_vector(), std::vector<double>(4, 0.5));
    EXPECT_EQ((partial * ones({4}, mesh, {Replicate()}, DType::bf16)).dtype(), DType::bf16);
  });
}

TEST(OpsTest, TheResultOfEveryTwoDtypesAndCountsOfDimsIsThatOfLocalTensors) {
  const std::vector<std::pair<Shape, Placements>> layouts = {
      {{4}, {Shard(0)}}, {{4}, {Replicate()}}, {{}, {Replicate()}}, {{}, {Partial(ReduceOp::max)}}};
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    std::vector<DTensor> operands;
    for (const auto& [shape, placements] : layouts) {
      for (const DType dtype : tensors::kAllDTypes)
        operands.push_back(ones(shape, mesh, placements, dtype));
    }
    for (const DTensor& a : operands) {
      for (const DTensor& b : operands) {
        SCOPED_TRACE(a.spec().to_string() + " with " + b.spec().to_string());
        const LocalTensor here = tensors::ones(a.shape(), {.dtype = a.dtype()});
        const LocalTensor there = tensors::ones(b.shape(), {.dtype = b.dtype()});
        EXPECT_EQ(difference((a + b).full_tensor(), here + there, {0, 0}), "");
        EXPECT_EQ((a + b).dtype(), (here + there).dtype());
        EXPECT_EQ((a * b).dtype(), (here * there).dtype());
      }
      EXPECT_EQ((2.0 * a).dtype(), (2.0 * a.to_local()).dtype());
      EXPECT_EQ((a * 2).dtype(), (a.to_local() * 2).dtype());
    }
  });
}

TEST(OpsTest, TheInputsAreLeftAsTheyAre) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const DTensor a = ones({4}, mesh, {Partial(ReduceOp::max)});
    const DTensor b = ones({4}, mesh, {Shard(0)});
    add(a, b).to_local().fill_(7);
    EXPECT_EQ(a.full_tensor().to_vector(), std::vector<double>(4, 1));
    EXPECT_EQ(b.full_tensor().to_vector(), std::vector<double>(4, 1));
  });
}

TEST(OpsTest, WhatDoesNotFitIsRefusedOnEveryRankBeforeAnythingIsSent) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const DeviceMesh other(group, {2, 1});
    const DTensor a = ones({2, 3}, mesh, {Shard(0)});
    expect_refused(
        [&] {
          add(a, ones({2, 3}, other, {Shard(0), Replicate()}));
        },
        "add of tensors on different meshes");
    expect_refused([&] { mul(a, ones({2}, mesh, {Shard(0)})); }, "[2, 3]");
    expect_refused([&] { matmul(a, a); }, "shapes [2, 3] and [2, 3]");
    expect_refused(
        [&] {
          matmul(a, ones({3, 2}, mesh, {Shard(0)}, DType::f64));
        },
        "the dtypes differ");
    expect_refused([&] { matmul(a, ones({}, mesh, {Replicate()})); }, "0-dim tensor is no matrix");
  });
}

TEST(OpsTest, ARefusalSaysWhatWasCalledWithWhat) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({4, 6}, mesh, {Shard(1)}), y = ones({5, 6}, mesh, {Shard(0)});
    expect_refused([&] { x + y; },
                   "in add of f32[4, 6] on (2): [S(1)] and f32[5, 6] on (2): [S(0)]");
  });
  // This one's own words name the operator and its operands: they are not told twice.
  expect_refused(
      [] {
        matmul(ones({2, 3}), ones({2, 3}));
      },
      "matmul of float32 [2, 3] and float32 [2, 3]");
}

}  // namespace
}  // namespace dtrun::dtensor
