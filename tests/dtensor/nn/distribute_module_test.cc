// distribute_module: losses and gradients of one rank on every mesh, and tensors that stay the
// same.
#include "dtrun/dtensor/nn/distribute_module.h"

#include <gtest/gtest.h>

#include <array>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::nn {
namespace {

/// Tokens, a block with a residual, and class scores.
struct Reader : Module {
  Embedding table = register_module("table", Embedding(11, 8));
  LayerNorm norm = register_module("norm", LayerNorm(8));
  Linear up = register_module("up", Linear(8, 12));
  Linear down = register_module("down", Linear(12, 8));
  Dropout drop = register_module("drop", Dropout(0.2));
  Linear head = register_module("head", Linear(8, 5, {.bias = false}));
  Tensor scale = register_buffer("scale", full({8}, 0.5));
  Tensor forward(const Tensor& tokens) override {
    const Tensor x = table(tokens);
    return head(x + drop(down(gelu(up(norm(x))))) * scale);
  }
};

std::shared_ptr<Reader> made_reader() {
  manual_seed(21);
  auto reader = std::make_shared<Reader>();
  reader->to(DType::f64);
  return reader;
}
Tensor made_tokens() {
  return randint(0, 11, {8, 3}, RandomKey{.seed = 4});
}

struct Trained {
  std::array<double, 3> losses;
  Tensors gradients;  ///< of the last step
  Tensors weights;
};

/// Three steps. The parameters were taken before the model was distributed, as an optimizer does.
Trained train(Reader& model, const Tensors& parameters, const Tensor& tokens) {
  Trained trained;
  manual_seed(33);
  for (double& loss : trained.losses) {
    for (const Tensor& parameter : parameters) parameter.set_grad({});
    const Tensor total = mean(square(model(tokens)));
    total.backward();
    loss = total.item();
    const NoGrad no_grad;
    for (const Tensor& parameter : parameters) parameter.sub_(parameter.grad() * 0.1);
  }
  for (const Tensor& parameter : parameters) {
    trained.gradients.push_back(parameter.grad());
    trained.weights.push_back(parameter.detach());
  }
  return trained;
}

void expect_near(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<double> numbers = found[i].to_vector(), others = expected[i].to_vector();
    ASSERT_EQ(numbers.size(), others.size());
    for (std::size_t n = 0; n < numbers.size(); ++n)
      EXPECT_NEAR(numbers[n], others[n], 1e-12) << "tensor " << i;
  }
}

/// Replicate, but along the axis of that name, where the mesh has it.
Placements along(const DeviceMesh& mesh, const std::string& axis, const Placement& placement) {
  Placements placements;
  for (const std::string& name : mesh.axis_names())
    placements.push_back(name == axis ? placement : Replicate());
  return placements;
}

/// Column-wise, then row-wise: one sum for the block.
void cut_block(const std::string& name, Module& module, const DeviceMesh& mesh) {
  if (name == "up") {
    module.distribute_parameter("weight", mesh, along(mesh, "tp", Shard(0)));
    module.distribute_parameter("bias", mesh, along(mesh, "tp", Shard(0)));
  } else if (name == "down") {
    module.distribute_parameter("weight", mesh, along(mesh, "tp", Shard(1)));
  } else if (name == "table") {
    module.distribute_parameter("weight", mesh, along(mesh, "tp", Shard(0)));
  }
}

Tensors cut_samples(Module&, const Tensors& inputs, const DeviceMesh& mesh) {
  return {distribute_tensor(inputs[0], mesh, along(mesh, "dp", Shard(0)), {.source_rank = -1})};
}

