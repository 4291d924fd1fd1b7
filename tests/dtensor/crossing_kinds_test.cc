// Moves to other meshes of every kind of tensor: of each dtype and reduction, cut raggedly and in
// any order. And the way back of their gradients.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <random>

#include "dtensor/ragged_catalogue.h"
#include "dtensor/rank_world.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

struct Kind {
  DType dtype;
  ReduceOp op;  ///< of its Partial axes
};

constexpr Kind kKinds[] = {
    {DType::i64, ReduceOp::band},    {DType::i32, ReduceOp::bor},    {DType::u8, ReduceOp::bxor},
    {DType::i16, ReduceOp::product}, {DType::i8, ReduceOp::max},     {DType::f64, ReduceOp::avg},
    {DType::f32, ReduceOp::sum},     {DType::bf16, ReduceOp::min},   {DType::f16, ReduceOp::sum},
    {DType::boolean, ReduceOp::max}, {DType::f32, ReduceOp::product}};

/// 0, 1, 2, ... as far as the dtype has them.
LocalTensor numbers_of(const Shape& shape, DType dtype) {
  const LocalTensor all = tensors::arange(tensors::numel(shape)).view(shape);
  return dtype == DType::boolean ? tensors::gt(tensors::remainder(all, 3), 0) : all.to(dtype);
}

void expect_there(const Tensor& tensor, const Layout& layout, const LocalTensor& global) {
  EXPECT_EQ(tensor.spec().layout(), layout);
  EXPECT_EQ(tensor.dtype(), global.dtype());
  if (!tensor.device_mesh().has_this_rank()) return;
  EXPECT_EQ(tensor.full_tensor().local().to(DType::f64).to_vector(),
            global.to(DType::f64).to_vector());
  for (const Placement& placement : layout.placements())
    if (placement.is_partial()) return;
  EXPECT_EQ(tensor.local().to(DType::f64).to_vector(),
            cut(global, tensor.spec().local_box()).to(DType::f64).to_vector());
}

Tensor laid_out(const LocalTensor& global, const DeviceMesh& mesh, const Layout& layout) {
  return distribute_tensor(global, mesh, layout.placements(),
                           {.source_rank = -1, .shard_order = layout.order()});
}

Layout reduced(const Layout& layout, const Shape& shape, const DeviceMesh& mesh) {
  return make_layout(shape, mesh.shape(), without_partials(layout.placements()), layout.order());
}

/// What comes to x of a gradient of where it went.
void expect_gradient_back(const Tensor& x, const Tensor& there) {
  const Layout lies = reduced(there.spec().layout(), x.shape(), there.device_mesh());
  const LocalTensor numbers = tensors::mul(numbers_of(x.shape(), x.dtype()), 2);
  const Tensor back = grad({there}, {x}, {laid_out(numbers, there.device_mesh(), lies)})[0];
  EXPECT_EQ(back.device_mesh(), x.device_mesh());
  expect_there(back, reduced(x.spec().layout(), x.shape(), x.device_mesh()), numbers);
}

/// @return how many moves there were
std::size_t expect_all_there(const std::vector<RankGrid>& grids, const Shape& shape, Kind kind,
                             std::size_t moves) {
  std::vector<RaggedLayouts> ways;
  for (const RankGrid& grid : grids)
    ways.push_back(ragged_layouts(shape, grid.shape(), 1, {Replicate(), Partial(kind.op)}));
  std::atomic<std::size_t> gradients = 0;
  run_world(8, [&](int) {
    std::vector<DeviceMesh> meshes;
    for (const RankGrid& grid : grids) meshes.push_back(DeviceMesh("cpu", grid));
    const LocalTensor global = numbers_of(shape, kind.dtype);
    std::mt19937 random(7);
    for (std::size_t i = 0; i < moves; ++i) {
      const std::size_t source = random() % grids.size(),
                        target = (source + 1 + random() % (grids.size() - 1)) % grids.size();
      const std::vector<Layout>&befores = ways[source].layouts, &afters = ways[target].layouts;
      const Layout &from = befores[random() % befores.size()],
                   &to = afters[random() % afters.size()];
      const Tensor x = laid_out(global, meshes[source], from);
      SCOPED_TRACE(x.spec().to_string() + " -> " + to.to_string() + " on " +
                   meshes[target].to_string());
      const bool has_gradient = tensors::is_floating_point(kind.dtype);
      if (has_gradient) x.requires_grad_();
      const Tensor there = x.redistribute(meshes[target], to.placements(), to.order());
      expect_there(there.detach(), to, global);
      if (!has_gradient) continue;
      expect_gradient_back(x, there);
      ++gradients;
    }
  });
  return gradients / 8;
}

TEST(CrossingKindsTest, EveryKindGoesToOtherMeshesAndItsGradientComesBack) {
  const std::vector<RankGrid> grids = {RankGrid(arange(8).reshape({2, 2, 2})),
                                       RankGrid(flip(arange(8), {0}).reshape({2, 1, 2, 2})),
                                       {{6, 0, 3}, {5, 2, 4}},
                                       {7, 1}};
  const std::vector<RankGrid> flat = {{{6, 0, 3}, {5, 2, 4}}, {7, 1}, {3, 1, 2, 0}};
  const std::size_t moves = 200 / testing_support::one_in(5);
  std::size_t gradients = 0;
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(std::string(tensors::dtype_name(kind.dtype)));
    gradients += expect_all_there(grids, {7}, kind, moves);
    gradients += expect_all_there(flat, {5, 7}, kind, moves);
  }
  std::printf("%zu moves, %zu of them and back with a gradient\n", 2 * std::size(kKinds) * moves,
              gradients);
  EXPECT_EQ(gradients, 2 * 5 * moves);
}

}  // namespace
}  // namespace dtrun::dtensor
