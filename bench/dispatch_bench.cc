// What the library itself costs around the work: a small operation, a layout, a plan. Google
// Benchmark's options apply.
//
//     dispatch_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include "dtrun/dtensor/redistribute_plan.h"
#include "dtrun/dtensor/shard_layout.h"
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

void box_of_a_rank(benchmark::State& state) {
  const dtensor::Placements placements = {Shard(0), Shard(1)};
  for (auto _ : state)
    benchmark::DoNotOptimize(dtensor::local_box({1000, 1001}, {4, 2}, {3, 1}, placements));
}
BENCHMARK(box_of_a_rank);

void plan_on_two_axes(benchmark::State& state) {
  const dtensor::Layout from{{Shard(0), Shard(1)}, {{0, {0}}, {1, {1}}}};
  const dtensor::Layout to{{Shard(1), Replicate()}, {{1, {0}}}};
  for (auto _ : state)
    benchmark::DoNotOptimize(dtensor::plan_redistribute({1000, 1001}, {4, 2}, from, to));
}
BENCHMARK(plan_on_two_axes);

}  // namespace

BENCHMARK_MAIN();
