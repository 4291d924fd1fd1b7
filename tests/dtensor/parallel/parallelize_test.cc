// parallelize: losses and gradients of one rank under every style, how often ranks talk, and plans
// that mean nothing.
#include "dtrun/dtensor/parallel/parallelize.h"

#include <gtest/gtest.h>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/ops/creation.h"
#include "parallel/module_names.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

double train(Reader& model) {
  const Tensor scores = model(made_tokens(3)).reshape({12, 5});
  const Tensor loss = scores.is_distributed() ? loss_parallel(scores, made_targets(3))
                                              : cross_entropy(scores, made_targets(3));
  loss.backward();
  return loss.item();
}

const ParallelPlan& block_plan() {
  static const ParallelPlan kPlan = {{"blocks.*.up", Colwise()}, {"blocks.*.down", Rowwise()}};
  return kPlan;
}

TEST(ParallelizeTest, ColumnsThenRowsGiveOneRanksGradientsForOneSumEachWay) {
  const auto whole = made_reader();
  const double expected = train(*whole);
  for (const int ranks : {2, 3, 4}) {
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"tp"});
      const auto model = made_reader();
      const Tensors before = model->parameters();
      parallelize(*model, mesh, block_plan());
      EXPECT_TRUE(same(before[3], model->get_parameter("blocks.0.up.weight")));
      EXPECT_EQ(model->get_parameter("blocks.0.up.weight").placements(), Placements{Shard(0)});
      EXPECT_EQ(model->get_parameter("blocks.1.down.weight").placements(), Placements{Shard(1)});
      EXPECT_FALSE(model->get_parameter("head.weight").is_distributed());
      const CommCounter counter;
      EXPECT_NEAR(train(*model), expected, 1e-12);
      EXPECT_EQ(counter.get_comm_counts(),
                (std::map<std::string, std::int64_t>{{"all_reduce", 4}}));
      expect_gradients(*model, *whole);
    });
  }
}

TEST(ParallelizeTest, ACutTableAndScoresCutByClassGiveOneRanksGradients) {
  const auto whole = made_reader();
  const double expected = train(*whole);
  for (const auto& table : {Rowwise(), Colwise({.output = Replicate()})}) {
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2}, {"tp"});
      const auto model = made_reader();
      ParallelPlan plan = block_plan();
      plan.emplace_back("table", table);
      plan.emplace_back("head", Colwise({.result = Result::distributed}));
      parallelize(*model, mesh, plan);
      const Tensor scores = (*model)(made_tokens(3));
      EXPECT_EQ(scores.placements(), Placements{Shard(2)});
      EXPECT_NEAR(train(*model), expected, 1e-12);
      expect_gradients(*model, *whole);
    });
  }
}

TEST(ParallelizeTest, LossesOfScoresThatAreCutByClassAreThoseOfTheWhole) {
  std::vector<LossOptions> kinds(6);
  kinds[1].label_smoothing = 0.1;
  kinds[2].weight = rand({5}, tensors::RandomKey{.seed = 6}).to(tensors::DType::f64) + 0.5;
  kinds[3].ignore_index = 2;
  kinds[4].reduction = Reduction::sum;
  kinds[5].reduction = Reduction::none;
  const Tensor scores = randn({6, 5}, tensors::RandomKey{.seed = 4}).to(tensors::DType::f64);
  const Tensor targets = randint(0, 5, {6}, tensors::RandomKey{.seed = 5});
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string name = "kind " + std::to_string(kind);
    const Tensor plain = scores.clone().requires_grad_();
    const Tensor expected = cross_entropy(plain, targets, kinds[kind]);
    sum(expected).backward();
    for (const int ranks : {2, 4}) {  // 4: one rank has no class
      test::run_ranks(ranks, [&](const ProcessGroup& group) {
        const DeviceMesh mesh(group, {ranks}, {"tp"});
        const Tensor cut = distribute_tensor(scores, mesh, {Shard(1)}).requires_grad_();
        const Tensor loss = loss_parallel(cut, targets, kinds[kind]);
        EXPECT_FALSE(loss.is_distributed());
        expect_near(loss.detach(), expected.detach(), name);
        sum(loss).backward();
        expect_near(cut.grad(), plain.grad(), name);
      });
    }
  }
}

