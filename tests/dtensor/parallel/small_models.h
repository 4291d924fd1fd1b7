// A small model for the tests of parallel training, and how it is compared with one rank's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor {

struct Block : nn::Module {
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(8));
  nn::Linear up = register_module("up", nn::Linear(8, 12));
  nn::Linear down = register_module("down", nn::Linear(12, 8));
  Tensor forward(const Tensor& x) override { return x + down(gelu(up(norm(x)))); }
};

/// Tokens [samples, 4] to class scores [samples, 4, 5].
struct Reader : nn::Module {
  nn::Embedding table = register_module("table", nn::Embedding(11, 8));
  nn::ModuleList blocks = register_module(
      "blocks", nn::ModuleList(std::make_shared<Block>(), std::make_shared<Block>()));
  nn::Linear head = register_module("head", nn::Linear(8, 5, {.bias = false}));
  Tensor forward(const Tensor& tokens) override {
    Tensor x = table(tokens);
    for (nn::Module& block : *blocks) x = block(x);
    return head(x);
  }
};

inline std::shared_ptr<Reader> made_reader(std::uint64_t seed = 21) {
  manual_seed(seed);
  auto reader = std::make_shared<Reader>();
  reader->to(tensors::DType::f64);
  return reader;
}

/// The same numbers, of which a gradient is wanted.
inline Tensor leaf(const Tensor& numbers) {
  return numbers.detach().clone().requires_grad_();
}

inline Tensor made_tokens(std::int64_t samples) {
  return randint(0, 11, {samples, 4}, tensors::RandomKey{.seed = 4});
}
inline Tensor made_targets(std::int64_t samples) {
  return randint(0, 5, {samples * 4}, tensors::RandomKey{.seed = 5});
}

/// Of `count` samples from `first` on. The mean over ranks of equal parts is that over all samples.
inline Tensor loss_of(nn::Module& model, std::int64_t first, std::int64_t count) {
  const Tensor scores = model(made_tokens(12).narrow(0, first, count));
  return cross_entropy(scores.reshape({count * 4, 5}),
                       made_targets(12).narrow(0, first * 4, count * 4));
}
inline Tensor part_of_loss(nn::Module& model, const ProcessGroup& group) {
  const std::int64_t count = 12 / group.size();
  return loss_of(model, group.rank() * count, count);
}

inline void expect_near(const Tensor& found, const Tensor& expected, const std::string& name,
                        double tolerance = 1e-12) {
  ASSERT_EQ(found.defined(), expected.defined()) << name;
  if (!found.defined()) return;
  const std::vector<double> numbers = found.to_vector(), others = expected.to_vector();
  ASSERT_EQ(numbers.size(), others.size()) << name;
  for (std::size_t n = 0; n < numbers.size(); ++n)
    EXPECT_NEAR(numbers[n], others[n], tolerance) << name;
}

inline void expect_gradients(const nn::Module& found, const nn::Module& expected,
                             double tolerance = 1e-12) {
  const auto parameters = found.named_parameters(), others = expected.named_parameters();
  ASSERT_EQ(parameters.size(), others.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_near(parameters[i].second.grad(), others[i].second.grad(), parameters[i].first,
                tolerance);
  }
}

}  // namespace dtrun::dtensor
