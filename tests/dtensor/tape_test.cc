// The tape over many steps and on a mesh: its memory, its order, what it refuses.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/tensor/host_memory.h"
#include "support/heap_bytes.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

/// A training step with products, rows, views, a hook, a recomputation, and writes in place.
void take_step(const Tensor& x, const Tensor& weight) {
  const Tensor y = matmul(x, weight);
  y.register_hook([](const Tensor& gradient) { return gradient * 0.5; });
  const Tensor z = checkpoint([](const Tensor& in) { return tanh(in) * in; }, y);
  const Tensor changed = z * 2.0;
  changed.add_(x.narrow(1, 0, 3));
  (softmax(changed, 1) * y.t().t()).square().mean().backward();
  const NoGrad no_grad;
  weight.sub_(weight.grad() * 1e-3);
  weight.set_grad({});
}

constexpr int kSteps = 1000 / static_cast<int>(testing_support::one_in(10));
/// Forty bytes a step would be as many. The caches of the threads, which free what others have
/// allocated, may hold some more or less.
constexpr std::int64_t kMostGrowth = 40 * kSteps;

/// @param between_steps runs what it is given while nothing else does
void expect_flat(const std::function<void()>& step,
                 const std::function<void(const std::function<void()>&)>& between_steps) {
  std::unique_ptr<tensors::HostMemoryMeter> meter;
  std::int64_t before = 0;
  for (int i = 0; i < kSteps / 5; ++i) step();
  between_steps([&] {
    meter = std::make_unique<tensors::HostMemoryMeter>();
    before = testing_support::heap_bytes();
  });
  for (int i = 0; i < kSteps; ++i) step();
  between_steps([&] {
    const std::int64_t growth = testing_support::heap_bytes() - before;
    std::printf("%d steps: %lld bytes of heap more\n", kSteps, static_cast<long long>(growth));
    EXPECT_LT(growth, kMostGrowth);
    EXPECT_TRUE(meter->counts());
    EXPECT_EQ(meter->now(), 0) << "bytes of tensors";
    EXPECT_GT(meter->peak(), 0);
    meter.reset();
  });
}

TEST(TapeTest, AThousandStepsLeaveTheMemoryAsItWas) {
  const Tensor x = randn({6, 4}, {1}, kDoubles);
  const Tensor weight = randn({4, 3}, {2}, kDoubles).requires_grad_();
  const std::uint32_t owners = weight.local().storage()->owners();
  expect_flat([&] { take_step(x, weight); }, [](const auto& measure) { measure(); });
  EXPECT_EQ(weight.local().storage()->owners(), owners);
}

TEST(TapeTest, AThousandStepsOnAMeshLeaveTheMemoryAsItWas) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto placed = [&](const Tensor& whole, const Placement& placement) {
      return distribute_tensor(whole, mesh, {placement}, {.source_rank = -1});
    };
    const Tensor x = placed(randn({6, 4}, {1}, kDoubles), Shard(0));
    const Tensor weight = placed(randn({4, 3}, {2}, kDoubles), Shard(0)).requires_grad_();
    expect_flat([&] { take_step(x, weight); },
                [&](const auto& measure) {
                  group.barrier();
                  if (group.rank() == 0) measure();
                  group.barrier();
                });
  });
}

/// Two branches that do not depend on each other, joined in either order.
std::string order_of_hooks(const Tensor& x, bool swapped) {
  std::string order;
  const Tensor earlier = x * 2.0, later = x * 3.0;
  earlier.register_hook([&](const Tensor&) { return order += "earlier ", Tensor(); });
  later.register_hook([&](const Tensor&) { return order += "later ", Tensor(); });
  (swapped ? later + earlier : earlier + later).sum().backward();
  return order;
}

/// A branch of two calls around one that is made between them.
std::string order_of_long_branch(const Tensor& x, bool swapped) {
  std::string order;
  const auto tell = [&order](const Tensor& tensor, const char* name) {
    tensor.register_hook([&order, name](const Tensor&) { return order += name, Tensor(); });
  };
  const Tensor first = x * 2.0, second = x * 3.0, third = exp(first);
  tell(first, "1");
  tell(second, "2");
  tell(third, "3");
  (swapped ? third * second : second * third).sum().backward();
  return order;
}

TEST(TapeTest, WhatWasMadeLaterIsGoneBackThroughFirst) {
  const auto expect_order = [](const Tensor& x) {
    for (const bool swapped : {false, true}) {
      EXPECT_EQ(order_of_hooks(x, swapped), "later earlier ") << swapped;
      EXPECT_EQ(order_of_long_branch(x, swapped), "321") << swapped;
    }
  };
  expect_order(ones({4}, kDoubles).requires_grad_());
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    expect_order(ones({4}, mesh, {Shard(0)}, DType::f64).requires_grad_());
  });
}

TEST(TapeTest, AGraphOnAMeshIsGoneThroughOnceUnlessItIsRetained) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({4}, mesh, {Shard(0)}, DType::f64).requires_grad_();
    const Tensor y = (x * x).sum();
    y.backward({.retain_graph = true});
    EXPECT_EQ(x.grad().to_vector(), (Values{2, 2, 2, 2}));
    y.backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{4, 4, 4, 4}));
    expect_refused([&] { y.backward(); }, "a second time");
    EXPECT_EQ(x.grad().to_vector(), (Values{4, 4, 4, 4}));
  });
}

TEST(TapeTest, WhatAGradientOnAMeshNeedsMayNotChangeInPlace) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    // Kept as it lies, and as it came from the other rank.
    for (const Placement& other : {Shard(0), Replicate()}) {
      const Tensor x = ones({4, 2}, mesh, {Shard(0)}, DType::f64).requires_grad_();
      const Tensor y = x * 3.0;
      const Tensor weight = ones({4, 2}, mesh, {other}, DType::f64);
      const Tensor fine = (y * weight).sum(), stale = (y * y * weight).sum();
      {
        const NoGrad no_grad;
        y.mul_(2.0);
      }
      fine.backward();  // needs the weight alone
      expect_refused([&] { stale.backward(); },
                     "the gradient of mul needs a tensor of f64[4, 2] on (2): [S(0)] that was "
                     "changed in place");
      EXPECT_EQ(x.grad().to_vector(), Values(8, 3));
    }
  });
}

}  // namespace
}  // namespace dtrun::dtensor
