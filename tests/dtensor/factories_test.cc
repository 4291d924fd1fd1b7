// The functions that make tensors on a mesh: on every one the tensor of one rank.
#include <gtest/gtest.h>

#include <functional>

#include "dtensor/layout_catalogue.h"
#include "dtensor/ragged_catalogue.h"
#include "dtensor/refusal.h"
#include "dtensor/simulated_staging.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/tensor/cuda.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

/// What one rank makes, and the same on a mesh.
struct Factory {
  const char* name;
  Shape shape;
  std::function<Tensor()> whole;
  std::function<Tensor(const DeviceMesh& mesh, const Placements& placements,
                       const ShardOrder& order)>
      placed;
  bool has_values = true;
};

/// Sizes that no mesh here cuts evenly.
std::vector<Factory> filling_factories() {
  const Shape matrix = {7, 5};
  using Mesh = const DeviceMesh&;
  using At = const Placements&;
  using Order = const ShardOrder&;
  return {
      {"zeros", matrix, [=] { return zeros(matrix); },
       [=](Mesh m, At p, Order o) { return zeros(matrix, m, p, DType::f32, o); }},
      {"ones", matrix, [=] { return ones(matrix, {.dtype = DType::i64}); },
       [=](Mesh m, At p, Order o) { return ones(matrix, m, p, DType::i64, o); }},
      {"full", matrix, [=] { return full(matrix, 2.5); },
       [=](Mesh m, At p, Order o) { return full(matrix, 2.5, m, p, DType::f32, o); }},
      {"empty", matrix, [=] { return empty(matrix); },
       [=](Mesh m, At p, Order o) { return empty(matrix, m, p, DType::f32, o); }, false},
      {"arange of whole numbers",
       {11},
       [] { return arange(11); },
       [](Mesh m, At p, Order o) { return arange(11, m, p, DType::i64, o); }},
      {"arange with a step",
       {5},
       [] { return arange(0.5, 2, 0.3, {}); },
       [](Mesh m, At p, Order o) { return arange(0.5, 2, 0.3, m, p, DType::f32, o); }},
      {"linspace",
       {13},
       [] { return linspace(-1, 2, 13); },
       [](Mesh m, At p, Order o) { return linspace(-1, 2, 13, m, p, DType::f32, o); }},
      {"eye", matrix, [] { return eye(7, 5); },
       [](Mesh m, At p, Order o) { return eye(7, 5, m, p, DType::f32, o); }},
  };
}

std::vector<Factory> drawing_factories() {
  const Shape matrix = {7, 5};
  const RandomKey key{.seed = 9};
  using Mesh = const DeviceMesh&;
  using At = const Placements&;
  using Order = const ShardOrder&;
  return {
      {"rand by a key", matrix, [=] { return rand(matrix, key); },
       [=](Mesh m, At p, Order o) { return rand(matrix, key, m, p, DType::f32, o); }},
      {"randn by a key", matrix, [=] { return randn(matrix, key); },
       [=](Mesh m, At p, Order o) { return randn(matrix, key, m, p, DType::f32, o); }},
      {"rand", matrix,
       [=] {
         manual_seed(4);
         return rand(matrix);
       },
       [=](Mesh m, At p, Order o) {
         manual_seed(4);
         return rand(matrix, m, p, DType::f32, o);
       }},
      {"randn", matrix,
       [=] {
         manual_seed(4);
         return randn(matrix);
       },
       [=](Mesh m, At p, Order o) {
         manual_seed(4);
         return randn(matrix, m, p, DType::f32, o);
       }},
      {"randint", matrix,
       [=] {
         manual_seed(4);
         return randint(0, 9, matrix);
       },
       [=](Mesh m, At p, Order o) {
         manual_seed(4);
         return randint(0, 9, matrix, m, p, DType::i64, o);
       }},
      {"randperm",
       {11},
       [] {
         manual_seed(4);
         return randperm(11);
       },
       [](Mesh m, At p, Order o) {
         manual_seed(4);
         return randperm(11, m, p, DType::i64, o);
       }},
  };
}

std::vector<Factory> all_factories() {
  std::vector<Factory> all = filling_factories();
  for (const Factory& factory : drawing_factories()) all.push_back(factory);
  return all;
}