void expect_trains_as_one_rank(const std::vector<int>& shape, std::vector<std::string> names) {
  const auto whole = made_reader();
  const Trained expected = train(*whole, whole->parameters(), made_tokens());
  int world = 1;
  for (const int size : shape) world *= size;
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, shape, names);
    const auto model = made_reader();
    const Tensors parameters = model->parameters();
    distribute_module(*model, mesh, {.partition = cut_block, .input = cut_samples});
    const Trained found = train(*model, parameters, made_tokens());
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12);
    expect_near(found.gradients, expected.gradients);
    expect_near(found.weights, expected.weights);
    for (const Tensor& parameter : parameters) EXPECT_TRUE(parameter.is_distributed());
    EXPECT_TRUE(model->scale.is_distributed());
    EXPECT_EQ(model->up->weight.placements(), along(mesh, "tp", Shard(0)));
    EXPECT_EQ(model->up->weight.grad().placements(), along(mesh, "tp", Shard(0)));
    EXPECT_EQ(model->head->weight.placements(), Placements(shape.size(), Replicate()));
    EXPECT_TRUE(same(model->get_parameter("up.weight"), parameters[4 - 1]));
  });
}

TEST(DistributeModuleTest, SamplesCutTrainAsOneRank) {
  expect_trains_as_one_rank({2}, {"dp"});
  expect_trains_as_one_rank({4}, {"dp"});
}

TEST(DistributeModuleTest, ColumnsThenRowsTrainAsOneRank) {
  expect_trains_as_one_rank({2}, {"tp"});
  expect_trains_as_one_rank({4}, {"tp"});
}

TEST(DistributeModuleTest, BothAtOnceTrainAsOneRank) {
  expect_trains_as_one_rank({2, 2}, {"dp", "tp"});
}

TEST(DistributeModuleTest, AConvolutionalNetworkGivesTheSameOnCutSamples) {
  const auto make = [] {
    manual_seed(2);
    return Sequential(Conv2d(2, 4, 3, {.padding = 1}), ReLU(), Conv2d(4, 3, 2, {.stride = 2}),
                      Flatten(), Linear(12, 2));
  };
  const Tensor images = randn({4, 2, 5, 5}, RandomKey{.seed = 3});
  const Sequential whole = make();
  sum(square(whole(images))).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const Sequential model = make();
    distribute_module(*model, mesh, {.input = cut_samples});
    sum(square(model(images))).backward();
    const Tensors parameters = model->parameters(), others = whole->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<double> found = parameters[i].grad().to_vector();
      const std::vector<double> expected = others[i].grad().to_vector();
      for (std::size_t n = 0; n < found.size(); ++n)
        EXPECT_NEAR(found[n], expected[n], 1e-4 * (1 + std::abs(expected[n])));
    }
  });
}

/// The scores are the products with the table's rows.
struct Tied : Module {
  Embedding table = register_module("table", Embedding(8, 4));
  Linear head = register_module("head", Linear(table->weight));
  Tensor forward(const Tensor& tokens) override { return head(table(tokens)); }
};

TEST(DistributeModuleTest, ATensorOfTwoModulesIsDistributedOnce) {
  const auto gradient_of = [](const ModuleHolder<Tied>& model) {
    mean(square(model(randint(0, 8, {6}, RandomKey{.seed = 4})))).backward();
    return Tensors{model->table->weight.grad()};
  };
  const auto make = [] {
    manual_seed(6);
    ModuleHolder<Tied> model;
    model->to(DType::f64);
    return model;
  };
  const Tensors expected = gradient_of(make());
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const ModuleHolder<Tied> model = make();
    EXPECT_EQ(model->parameters().size(), 1U);
    EXPECT_EQ(model->state_dict().size(), 2U);
    distribute_module(*model, mesh,
                      {.partition =
                           [](const std::string& name, Module& module, const DeviceMesh& on) {
                             if (!name.empty())
                               module.distribute_parameter("weight", on, {Shard(0)});
                           },
                       .input = cut_samples});
    EXPECT_TRUE(same(model->head->weight, model->table->weight));
    EXPECT_EQ(model->head->weight.placements(), Placements{Shard(0)});
    expect_near(gradient_of(model), expected);
  });
}