TEST(ParallelizeTest, ASequenceThatIsCutGivesOneRanksGradients) {
  const auto whole = made_reader();
  const double expected = train(*whole);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made_reader();
    parallelize(*model, mesh,
                {{"table", Rowwise({.output = Shard(1)})},
                 {"**.norm", Sequence()},
                 {"**.up", Colwise({.input = Shard(1)})},
                 {"**.down", Rowwise({.output = Shard(1)})},
                 {"head", Colwise({.input = Shard(1), .output = Replicate()})}});
    EXPECT_NEAR(train(*model), expected, 1e-12);
    expect_gradients(*model, *whole);
  });
}

TEST(ParallelizeTest, FeaturesNeedNotBeAMultipleOfTheRanks) {
  struct Uneven : nn::Module {
    nn::Linear up = register_module("up", nn::Linear(3, 5));
    nn::Linear down = register_module("down", nn::Linear(5, 3));
    Tensor forward(const Tensor& x) override { return down(gelu(up(x))); }
  };
  const auto made = [] {
    manual_seed(6);
    const auto model = std::make_shared<Uneven>();
    model->to(tensors::DType::f64);
    return model;
  };
  const Tensor x = randn({4, 3}, tensors::RandomKey{.seed = 8}).to(tensors::DType::f64);
  const auto whole = made();
  mean(square((*whole)(x))).backward();
  for (const int ranks : {2, 3, 4}) {  // 4: one rank has none
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"tp"});
      const auto model = made();
      parallelize(*model, mesh, {{"up", Colwise()}, {"down", Rowwise()}});
      mean(square((*model)(x))).backward();
      expect_gradients(*model, *whole);
    });
  }
}

TEST(ParallelizeTest, ACallWithoutTensorsIsTheModulesOwnError) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const nn::Linear layer(4, 4);
    parallelize(*layer, mesh, {{"", Colwise()}});
    expect_refused([&] { layer->call({}); }, "Linear was called with 0 tensors");
  });
}

TEST(ParallelizeTest, InputsAndOutputsArePreparedOfAnyModule) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    nn::Sequential model{nn::ReLU()};
    parallelize(*model, mesh,
                {{"0", PrepareInputOutput({.given = {Shard(0)}, .wanted = {Shard(1)}},
                                          {.given = {Shard(1)}, .wanted = {Replicate()}})}});
    const Tensor part = full({1, 4}, group.rank() + 1);
    part.requires_grad_();
    const Tensor out = model(part);
    EXPECT_FALSE(out.is_distributed());
    EXPECT_EQ(out.to_vector(), (std::vector<double>{1, 1, 1, 1, 2, 2, 2, 2}));
    sum(out * out).backward();
    EXPECT_EQ(part.grad().to_vector(), std::vector<double>(4, 2.0 * (group.rank() + 1)));
  });
}

TEST(ParallelizeTest, AStyleOfOnesOwnIsApplied) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made_reader();
    parallelize(
        *model, mesh,
        {{"head", ParallelStyle("ByRows", [](const std::string& path, nn::Module& module,
                                             const DeviceMesh& on, const Tensor::Site& site) {
            EXPECT_EQ(path, "head");
            module.distribute_parameter("weight", on, {Shard(1)}, site);
          })}});
    EXPECT_EQ(model->head->weight.placements(), Placements{Shard(1)});
  });
}

TEST(ParallelizeTest, APlanThatMeansNothingIsRefusedAndChangesNothing) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"}), box(group, {1, 2}, {"dp", "tp"});
    const auto model = made_reader();
    const auto refused = [&](const ParallelPlan& plan, const DeviceMesh& on, const char* what,
                             base::ErrorCode code = base::ErrorCode::kInvalidArgument) {
      expect_refused([&] { parallelize(*model, on, plan); }, what, code);
    };
    refused({{"head", Colwise()}, {"block.*", Colwise()}}, mesh, "no module matches \"block.*\"",
            base::ErrorCode::kNotFound);
    refused({{"**.up", Colwise()}, {"blocks.0.*", Sequence()}}, mesh,
            "two styles for \"blocks.0.up\": Colwise by \"**.up\" and Sequence by \"blocks.0.*\"");
    refused({{"head", Colwise()}, {"**.norm", Rowwise()}}, mesh,
            "Rowwise of \"blocks.0.norm\", which is LayerNorm");
    refused(block_plan(), box, "which has 2 axes");
    expect_refused([] { PrepareInput({.given = {Shard(0)}, .wanted = {}}); },
                   "1 placements given and 0 wanted");
    for (const Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.is_distributed());
  });
}

