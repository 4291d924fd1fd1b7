// Whole trainings: what is saved in the middle goes on as if nothing had been, on the same ranks
// and on others.
#include "dtrun/dtensor/checkpoint/state.h"

#include <gtest/gtest.h>

#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/grad_scaler.h"
#include "dtrun/dtensor/optim/moving_average.h"
#include "dtrun/dtensor/optim/muon.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;

nn::Sequential made_model() {
  nn::Sequential model;
  model->push_back(nn::Linear(6, 5));
  model->push_back(nn::Linear(5, 4, {.bias = false}));
  return model;
}

/// A model, its optimizer and all that belongs to a training.
template <typename Optimizer>
struct Training {
  explicit Training(const std::function<void(nn::Module&)>& parallelize = {})
      : model((manual_seed(3), made_model())),
        set(std::make_shared<data::TensorDataset>(
            Tensors{randn({12, 6}, RandomKey{1, 2}, {.dtype = DType::f32})})),
        loader(set, {.batch_size = 4, .seed = 2}) {
    if (parallelize) parallelize(*model);
    optimizer = std::make_unique<Optimizer>(weights());
    schedule = std::make_unique<optim::CosineAnnealingLR>(*optimizer, 10);
  }
  /// Muon takes matrices only.
  Tensors weights() const {
    Tensors all;
    for (const auto& [name, tensor] : model->named_parameters()) {
      if (name.ends_with("weight")) all.push_back(tensor);
    }
    return all;
  }
  State state() {
    return {{"model", model}, {"optimizer", *optimizer},  {"schedule", *schedule},
            {"data", loader}, {"random", ThreadRandom()}, {"steps", steps}};
  }
  void step() {
    const Tensor x = loader.next()[0];
    const Tensor noise = uniform(x.shape(), next_random_key());
    (model(x + noise) * model(x)).sum().backward();
    optimizer->step();
    optimizer->zero_grad();
    schedule->step();
    ++steps;
  }
  static Tensor uniform(const Shape& shape, RandomKey key) {
    return randn(shape, key, {.dtype = DType::f32});
  }
  std::vector<double> numbers() const {
    std::vector<double> all;
    for (const Tensor& parameter : model->parameters()) {
      const Tensor whole =
          parameter.is_distributed() ? parameter.detach().full_tensor() : parameter.detach();
      for (const double number : whole.to_vector()) all.push_back(number);
    }
    return all;
  }

  const nn::Sequential model;
  const std::shared_ptr<data::TensorDataset> set;
  data::DataLoader loader;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<optim::CosineAnnealingLR> schedule;
  std::int64_t steps = 0;
};

struct Momentum : optim::SGD {
  explicit Momentum(const Tensors& parameters) : SGD(parameters, {.lr = 0.01, .momentum = 0.9}) {}
};

template <typename Optimizer>
class StateTest : public testing::Test {};
using Optimizers = testing::Types<optim::SGD, Momentum, optim::Adam, optim::AdamW, optim::Muon>;
TYPED_TEST_SUITE(StateTest, Optimizers);

TYPED_TEST(StateTest, ATrainingGoesOnBitByBit) {
  const OwnFolder own;
  Training<TypeParam> undisturbed;
  for (int i = 0; i < 4; ++i) undisturbed.step();
  save(own / "a", undisturbed.state());
  for (int i = 0; i < 4; ++i) undisturbed.step();
  Training<TypeParam> resumed;
  set_random_state({77, 5});
  load(own / "a", resumed.state());
  EXPECT_EQ(resumed.steps, 4);
  for (int i = 0; i < 4; ++i) resumed.step();
  EXPECT_EQ(resumed.numbers(), undisturbed.numbers());
  EXPECT_EQ(resumed.optimizer->lr(), undisturbed.optimizer->lr());
}

