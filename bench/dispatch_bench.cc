// What the library itself costs around the work: a small operation, a call on a mesh, a gradient, a
// layout, a plan; and, on two ranks, a redistribution beside the bare collective. Google
// Benchmark's options apply.
//
//     dtrun --nproc_per_node=1 dispatch_bench [--benchmark_filter=...]
//     dtrun --nproc_per_node=2 dispatch_bench --benchmark_filter=between_ranks
#include <benchmark/benchmark.h>

#include <span>
#include <vector>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/plan/explanation.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"
#include "dtrun/dtrun.h"
#include "dtrun/tensor/ops.h"

namespace {

using namespace dtrun;
using dtensor::Replicate;
using dtensor::Shard;

void add_four_elements(benchmark::State& state) {
  const tensors::LocalTensor a = tensors::ones({4}), b = tensors::ones({4});
  for (auto _ : state) benchmark::DoNotOptimize(tensors::add(a, b));
}
BENCHMARK(add_four_elements);

void add_four_elements_with_the_users_type(benchmark::State& state) {
  const Tensor a = ones({4}), b = ones({4});
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(add_four_elements_with_the_users_type);

void add_four_elements_recorded(benchmark::State& state) {
  const Tensor a = ones({4}).requires_grad_(), b = ones({4});
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(add_four_elements_recorded);

/// @param state.range() axes of the mesh
void add_four_elements_on_a_mesh(benchmark::State& state) {
  const auto axes = static_cast<std::size_t>(state.range());
  const DeviceMesh mesh = dist::init_device_mesh("cpu", std::vector<int>(axes, 1));
  const Tensor a = ones({4}, mesh, Placements(axes, Replicate()));
  const Tensor b = ones({4}, mesh, Placements(axes, Replicate()));
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(add_four_elements_on_a_mesh)->Arg(1)->Arg(2);

/// Every call is of another shape, hence a miss.
void add_on_a_mesh_for_the_first_time(benchmark::State& state) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {1, 1});
  std::int64_t size = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const Tensor a = ones({1 + ++size % 100'000}, mesh, {Shard(0), Replicate()});
    state.ResumeTiming();
    benchmark::DoNotOptimize(a + a);
  }
}
BENCHMARK(add_on_a_mesh_for_the_first_time)->Iterations(20'000);

void backward_of_twenty_small_layers(benchmark::State& state) {
  std::vector<Tensor> weights;
  for (int i = 0; i < 20; ++i) {
    weights.push_back(randn({16, 16}, {static_cast<std::uint64_t>(i)}).requires_grad_());
  }
  const Tensor x = randn({4, 16}, {99});
  for (auto _ : state) {
    state.PauseTiming();
    Tensor y = x;
    for (const Tensor& weight : weights) y = matmul(y, weight) * 0.1;
    const Tensor loss = y.sum();
    state.ResumeTiming();
    loss.backward();
  }
}
BENCHMARK(backward_of_twenty_small_layers);

void box_of_a_rank(benchmark::State& state) {
  const dtensor::Placements placements = {Shard(0), Shard(1)};
  for (auto _ : state)
    benchmark::DoNotOptimize(dtensor::local_box({1000, 1001}, {4, 2}, {3, 1}, placements));
}
BENCHMARK(box_of_a_rank);

/// Every call is of another shape, and the operands are cut along different dims on every axis.
void choice_on_many_axes(benchmark::State& state) {
  const auto axes = static_cast<std::size_t>(state.range());
  const DeviceMesh mesh = dist::init_device_mesh("cpu", std::vector<int>(axes, 1));
  std::int64_t size = 0;
  Placements rows, columns;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    rows.push_back(Shard(static_cast<int>(axis % 2)));
    columns.push_back(Shard(static_cast<int>((axis + 1) % 2)));
  }
  for (auto _ : state) {
    state.PauseTiming();
    const Shape shape = {1 + ++size % 100'000, 4};
    const Tensor a = ones(shape, mesh, rows), b = ones(shape, mesh, columns);
    state.ResumeTiming();
    benchmark::DoNotOptimize(a + b);
  }
}
BENCHMARK(choice_on_many_axes)->Arg(2)->Arg(4)->Arg(8)->Iterations(2'000);

// All ranks make the same number of calls.
constexpr int kCallsBetweenRanks = 50'000;

/// The rows of a matrix of `state.range()` rows, gathered; the copies into the whole are the same.
void all_gather_between_ranks(benchmark::State& state) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {dist::get_world_size()});
  const Tensor rows = ones({state.range(), 4}, mesh, {Shard(0)});
  for (auto _ : state) {
    const tensors::LocalTensor whole = tensors::empty(rows.shape());
    mesh.group().all_gather(tensors::chunk(whole, mesh.size()), rows.local());
  }
}
BENCHMARK(all_gather_between_ranks)->Arg(8)->Arg(1024)->Iterations(kCallsBetweenRanks);

void redistribute_to_whole_between_ranks(benchmark::State& state) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {dist::get_world_size()});
  const Tensor rows = ones({state.range(), 4}, mesh, {Shard(0)});
  for (auto _ : state) benchmark::DoNotOptimize(rows.redistribute({Replicate()}));
}
BENCHMARK(redistribute_to_whole_between_ranks)->Arg(8)->Arg(1024)->Iterations(kCallsBetweenRanks);

/// The same tensor in turns to the other layouts, of which it keeps a few. @param state.range() how
/// many of them there are
void redistribute_in_turns_between_ranks(benchmark::State& state) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {dist::get_world_size()});
  const Tensor rows = ones({8, 2, 2, 2, 2}, mesh, {Shard(0)});
  const std::vector<Placements> layouts = {
      {Replicate()}, {Shard(1)}, {Shard(2)}, {Shard(3)}, {Shard(4)}};
  const std::span turns(layouts.data(), static_cast<std::size_t>(state.range()));
  while (state.KeepRunningBatch(state.range()))
    for (const Placements& to : turns) benchmark::DoNotOptimize(rows.redistribute(to));
}
BENCHMARK(redistribute_in_turns_between_ranks)
    ->Arg(2)
    ->Arg(4)
    ->Arg(5)
    ->Iterations(2 * kCallsBetweenRanks);