/// The head is the table.
struct TiedHead : nn::Module {
  nn::Linear first = register_module("first", nn::Linear(8, 8));
  nn::Embedding table = register_module("table", nn::Embedding(5, 8));
  nn::Linear head = register_module("head", nn::Linear(table->weight));
  Tensor forward(const Tensor& tokens) override { return head(first(table(tokens))); }
};
std::shared_ptr<TiedHead> made_tied() {
  manual_seed(8);
  auto model = std::make_shared<TiedHead>();
  model->to(tensors::DType::f64);
  return model;
}

TEST(ParallelizeTest, TwoLayoutsOfOneParameterAreNamedAndNothingIsChanged) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made_tied();
    const auto refused = [&](const ParallelPlan& plan, std::initializer_list<const char*> words) {
      expect_refused([&] { parallelize(*model, mesh, plan); }, words);
    };
    const ParallelStyle columns = Colwise();
    refused({{"first", columns}, {"table", columns}, {"head", columns}},
            {"two layouts for one parameter: Colwise makes \"table.weight\" S(1), Colwise makes "
             "\"head.weight\" S(0)",
             "they are one tensor"});
    const ParallelStyle own(
        "ByRows", [](const auto&, auto&, const auto&, const auto&) { FAIL(); },
        [](nn::Module&, const std::string&) { return Shard(1); });
    refused({{"table", Rowwise()}, {"head", own}},
            {"Rowwise makes \"table.weight\" S(0), ByRows makes \"head.weight\" S(1)"});
    for (const Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.is_distributed());
    // By one call after the other.
    parallelize(*model, mesh, {{"table", Rowwise()}});
    refused({{"first", columns}, {"head", Rowwise()}},
            {"already, Rowwise makes \"head.weight\" S(1)"});
    EXPECT_FALSE(model->first->weight.is_distributed());
  });
}

TEST(ParallelizeTest, ATableThatIsAlsoTheHeadIsCutOnce) {
  const auto trained = [](TiedHead& model) {
    const Tensor tokens = made_targets(3).view({3, 4});
    const Tensor scores = model(tokens);
    const Tensor loss = cross_entropy(scores.reshape({12, 5}), made_targets(3));
    loss.backward();
    return loss.item();
  };
  const auto whole = made_tied();
  const double expected = trained(*whole);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made_tied();
    parallelize(*model, mesh, {{"table", Rowwise()}, {"head", Colwise({.output = Replicate()})}});
    EXPECT_TRUE(same(model->table->weight, model->head->weight));
    EXPECT_EQ(model->head->weight.placements(), Placements{Shard(0)});
    EXPECT_NEAR(trained(*model), expected, 1e-12);
    expect_gradients(*model, *whole);
  });
}

TEST(ParallelizeTest, ModulesThatDifferAreNamedOnAllRanks) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    // The pattern means nothing on one of the ranks: neither waits for the other.
    nn::Sequential layers{nn::Linear(2, 2)};
    if (group.rank() == 0) layers->push_back(nn::Linear(2, 3, {.bias = false}));
    expect_refused(
        [&] {
          parallelize(*layers, mesh, {{"1", Colwise()}});
        },
        "rank 0 has parameter \"1.weight\", f32[3, 2]; rank 1 has no more",
        base::ErrorCode::kDisagreement);
  });
}

TEST(ParallelizeTest, PlansThatDifferAreNamedOnAllRanks) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made_reader();
    ParallelPlan plan = block_plan();
    if (group.rank() == 1) plan[1].second = Sequence();
    const auto cut = [&] { parallelize(*model, mesh, plan); };
    expect_refused(cut,
                   "rank 0 has the style Rowwise for \"blocks.*.down\"; rank 1 has the style "
                   "Sequence for \"blocks.*.down\"",
                   base::ErrorCode::kDisagreement);
    if (group.rank() == 1) plan.pop_back();
    expect_refused(cut, "rank 1 has no more", base::ErrorCode::kDisagreement);
    for (const Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.is_distributed());
  });
}

TEST(ModuleNamesTest, StarsStandForPartsOfANameAndTwoForAnyNumberOfNames) {
  EXPECT_TRUE(matches("blocks.*.up", "blocks.0.up"));
  EXPECT_FALSE(matches("blocks.*", "blocks.0.up"));
  EXPECT_TRUE(matches("layer[12]", "layer2"));
  EXPECT_FALSE(matches("layer[12]", "layer3"));
  EXPECT_TRUE(matches("**.up", "up"));
  EXPECT_TRUE(matches("**.up", "a.b.up"));
  EXPECT_TRUE(matches("a.**", "a"));
  EXPECT_FALSE(matches("a.**.c", "a.b"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("*", ""));
}

}  // namespace
}  // namespace dtrun::dtensor