TYPED_TEST(StateTest, ATrainingGoesOnWithMoreRanksAndFewer) {
  const OwnFolder own;
  Training<TypeParam> alone;
  for (int i = 0; i < 4; ++i) alone.step();
  std::mutex mutex;
  // 2 ranks save, 3 go on and save, 1 goes on.
  const auto run = [&](const ProcessGroup& group, const std::string& from, const std::string& to) {
    const DeviceMesh mesh(group, {group.size()});
    Training<TypeParam> training(
        [&](nn::Module& model) { fully_shard(model, mesh, {.units = {"*"}}); });
    if (!from.empty()) load(from, training.state(), {.group = group});
    training.step();
    if (!to.empty()) save(to, training.state(), {.group = group});
  };
  test::run_ranks(2, [&](const ProcessGroup& group) { run(group, "", own / "1"); });
  test::run_ranks(3, [&](const ProcessGroup& group) { run(group, own / "1", own / "2"); });
  test::run_ranks(2, [&](const ProcessGroup& group) { run(group, own / "2", own / "3"); });
  Training<TypeParam> last;
  load(own / "3", last.state());
  last.step();
  const std::vector<double> found = last.numbers(), expected = alone.numbers();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-5) << i;
}

TEST(StatePartsTest, OptimizersNameTheirStatesByTheModulesNames) {
  const OwnFolder own;
  Training<optim::Adam> training;
  training.step();
  save(own / "a", training.state());
  const std::string manifest = content_of(own / "a/manifest.json");
  EXPECT_NE(manifest.find("\"optimizer.state.model.1.weight.exp_avg\""), std::string::npos);
  EXPECT_EQ(manifest.find("\"optimizer.state.1."), std::string::npos);
  // Without the module, by numbers; and one does not fit the other.
  save(own / "b", {{"optimizer", *training.optimizer}});
  EXPECT_NE(content_of(own / "b/manifest.json").find("\"optimizer.state.1.exp_avg\""),
            std::string::npos);
  load(own / "b", {{"optimizer", *training.optimizer}});
  expect_refused(
      [&] {
        load(own / "a", {{"optimizer", *training.optimizer}});
      },
      "lacks optimizer.state.0.step");
}

TEST(StatePartsTest, ScalersAveragesAndOwnPartsAreKept) {
  struct Counted : Stateful {
    Saved saved(const NamedTensors&) const override { return {.values = {{"count", count}}}; }
    nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
      return {};
    }
    void restore(const Loaded& loaded) override {
      count = std::get<std::int64_t>(loaded.values.at("count"));
    }
    std::int64_t count = 3;
  };
  const OwnFolder own;
  const nn::Sequential model = made_model();
  optim::ExponentialMovingAverage average(*model, 0.5);
  average.update();
  optim::GradScaler scaler({.init_scale = 128}), other;
  Counted counted;
  save(own / "a", {{"average", average}, {"scaler", scaler}, {"counted", counted}});
  counted.count = 0;
  optim::ExponentialMovingAverage fresh(*made_model(), 0.5);
  load(own / "a", {{"average", fresh}, {"scaler", other}, {"counted", counted}});
  EXPECT_EQ(counted.count, 3);
  EXPECT_EQ(other.get_scale(), 128);
  EXPECT_EQ(fresh.state_dict().at("0.weight").to_vector(),
            average.state_dict().at("0.weight").to_vector());
}

TEST(StatePartsTest, RandomStateIsEachRanksOwnAgainOrGoesOnAfterTheFirst) {
  const OwnFolder own;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const auto rank = static_cast<std::uint64_t>(group.rank());
    set_random_state({~rank, 10 + rank});
    save(own / "a", {{"random", ThreadRandom()}}, {.group = group});
    set_random_state({});
    load(own / "a", {{"random", ThreadRandom()}}, {.group = group});
    EXPECT_EQ(random_state(), (RandomState{~rank, 10 + rank}));
  });
  const RandomScope scope(RandomState{99, 1});
  load(own / "a", {{"random", ThreadRandom()}});
  EXPECT_EQ(random_state(), (RandomState{99, 10}));
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
