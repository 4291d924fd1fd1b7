// A mesh of two hosts with two ranks each: every layout to every other, and a product with its
// gradients, beside the same on whole tensors. Prints "rank R layouts right N".
#include <string>
#include <vector>

#include "dtrun/dtrun.h"

namespace {

using namespace dtrun;
using dtensor::Partial;
using dtensor::Replicate;
using dtensor::Shard;

Tensor counted(const Shape& shape) {
  return arange(0, static_cast<double>(tensors::numel(shape)), 1, {.dtype = DType::f64})
      .view(shape);
}

Tensor laid(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements) {
  return distribute_tensor(whole, mesh, placements, {.source_rank = -1});
}

void require_equal(const Tensor& actual, const Tensor& expected, const std::string& what) {
  const Tensor whole = actual.full_tensor();
  if (whole.shape() != expected.shape() || whole.to_vector() != expected.to_vector()) {
    print("rank {} wrong: {}: {} for {}", dist::get_rank(), what, whole, expected);
    std::exit(1);
  }
}

int count_moves(const DeviceMesh& mesh, const Shape& shape) {
  std::vector<dtensor::Placement> of_axis = {Replicate(), Partial()};
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) of_axis.push_back(Shard(d));
  std::vector<Placements> layouts;
  for (const auto& outer : of_axis)
    for (const auto& inner : of_axis) layouts.push_back({outer, inner});
  const Tensor whole = counted(shape);
  int moves = 0;
  for (const Placements& from : layouts) {
    const Tensor x = laid(whole, mesh, {Replicate(), Replicate()}).redistribute(from);
    for (const Placements& to : layouts) {
      const Tensor there = x.redistribute(to);
      require_equal(there, whole, x.spec().to_string() + " to " + there.spec().to_string());
      ++moves;
    }
  }
  return moves;
}

void train_a_step(const DeviceMesh& mesh) {
  const Tensor samples = counted({5, 3}), weight = counted({3, 7});
  const Tensor x = laid(samples, mesh, {Shard(0), Replicate()});
  const Tensor w = laid(weight, mesh, {Replicate(), Shard(1)});
  x.requires_grad_();
  w.requires_grad_();
  const Tensor y = matmul(x, w);
  require_equal(y, matmul(samples, weight), "the product");
  y.sum().backward();
  require_equal(x.grad(), matmul(ones({5, 7}, {.dtype = DType::f64}), weight.t()), "a gradient");
  require_equal(w.grad(), matmul(samples.t(), ones({5, 7}, {.dtype = DType::f64})), "a gradient");
}

}  // namespace

int main() {
  dist::init_process_group();
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {2, 2}, {"host", "rank"});
  int moves = 0;
  for (const Shape& shape : {Shape{5, 3}, Shape{8, 4}, Shape{1}, Shape{300, 257}}) {
    moves += count_moves(mesh, shape);
  }
  train_a_step(mesh);
  print("rank {} layouts right {}", dist::get_rank(), moves);
  dist::destroy_process_group();
}