void all_reduce_between_ranks(benchmark::State& state) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {dist::get_world_size()});
  const tensors::LocalTensor terms = tensors::ones({state.range(), 4});
  for (auto _ : state) {
    const tensors::LocalTensor sum = terms.clone();
    mesh.group().all_reduce(sum);
  }
}
BENCHMARK(all_reduce_between_ranks)->Arg(8)->Arg(1024)->Iterations(kCallsBetweenRanks);

/// Rows of `state.range()` times four elements from the first half of the ranks to the second.
void redistribute_to_the_other_half_between_ranks(benchmark::State& state) {
  const int ranks = dist::get_world_size(), half = ranks / 2;
  std::vector<int> first, second;
  for (int i = 0; i < ranks; ++i) (i < half ? first : second).push_back(i);
  const DeviceMesh from("cpu", first), to("cpu", second);
  const Tensor rows = ones({state.range() * half, 4}, from, {Shard(0)});
  for (auto _ : state) benchmark::DoNotOptimize(rows.redistribute(to, {Shard(0)}));
}
BENCHMARK(redistribute_to_the_other_half_between_ranks)->Arg(8)->Iterations(kCallsBetweenRanks);

/// The same elements, as messages.
void send_to_the_other_half_between_ranks(benchmark::State& state) {
  const int half = dist::get_world_size() / 2, rank = dist::get_rank();
  if (2 * half != dist::get_world_size())
    return state.SkipWithError("an even number of ranks is needed: each sends to one, or gets");
  const tensors::LocalTensor rows = tensors::ones({state.range(), 4});
  const ProcessGroup& world = dist::world();
  for (auto _ : state) {
    if (rank < half)
      world.send(rows, rank + half);
    else
      world.recv(tensors::empty({state.range(), 4}), rank - half);
  }
}
BENCHMARK(send_to_the_other_half_between_ranks)->Arg(8)->Iterations(kCallsBetweenRanks);

