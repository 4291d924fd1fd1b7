#include "dtensor/factory_samples.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"

namespace dtrun::dtensor {
namespace {

using tensors::TensorOptions;

const Shape kMatrix = {6, 4};

/// Of a matrix of that dtype, whose numbers do not count.
FactorySample like(const char* name, const std::function<Tensor(const Tensor&)>& make) {
  return {name, [make](TensorOptions o) { return make(zeros(kMatrix, o)); },
          [make](const DeviceMesh& mesh, const Placements& placements) {
            return make(zeros(kMatrix, mesh, placements));
          }};
}

std::vector<FactorySample> filled() {
  return {
      {"zeros", [](TensorOptions o) { return zeros(kMatrix, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return zeros(kMatrix, mesh, p); }},
      {"ones", [](TensorOptions o) { return ones(kMatrix, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return ones(kMatrix, mesh, p); }},
      {"full", [](TensorOptions o) { return full(kMatrix, 3, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return full(kMatrix, 3, mesh, p); }},
      {"empty", [](TensorOptions o) { return empty(kMatrix, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return empty(kMatrix, mesh, p); },
       DType::f32, false},
      {"arange", [](TensorOptions o) { return arange(6, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return arange(6, mesh, p); }, DType::i64},
      {"linspace", [](TensorOptions o) { return linspace(0, 1, 6, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return linspace(0, 1, 6, mesh, p); }},
      {"eye", [](TensorOptions o) { return eye(6, 4, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return eye(6, 4, mesh, p); }}};
}

std::vector<FactorySample> drawn() {
  return {
      {"rand", [](TensorOptions o) { return rand(kMatrix, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return rand(kMatrix, mesh, p); }},
      {"randn", [](TensorOptions o) { return randn(kMatrix, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return randn(kMatrix, mesh, p); }},
      {"randint", [](TensorOptions o) { return randint(0, 2, kMatrix, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return randint(0, 2, kMatrix, mesh, p); },
       DType::i64},
      {"randperm", [](TensorOptions o) { return randperm(6, o); },
       [](const DeviceMesh& mesh, const Placements& p) { return randperm(6, mesh, p); },
       DType::i64}};
}

Tensor with_state(const std::function<Tensor()>& make) {
  const RandomScope scope({});
  return make();
}

bool are_alike(const FactorySample& factory, const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (!factory.is_filled || a.to_vector() == b.to_vector());
}

}  // namespace

std::vector<FactorySample> factory_samples() {
  std::vector<FactorySample> all = filled();
  const std::vector<FactorySample> random = drawn();
  all.insert(all.end(), random.begin(), random.end());
  all.push_back(like("zeros_like", zeros_like));
  all.push_back(like("ones_like", ones_like));
  all.push_back(like("full_like", [](const Tensor& a) { return full_like(a, 3); }));
  all.push_back(like("empty_like", empty_like));
  all.back().is_filled = false;
  all.push_back(like("rand_like", rand_like));
  all.push_back(like("randn_like", randn_like));
  all.push_back(like("randint_like", [](const Tensor& a) { return randint_like(a, 0, 2); }));
  return all;
}

std::string placements_of(const FactorySample& factory, const DeviceMesh& mesh) {
  const Tensor expected = with_state([&] { return factory.local({.dtype = factory.dtype}); });
  std::vector<Placement> ways = {Replicate(), Partial()};
  for (int dim = expected.dim(); dim-- > 0;) ways.insert(ways.begin(), Shard(dim));
  std::string text;
  for (const Placement& way : ways) {
    const CommCounter counter;
    const Tensor made = with_state([&] { return factory.on_mesh(mesh, {way}); });
    EXPECT_EQ(counter.get_total_counts(), 0) << factory.name << " " << way.to_string();
    EXPECT_TRUE(are_alike(factory, made.full_tensor(), expected))
        << factory.name << " " << way.to_string();
    text += (text.empty() ? "" : ", ") + way.to_string();
    // The likeness of a Partial tensor is whole.
    if (made.placements()[0] != way) text += " (makes " + made.placements()[0].to_string() + ")";
  }
  return text;
}

std::string devices_of(const FactorySample& factory) {
  constexpr tensors::Device kGpu{tensors::DeviceType::cuda, 0};
  const Tensor expected = with_state([&] { return factory.local({.dtype = factory.dtype}); });
  const Tensor made =
      with_state([&] { return factory.local({.dtype = factory.dtype, .device = kGpu}); });
  EXPECT_EQ(made.device(), kGpu) << factory.name;
  EXPECT_TRUE(are_alike(factory, made.to(tensors::kCpu), expected)) << factory.name;
  return "cpu, cuda";
}

}  // namespace dtrun::dtensor
