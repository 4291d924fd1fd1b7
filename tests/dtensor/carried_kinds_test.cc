// What the transport carries of a move is what explain() tells, whatever moves: each dtype and
// reduction, cut evenly and raggedly, at once or while the program goes on, and the way back of its
// gradient.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <random>

#include "dtensor/carried_bytes.h"
#include "dtensor/ragged_catalogue.h"
#include "dtensor/simulated_staging.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/tensor/cuda.h"
#include "support/one_in.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

struct CarriedKind {
  DType dtype;
  ReduceOp op;
};

constexpr CarriedKind kCarriedKinds[] = {
    {DType::f64, ReduceOp::sum},    {DType::f32, ReduceOp::avg},  {DType::bf16, ReduceOp::max},
    {DType::f16, ReduceOp::min},    {DType::i64, ReduceOp::bxor}, {DType::i32, ReduceOp::product},
    {DType::u8, ReduceOp::band},    {DType::i16, ReduceOp::bor},  {DType::i8, ReduceOp::sum},
    {DType::boolean, ReduceOp::max}};

/// Runs the call, and compares with what explain() says of it.
/// @return the bytes
std::int64_t expect_carried(const std::function<void()>& call, const DeviceMesh& mesh) {
  const CallsExplanation told = explain(call);
  const CommCounter counter;
  const std::int64_t before = bytes_carried(mesh);
  call();
  EXPECT_EQ(bytes_carried(mesh) - before, told.bytes_sent()) << told;
  EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent()) << told;
  EXPECT_EQ(counter.get_total_counts(), told.collectives()) << told;
  return told.bytes_sent();
}

/// Along each axis are two ranks, or one: of more, an all_reduce is shared out as is fastest.
void expect_every_kind_carried(const std::vector<int>& mesh_shape, const Shape& shape,
                               std::size_t moves) {
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  for (const CarriedKind& kind : kCarriedKinds) {
    const RaggedLayouts all = ragged_layouts(shape, mesh_shape, 1, {Replicate(), Partial(kind.op)});
    std::atomic<std::int64_t> there = 0, meanwhile = 0, back = 0;
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, mesh_shape);
      std::mt19937 random(5);
      for (std::size_t i = 0; i < moves; ++i) {
        const Layout &from = all.layouts[random() % all.layouts.size()],
                     &to = all.layouts[random() % all.layouts.size()];
        SCOPED_TRACE(std::string(tensors::dtype_name(kind.dtype)) + " " + from.to_string() +
                     " -> " + to.to_string());
        const Tensor x = zeros(shape, mesh, from.placements(), kind.dtype, from.order());
        there += expect_carried([&] { x.redistribute(to.placements(), to.order()); }, mesh);
        meanwhile +=
            expect_carried([&] { x.redistribute_async(to.placements(), to.order()).wait(); }, mesh);
        if (!tensors::is_floating_point(kind.dtype)) continue;
        x.requires_grad_();
        const Tensor y = x.redistribute(to.placements(), to.order());
        const Tensor gradient = ones_like(y);
        back += expect_carried([&] { grad({y}, {x}, {gradient}, {.retain_graph = true}); }, mesh);
      }
    });
    EXPECT_EQ(there, meanwhile);
    EXPECT_GT(there, 0);
    EXPECT_EQ(back > 0, tensors::is_floating_point(kind.dtype));
  }
}

TEST(CarriedKindsTest, EveryKindOfMoveCarriesJustTheBytesThatAreTold) {
  const std::size_t one_in = testing_support::one_in(5);
  expect_every_kind_carried({2}, {7, 5}, 60 / one_in);
  expect_every_kind_carried({2}, {250, 131}, 20 / one_in);
  expect_every_kind_carried({2, 2}, {7, 5}, 100 / one_in);
  expect_every_kind_carried({2, 2, 2}, {7}, 60 / one_in);
  expect_every_kind_carried({2, 1, 2, 2}, {70}, 60 / one_in);
}

// A simulated device's elements go through the host, as those of staged groups do.
TEST(CarriedKindsTest, MovesOnDevicesCarryJustTheBytesThatAreTold) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices devices;
  register_simulated_staging();
  const Shape shape = {7, 5};
  const std::vector<Layout> layouts = all_layouts(shape, {2, 2}, {ReduceOp::sum});
  std::atomic<std::int64_t> bytes = 0;
  test::run_ranks(4, {.backend = "cpu:cpu,cuda:simulated"}, [&](const ProcessGroup& group) {
    tensors::cuda::set_device(group.rank() % 2);
    const DeviceMesh mesh(group, {2, 2}, {}, tensors::DeviceType::cuda);
    for (std::size_t pair = 0; pair < layouts.size() * layouts.size(); pair += 7) {
      const Layout &from = layouts[pair / layouts.size()], &to = layouts[pair % layouts.size()];
      SCOPED_TRACE(from.to_string() + " -> " + to.to_string());
      const Tensor x = zeros(shape, mesh, from.placements(), DType::f32, from.order());
      bytes += expect_carried([&] { x.redistribute(to.placements(), to.order()); }, mesh);
      bytes +=
          expect_carried([&] { x.redistribute_async(to.placements(), to.order()).wait(); }, mesh);
    }
  });
  EXPECT_GT(bytes, 0);
}

}  // namespace
}  // namespace dtrun::dtensor