void redistribute_of_terms_between_ranks(benchmark::State& state) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {dist::get_world_size()});
  const Tensor terms = ones({state.range(), 4}, mesh, {dtensor::Partial()});
  for (auto _ : state) benchmark::DoNotOptimize(terms.redistribute({Replicate()}));
}
BENCHMARK(redistribute_of_terms_between_ranks)->Arg(8)->Arg(1024)->Iterations(kCallsBetweenRanks);

void plan_on_two_axes(benchmark::State& state) {
  const dtensor::Layout from({Shard(0), Shard(1)});
  const dtensor::Layout to({Shard(1), Replicate()});
  for (auto _ : state)
    benchmark::DoNotOptimize(dtensor::plan_redistribute({1000, 1001}, {4, 2}, from, to));
}
BENCHMARK(plan_on_two_axes);

/// Three axes that cut one dim turn around, and the last one goes to another. @param state.range()
/// the first dim
void plan_on_three_axes(benchmark::State& state) {
  const tensors::Shape shape = {state.range(), 64};
  const std::vector<int> mesh = {2, 4, 3};
  const dtensor::Layout from = make_layout(shape, mesh, {Shard(0), Shard(0), Shard(0)});
  const dtensor::Layout to =
      make_layout(shape, mesh, {Shard(0), Shard(0), Shard(1)}, {{0, {1, 0}}});
  for (auto _ : state) benchmark::DoNotOptimize(dtensor::plan_redistribute(shape, mesh, from, to));
}
BENCHMARK(plan_on_three_axes)->Arg(16)->Arg(65536);

void plan_on_eight_axes(benchmark::State& state) {
  const dtensor::Layout from(
      {Shard(0), Shard(1), Shard(2), Shard(3), Shard(0), Shard(1), Shard(2), Shard(3)});
  const dtensor::Layout to(
      {Shard(1), Shard(2), Shard(3), Shard(0), Shard(1), Shard(2), Shard(3), Shard(0)});
  const std::vector<int> mesh(8, 2);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        dtensor::plan_redistribute({state.range(), 64, 64, 64}, mesh, from, to));
  }
}
BENCHMARK(plan_on_eight_axes)->Arg(16)->Arg(65536);

/// Every cut moves to the next dim, of a tensor of 256 GiB. @param state.range() ranks along each
/// of four axes
void plan_on_four_axes(benchmark::State& state) {
  const dtensor::Layout from({Shard(0), Shard(1), Shard(2), Shard(3)});
  const dtensor::Layout to({Shard(1), Shard(2), Shard(3), Shard(0)});
  const std::vector<int> mesh(4, static_cast<int>(state.range()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(dtensor::plan_redistribute({4096, 4096, 64, 64}, mesh, from, to));
  }
}
BENCHMARK(plan_on_four_axes)->Arg(8)->Arg(16);

/// The same with all that explain() tells: what every rank sends, and the other ways.
void explanation_on_four_axes(benchmark::State& state) {
  dtensor::PlanQuestion question{.shape = {4096, 4096, 64, 64},
                                 .mesh_shape = std::vector<int>(4, static_cast<int>(state.range())),
                                 .from = dtensor::Layout({Shard(0), Shard(1), Shard(2), Shard(3)}),
                                 .to = dtensor::Layout({Shard(1), Shard(2), Shard(3), Shard(0)})};
  for (auto _ : state) benchmark::DoNotOptimize(dtensor::explain_plan(question));
}
BENCHMARK(explanation_on_four_axes)->Arg(8)->Arg(16);

}  // namespace

int main(int argc, char** argv) {
  dtrun::dist::init_process_group();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  dtrun::dist::destroy_process_group();
}
