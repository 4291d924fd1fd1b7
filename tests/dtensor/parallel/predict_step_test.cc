// predict_step: the memory of a step without its numbers is that of the step; nothing is changed.
#include "dtrun/dtensor/parallel/predict_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>

#include "dtensor/parallel/small_models.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/explain_step.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "dtrun/tensor/ops/reduction.h"
#include "dtrun/tensor/shapes_only.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

/// Large enough for its loops to be left out.
struct WideNet : nn::Module {
  nn::Embedding table = register_module("table", nn::Embedding(64, 256));
  nn::Linear up = register_module("up", nn::Linear(256, 1024));
  nn::Linear down = register_module("down", nn::Linear(1024, 256));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(256));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(0.1));
  Tensor forward(const Tensor& tokens) override {
    const Tensor x = table(tokens);
    return norm(x + dropout(down(gelu(up(x)))));
  }
};

void pass_of(nn::Module& model, std::int64_t rows) {
  const Tensor tokens = randint(0, 64, {rows, 8}, tensors::RandomKey{.seed = 4});
  mean(square(model(tokens))).backward();
}

/// In a forked rank an EXPECT is not heard.
void require(bool holds, const std::string& what, std::int64_t predicted, std::int64_t measured) {
  if (holds) return;
  throw std::runtime_error(what + ": predicted " + std::to_string(predicted) + ", measured " +
                           std::to_string(measured));
}

/// Two steps, then a third one predicted and measured.
void compare(nn::Module& model, optim::Optimizer& optimizer, std::int64_t rows) {
  const auto pass = [&] { pass_of(model, rows); };
  const auto step = [&] {
    pass();
    optimizer.step();
    optimizer.zero_grad();
  };
  for (int i = 0; i < 2; ++i) step();
  const StepMemory predicted = predict_step(model, optimizer, pass);
  const StepMemory measured = explain_step(model, optimizer, step, predicted).memory;
  for (const auto& [what, which] : {std::pair{"parameters", &StepMemory::parameters},
                                    {"gradients", &StepMemory::gradients},
                                    {"states", &StepMemory::states},
                                    {"the largest gather", &StepMemory::gathered},
                                    {"activations", &StepMemory::activations}})
    require(predicted.*which == measured.*which, what, predicted.*which, measured.*which);
  require(predicted.activations > rows * 8 * 512 * 4, "more activations", predicted.activations, 0);
  const auto apart = static_cast<double>(std::abs(predicted.peak - measured.peak));
  require(apart <= 0.01 * static_cast<double>(measured.peak), "peak", predicted.peak,
          measured.peak);
}

struct PredictCase {
  const char* name;
  std::function<void(nn::Module&, const DeviceMesh&)> wrap;
  friend void PrintTo(const PredictCase& instance, std::ostream* out) { *out << instance.name; }
};

class PredictStepTest : public testing::TestWithParam<PredictCase> {};

TEST_P(PredictStepTest, IsWhatTheStepTakes) {
  const auto body = [](const ProcessGroup& group) {
    manual_seed(3);
    WideNet model;
    const DeviceMesh mesh(group, {2}, {"all"});
    GetParam().wrap(model, mesh);
    optim::AdamW optimizer(model.parameters());
    for (const std::int64_t rows : {64, 256}) compare(model, optimizer, rows);
  };
  test::RankProcesses ranks(2, {}, test::RankProcesses::Guard::none, body);
  for (const int rank : {0, 1}) {
    const auto ended = ranks.wait(rank);
    EXPECT_EQ(ended.status, 0) << rank;
    EXPECT_FALSE(ended.thrown) << rank << ": " << ended.thrown->text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, PredictStepTest,
    testing::Values(
        PredictCase{"plain", [](nn::Module&, const DeviceMesh&) {}},
        PredictCase{"data_parallel",
                    [](nn::Module& model, const DeviceMesh& mesh) { data_parallel(model, mesh); }},
        PredictCase{"fully_shard",
                    [](nn::Module& model, const DeviceMesh& mesh) {
                      fully_shard(model, mesh, {.units = {"up", "down"}});
                    }},
        PredictCase{"parallelize",
                    [](nn::Module& model, const DeviceMesh& mesh) {
                      parallelize(model, mesh, {{"up", Colwise()}, {"down", Rowwise()}});
                    }}),
    [](const auto& instance) { return std::string(instance.param.name); });

/// What a user's model may keep.
struct Counting : nn::Module {
  nn::Linear layer = register_module("layer", nn::Linear(4, 4));
  Tensor seen = register_buffer("seen", zeros({4}));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(0.5));
  Tensor forward(const Tensor& x) override {
    seen.add_(sum(x, {0}));
    return dropout(layer(x));
  }
};