TEST(DistributeModuleTest, AttentionGivesTheSameOnCutSamples) {
  const auto make = [] {
    manual_seed(2);
    return MultiheadAttention(6, 2, {.batch_first = true, .is_causal = true, .dtype = DType::f64});
  };
  const Tensor x = randn({4, 5, 6}, RandomKey{.seed = 3}, {.dtype = DType::f64});
  const auto gradients_of = [&](const MultiheadAttention& model) {
    mean(square(model(x))).backward();
    Tensors gradients;
    for (const Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad());
    return gradients;
  };
  const Tensors expected = gradients_of(make());
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const MultiheadAttention model = make();
    distribute_module(*model, mesh, {.input = cut_samples});
    expect_near(gradients_of(model), expected);
  });
}

TEST(DistributeModuleTest, OutputsAreWhatTheOutputFunctionMakesOfThem) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    manual_seed(1);
    const Linear linear(4, 6);
    const Tensor x = ones({2, 4});
    const Tensor expected = linear(x).detach();
    distribute_module(*linear, mesh,
                      {.partition =
                           [](const std::string& name, Module& module, const DeviceMesh& on) {
                             EXPECT_EQ(name, "");
                             module.distribute_parameter("weight", on, {Shard(0)});
                             module.distribute_parameter("bias", on, {Shard(0)});
                           },
                       .input =
                           [](Module&, const Tensors& inputs, const DeviceMesh& on) {
                             return Tensors{Tensor::from_local(inputs[0], on, {Replicate()})};
                           },
                       .output =
                           [](Module&, const Tensors& outputs, const DeviceMesh&) {
                             EXPECT_EQ(outputs[0].placements(), Placements{Shard(1)});
                             return Tensors{outputs[0].to_local()};
                           }});
    const Tensor mine = linear(x);
    EXPECT_FALSE(mine.is_distributed());
    EXPECT_TRUE(equal(mine, expected.narrow(1, 3 * mesh.rank(), 3).contiguous()));
  });
}

TEST(DistributeModuleTest, TheFirstRanksNumbersCount) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    manual_seed(static_cast<std::uint64_t>(mesh.rank()));
    const Linear linear(3, 3);
    distribute_module(*linear, mesh);
    manual_seed(0);
    EXPECT_TRUE(equal(linear->weight.to_local(), Linear(3, 3)->weight));
  });
}

TEST(DistributeModuleTest, ADictIsLoadedIntoWhatLiesOnAMesh) {
  manual_seed(4);
  const Linear source(4, 6);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Linear rows(4, 6), columns(4, 6);
    rows->distribute_parameter("weight", mesh, {Shard(0)});
    columns->distribute_parameter("weight", mesh, {Shard(1)});
    rows->load_state_dict(source->state_dict());
    EXPECT_EQ(rows->weight.placements(), Placements{Shard(0)});
    EXPECT_TRUE(equal(rows->weight, source->weight));
    columns->load_state_dict(rows->state_dict());
    EXPECT_EQ(columns->weight.placements(), Placements{Shard(1)});
    EXPECT_TRUE(equal(columns->weight, source->weight));
    const Linear local(4, 6);
    local->load_state_dict(columns->state_dict());
    EXPECT_TRUE(equal(local->weight, source->weight));
    // It moves to another dtype where it lies.
    rows->weight.set_grad(rows->weight.detach());
    rows->to(DType::f64);
    EXPECT_EQ(rows->weight.dtype(), DType::f64);
    EXPECT_EQ(rows->weight.grad().placements(), Placements{Shard(0)});
  });
}

/// Two layers, the first one's columns cut and the second one's rows: one sum on either way.
struct Blocks : Module {
  ModuleList layers = register_module("layers", ModuleList(Linear(8, 8), Linear(8, 8)));
  Tensor forward(const Tensor& x) override {
    return (*layers)[1](relu((*layers)[0](x))).redistribute({Replicate()});
  }
};