/// The global tensor and this rank's part of it, which lies on `device`.
void expect_made(const Factory& factory, const DeviceMesh& mesh, const Layout& layout,
                 tensors::Device device) {
  SCOPED_TRACE(std::string(factory.name) + " as " + layout.to_string());
  const tensors::LocalTensor whole = factory.whole().local();
  const CommCounter counter;
  const Tensor made = factory.placed(mesh, layout.placements(), layout.order());
  EXPECT_EQ(counter.get_total_counts(), 0);
  EXPECT_EQ(made.spec().layout(), layout);
  EXPECT_EQ(made.shape(), factory.shape);
  EXPECT_EQ(made.dtype(), whole.dtype());
  EXPECT_EQ(made.local().device(), device);
  const Box box = made.spec().local_box();
  EXPECT_EQ(made.local().shape(), box.shape);
  if (!factory.has_values) return;
  EXPECT_EQ(difference(made.full_tensor().local().to(tensors::kCpu), whole, {0, 0}), "");
  for (const Placement& placement : layout.placements())
    if (placement.is_partial()) return;
  EXPECT_EQ(difference(made.local().to(tensors::kCpu), cut(whole, box), {0, 0}), "");
}

/// In every layout, with every order of its cuts, even and ragged; or in one of so many.
/// @return how many tensors there were
std::size_t expect_all_made(const DeviceMesh& mesh, tensors::Device device, std::size_t one_in) {
  std::size_t made = 0, number = 0;
  for (const Factory& factory : all_factories()) {
    RaggedLayouts all;
    if (mesh.ndim() < 4) {
      all = ragged_layouts(factory.shape, mesh.shape(), 1, {Replicate(), Partial()});
    } else {
      all.layouts = all_layouts(factory.shape, mesh.shape(), {ReduceOp::sum});
    }
    for (const Layout& layout : all.layouts) {
      if (number++ % one_in != 0) continue;
      expect_made(factory, mesh, layout, device);
      ++made;
    }
  }
  return made;
}

TEST(FactoriesTest, EveryMeshHasTheTensorOfOneRank) {
  for (const std::vector<int>& shape :
       std::vector<std::vector<int>>{{3}, {2, 2}, {2, 1, 2}, {2, 2, 2, 2}}) {
    int ranks = 1;
    for (const int size : shape) ranks *= size;
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const std::size_t one_in = shape.size() == 4 ? 23 : 1;
      EXPECT_GT(expect_all_made(DeviceMesh(group, shape), tensors::kCpu, one_in), 40U);
    });
  }
}

TEST(FactoriesTest, SizesMayStandOneByOne) {
  const auto same = [](const Tensor& found, const Tensor& right) {
    return difference(found.local(), right.local(), {0, 0});
  };
  EXPECT_EQ(same(zeros(2, 3), zeros({2, 3})), "");
  EXPECT_EQ(same(ones(2, 3L), ones(Shape{2, 3})), "");
  EXPECT_EQ(same(ones(4), ones({4})), "");
  EXPECT_EQ(empty(2, 0, 3).shape(), (Shape{2, 0, 3}));
  EXPECT_EQ(empty(5).shape(), (Shape{5}));
  const auto after_seed = [](const auto& make) {
    manual_seed(4);
    return make();
  };
  EXPECT_EQ(same(after_seed([] { return randn(2, 3); }), after_seed([] {
                   return randn(Shape{2, 3});
                 })),
            "");
  EXPECT_EQ(same(after_seed([] { return rand(2, 3); }), after_seed([] {
                   return rand(Shape{2, 3});
                 })),
            "");
  expect_refused([] { ones(2, -1); }, "-1");
  expect_refused([] { zeros(-2); }, "-2");
  expect_refused([] { empty(2, -1); }, "-1");
  expect_refused([] { randn(-1, 2); }, "-1");
  expect_refused([] { rand(2, -3); }, "-3");
}

TEST(FactoriesTest, AMeshOfDevicesHasThemThere) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices devices;
  register_simulated_staging();
  test::run_ranks(4, {.backend = "cpu:cpu,cuda:simulated"}, [](const ProcessGroup& group) {
    const tensors::Device own{tensors::DeviceType::cuda, group.rank() % 2};
    tensors::cuda::set_device(own.index);
    for (const std::vector<int>& shape : std::vector<std::vector<int>>{{4}, {2, 2}}) {
      const DeviceMesh mesh(group, shape, {}, tensors::DeviceType::cuda);
      EXPECT_GT(expect_all_made(mesh, own, 1), 40U);
    }
  });
}

}  // namespace
}  // namespace dtrun::dtensor