TEST(PredictStepKeepsTest, GradientsBuffersAndRandomState) {
  manual_seed(5);
  Counting model;
  model.layer->bias.requires_grad_(false);
  const Tensor x = ones({3, 4});
  sum(model(x)).backward();
  const std::vector<double> seen = model.seen.to_vector();
  const std::vector<double> gradient = model.layer->weight.grad().to_vector();
  const RandomState random = random_state();
  optim::AdamW optimizer({model.layer->weight});
  const StepMemory memory = predict_step(model, optimizer, [&] { sum(model(x)).backward(); });
  EXPECT_EQ(memory.parameters, 20 * 4);
  EXPECT_EQ(memory.gradients, 16 * 4);
  EXPECT_EQ(memory.states, 2 * 16 * 4);
  EXPECT_EQ(model.seen.to_vector(), seen);
  EXPECT_EQ(model.layer->weight.grad().to_vector(), gradient);
  EXPECT_EQ(random_state(), random);
  EXPECT_FALSE(tensors::ShapesOnly::stands());
}

TEST(PredictStepKeepsTest, ParametersThatWereSetBefore) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    manual_seed(6);
    nn::Linear layer(512, 512);
    fully_shard(*layer, DeviceMesh(group, {2}, {"all"}));
    optim::AdamW optimizer(layer->parameters());
    const auto pass = [&] { sum((*layer)(ones({2, 512}))).backward(); };
    pass();
    layer->weight.set_data(full_like(layer->weight.detach(), 3));
    predict_step(*layer, optimizer, pass);
    EXPECT_EQ(layer->weight.detach().full_tensor().to_vector(), std::vector<double>(512 * 512, 3));
  });
}

/// Positions that are found in undefined numbers, and many.
TEST(PredictStepKeepsTest, IndicesAreInRange) {
  manual_seed(7);
  Counting model;
  optim::AdamW optimizer(model.parameters());
  predict_step(model, optimizer, [&] {
    const Tensor tokens = randint(0, 8, {50'000}) + full({}, 3, {.dtype = DType::i64});
    EXPECT_EQ(tensors::amax(tokens.local(), {0}).item(), 10);
    const Tensor rows = embedding(tokens, randn({11, 4}));
    const auto [values, places] = topk(rows, 2, 1);
    sum(model(rows) + sum(gather(rows, 1, places), {1}, true)).backward();
    EXPECT_LT(tensors::amax(places.local(), {0, 1}).item(), 4);
  });
}

TEST(PredictStepKeepsTest, ThePassMayNotReadNumbers) {
  Counting model;
  optim::AdamW optimizer(model.parameters());
  try {
    predict_step(model, optimizer, [&] { static_cast<void>(sum(model(ones({3, 4}))).item()); });
    ADD_FAILURE() << "it gave a number";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kUsage);
    EXPECT_EQ(error.summary(), "item() in a pass without numbers");
  }
  using Asks = void (*)(const Tensor&);
  for (const auto& [call, asks] :
       {std::pair<std::string, Asks>{"nonzero", [](const Tensor& x) { nonzero(x); }},
        {"nonzero", [](const Tensor& x) { nonzero(sum(x)); }},
        {"masked_select", [](const Tensor& x) { masked_select(x, gt(x, 0)); }},
        {"index", [](const Tensor& x) { index(x, {gt(x, 0)}); }},
        {"equal", [](const Tensor& x) { static_cast<void>(equal(x, x)); }}}) {
    try {
      predict_step(model, optimizer, [&, &asks = asks] { asks(ones({3})); });
      ADD_FAILURE() << call;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ErrorCode::kUsage);
      EXPECT_EQ(error.summary(), call + "() in a pass without numbers");
    }
  }
  EXPECT_FALSE(tensors::ShapesOnly::stands());
  EXPECT_EQ(ones({2}).to_vector(), (std::vector<double>{1, 1}));
}

TEST(ShapesOnlyTest, LeavesOutLargeLoopsButNotIndices) {
  const Tensor ten = full({1 << 20}, 10, {.dtype = DType::i64});
  const Tensor zero = zeros({1 << 20});
  Tensor numbers, indices;
  {
    const tensors::ShapesOnly shapes_only;
    zero.fill_(1);
    numbers = zero + 1;
    indices = ten.to(DType::i32).clone();
    const tensors::ShapesOnly again(false);
    EXPECT_EQ(sum(zero + 3).item(), 3.0 * (1 << 20));
  }
  EXPECT_EQ(numbers.shape(), (Shape{1 << 20}));
  EXPECT_EQ(sum(zero).item(), 0);
  EXPECT_EQ(sum(indices.to(DType::i64)).item(), 10.0 * (1 << 20));
}

}  // namespace
}  // namespace dtrun::dtensor