TEST(DistributeModuleTest, ACounterTellsCollectivesByModuleOnBothWays) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const ModuleHolder<Blocks> model;
    distribute_module(
        *model, mesh,
        {.partition = [](const std::string& name, Module& module, const DeviceMesh& on) {
          const Placement cut = name == "layers.0" ? Shard(0) : Shard(1);
          if (module.as<Linear>() != nullptr) module.distribute_parameter("weight", on, {cut});
          if (name == "layers.0") module.distribute_parameter("bias", on, {cut});
        }});
    const Tensor x = distribute_tensor(ones({4, 8}), mesh, {Replicate()}).requires_grad_();
    const auto step = [&] { sum(square(model(x))).backward(); };
    const CommCounter counter;
    step();
    const PassCounts whole = counter.by_module().at("Global");
    // That of the second layer's terms, and that of the input's gradient.
    EXPECT_EQ(whole, (PassCounts{{{"all_reduce", {1, 128}}}, {{"all_reduce", {1, 128}}}}))
        << counter;
    EXPECT_EQ(counter.by_module().at("Blocks.layers.0").backward, whole.backward) << counter;
    EXPECT_EQ(counter.by_module().at("Blocks").backward, whole.backward) << counter;
    {
      const CommSection section("train");
      step();
    }
    EXPECT_EQ(counter.by_section().count("train.Blocks.layers.0"), 1U) << counter;
    EXPECT_EQ(counter.by_module().at("train").backward, whole.backward) << counter;
  });
}

TEST(DistributeModuleTest, AForwardThatIsDoneAgainCountsWhereItsModuleStands) {
  struct Redone : Module {
    Linear layer = register_module("layer", Linear(8, 8));
    Tensor forward(const Tensor& x) override {
      return checkpoint([this](const Tensor& a) { return layer(a).redistribute({Replicate()}); },
                        x);
    }
  };
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const ModuleHolder<Redone> model;
    model->layer->distribute_parameter("weight", mesh, {Shard(1)});
    distribute_module(*model, mesh);
    const Tensor x = distribute_tensor(ones({4, 8}), mesh, {Shard(1)});
    const CommCounter counter;
    sum(model(x)).backward();
    for (const auto& [section, counts] : counter.by_section())
      EXPECT_TRUE(section.starts_with("Redone")) << counter;
    EXPECT_FALSE(counter.by_module().at("Redone").backward.empty()) << counter;
  });
}

TEST(DistributeModuleTest, ModelsThatDifferAreToldOnAllRanks) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Linear other(3, 3, {.bias = group.rank() == 0});
    expect_refused([&] { distribute_module(*other, mesh); },
                   {"the ranks' modules differ", "rank 0 has parameter \"bias\", f32[3]",
                    "rank 1 has no more parameters"},
                   base::ErrorCode::kDisagreement);
  });
}

TEST(DistributeModuleTest, ASecondTimeAndAnotherMeshAreRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}), other(group, {2, 1});
    const Linear linear(3, 3);
    distribute_module(*linear, mesh);
    expect_refused([&] { distribute_module(*linear, mesh); }, "an earlier call");
    expect_refused([&] { linear->distribute_parameter("weight", mesh, {Shard(0)}); },
                   "distributed already");
    const Device gpu{tensors::DeviceType::cuda, 0};
    expect_refused([&] { linear->to(gpu); }, "whose weight lies on");
    const Linear fresh(3, 3);
    expect_refused([&] { fresh->distribute_parameter("wait", mesh, {Shard(0)}); },
                   "it has weight, bias", base::ErrorCode::kNotFound);
    fresh->distribute_parameter("weight", other, {Shard(0), Replicate()});
    expect_refused([&] { distribute_module(*fresh, mesh); }, "weight lies on");
  });
}

}  // namespace
}  // namespace dtrun::dtensor::nn
