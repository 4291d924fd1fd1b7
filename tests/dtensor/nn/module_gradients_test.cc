// Outputs and gradients of every module under layouts that chance has chosen, on meshes of one to
// three axes, with uneven and empty parts: those of one rank.
#include <gtest/gtest.h>

#include <random>

#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/distribute_module.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/losses.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/nn/rotary_embedding.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::nn {
namespace {

using collectives::ProcessGroup;

struct Sample {
  std::string name;
  std::function<std::shared_ptr<Module>()> make;
  Tensors inputs;
};

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return randn(shape, RandomKey{.seed = seed}, {.dtype = DType::f64});
}
Tensor classes(const Shape& shape, std::int64_t count) {
  return randint(0, count, shape, RandomKey{.seed = 7});
}

template <typename Holder, typename... Args>
std::function<std::shared_ptr<Module>()> maker(Args... args) {
  return [args...] { return std::shared_ptr<Module>(Holder(args...)); };
}

/// Three, five and seven of most things: 2, 3, 4 and 8 ranks have uneven parts, and none.
std::vector<Sample> made_samples() {
  const LossOptions weighted{.weight = abs(numbers({5}, 9)) + 0.1};
  return {
      {"Linear", maker<Linear>(3, 5), {numbers({2, 7, 3}, 1)}},
      {"Linear without bias",
       maker<Linear>(7, 1, LinearOptions{.bias = false}),
       {numbers({5, 7}, 1)}},
      {"Embedding", maker<Embedding>(5, 3), {classes({2, 7}, 5)}},
      {"Embedding with padding",
       maker<Embedding>(7, 2, EmbeddingOptions{.padding_idx = 1}),
       {classes({9}, 7)}},
      {"LayerNorm", maker<LayerNorm>(Shape{5}), {numbers({3, 5}, 1)}},
      {"LayerNorm of two dims", maker<LayerNorm>(Shape{3, 5}), {numbers({2, 3, 5}, 1)}},
      {"RMSNorm", maker<RMSNorm>(Shape{5}), {numbers({2, 3, 5}, 1)}},
      {"Conv2d", maker<Conv2d>(2, 3, 3, Conv2dOptions{.padding = 1}), {numbers({3, 2, 5, 4}, 1)}},
      {"Conv2d in groups",
       maker<Conv2d>(4, 6, 2, Conv2dOptions{.stride = 2, .groups = 2}),
       {numbers({1, 4, 5, 5}, 1)}},
      {"MultiheadAttention",
       maker<MultiheadAttention>(6, 3,
                                 MultiheadAttentionOptions{.batch_first = true, .is_causal = true}),
       {numbers({2, 5, 6}, 1)}},
      {"MultiheadAttention in groups",
       maker<MultiheadAttention>(
           8, 4,
           MultiheadAttentionOptions{.batch_first = true, .is_causal = true, .num_kv_heads = 2}),
       {numbers({3, 5, 8}, 1)}},
      {"RotaryEmbedding", maker<RotaryEmbedding>(4), {numbers({3, 5, 4}, 1)}},
      {"Dropout", maker<Dropout>(0.4), {numbers({3, 5}, 1)}},
      {"GELU", maker<GELU>(), {numbers({3, 5}, 1)}},
      {"GELU by tanh", maker<GELU>(GeluForm::tanh), {numbers({3, 5}, 1)}},
      {"ReLU", maker<ReLU>(), {numbers({3, 5}, 1)}},
      {"SiLU", maker<SiLU>(), {numbers({3, 5}, 1)}},
      {"Tanh", maker<Tanh>(), {numbers({3, 5}, 1)}},
      {"Sigmoid", maker<Sigmoid>(), {numbers({3, 5}, 1)}},
      {"Softmax", maker<Softmax>(1), {numbers({3, 5}, 1)}},
      {"Flatten", maker<Flatten>(), {numbers({3, 5, 2}, 1)}},
      {"Sequential",
       [] {
         return std::shared_ptr<Module>(
             Sequential(Linear(3, 7), GELU(), LayerNorm(Shape{7}), Linear(7, 5)));
       },
       {numbers({5, 3}, 1)}},
      {"CrossEntropyLoss",
       maker<CrossEntropyLoss>(weighted),
       {numbers({7, 5}, 1), classes({7}, 5)}},
      {"CrossEntropyLoss, smoothed",
       maker<CrossEntropyLoss>(LossOptions{.label_smoothing = 0.2}),
       {numbers({7, 5}, 1), classes({7}, 5)}},
      {"NLLLoss", maker<NLLLoss>(), {numbers({7, 5}, 1), classes({7}, 5)}},
      {"MSELoss", maker<MSELoss>(), {numbers({3, 5}, 1), numbers({3, 5}, 2)}},
  };
}

/// What a layer computes, and the gradients of its inputs and parameters.
struct Found {
  Tensors tensors;
  std::vector<std::string> names;
};

Found run(Module& module, const Tensors& inputs) {
  manual_seed(6);  // dropout's
  const Tensor output = module.call(inputs)[0];
  const Tensor weights = numbers(output.shape(), 3);
  const Tensor whole = output.is_distributed()
                           ? distribute_tensor(weights, output.device_mesh(),
                                               Placements(output.placements().size(), Replicate()),
                                               {.source_rank = -1})
                           : weights;
  sum(output * whole).backward();
  Found found{{output.detach()}, {"output"}};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    found.tensors.push_back(inputs[i].grad());
    found.names.push_back("gradient of input " + std::to_string(i));
  }
  for (const auto& [name, parameter] : module.named_parameters()) {
    found.tensors.push_back(parameter.grad());
    found.names.push_back("gradient of " + name);
  }
  return found;
}

std::shared_ptr<Module> made(const Sample& sample) {
  manual_seed(11);
  std::shared_ptr<Module> module = sample.make();
  module->to(DType::f64);
  return module;
}

Tensor as_leaf(const Tensor& input) {
  return tensors::is_floating_point(input.dtype()) ? input.requires_grad_() : input;
}

/// Any placement along each axis, the same on all ranks.
Placements chosen(std::mt19937& chance, int axes, int dims) {
  Placements placements;
  for (int axis = 0; axis < axes; ++axis) {
    const int dim = static_cast<int>(chance() % static_cast<unsigned>(dims + 1));
    placements.push_back(dim == dims ? Placement(Replicate()) : Placement(Shard(dim)));
  }
  return placements;
}

std::string expect_equal(const Found& found, const Found& expected) {
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    if (!found.tensors[i].defined()) return expected.names[i] + " is missing";
    const std::vector<double> ours = found.tensors[i].to_vector();
    const std::vector<double> theirs = expected.tensors[i].to_vector();
    if (ours.size() != theirs.size()) return expected.names[i] + " has another size";
    for (std::size_t n = 0; n < ours.size(); ++n) {
      if (!(std::abs(ours[n] - theirs[n]) <= 1e-11 * (1 + std::abs(theirs[n]))))
        return expected.names[i] + "[" + std::to_string(n) + "] is " + std::to_string(ours[n]) +
               ", not " + std::to_string(theirs[n]);
    }
  }
  return "";
}

void expect_as_on_one_rank(const Sample& sample, const Found& expected, const DeviceMesh& mesh,
                           unsigned trial) {
  std::mt19937 chance(trial * 7919U + static_cast<unsigned>(mesh.ndim()));
  const std::shared_ptr<Module> module = made(sample);
  std::string layouts;
  const auto placed = [&](const std::string& name, int dims) {
    const Placements placements = chosen(chance, mesh.ndim(), dims);
    layouts += " " + name + " " + placements_to_string(placements);
    return placements;
  };
  distribute_module(*module, mesh,
                    {.partition = [&](const std::string& path, Module& part, const DeviceMesh& on) {
                      for (const auto& [name, parameter] : part.own_parameters()) {
                        part.distribute_parameter(name, on,
                                                  placed(path + "." + name, parameter.dim()));
                      }
                    }});
  Tensors inputs;
  for (const Tensor& input : sample.inputs) {
    inputs.push_back(
        as_leaf(distribute_tensor(input, mesh, placed("input", input.dim()), {.source_rank = -1})));
  }
  EXPECT_EQ(expect_equal(run(*module, inputs), expected), "")
      << sample.name << " on " << mesh.to_string() << ":" << layouts;
}

class ModuleGradientsTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(ModuleGradientsTest, AreThoseOfOneRankUnderAnyLayout) {
  int world = 1;
  for (const int size : GetParam()) world *= size;
  const std::vector<Sample> samples = made_samples();
  std::vector<Found> expected;
  for (const Sample& sample : samples) {
    Tensors inputs;
    for (const Tensor& input : sample.inputs) inputs.push_back(as_leaf(input.clone()));
    expected.push_back(run(*made(sample), inputs));
  }
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, GetParam());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (unsigned trial = 0; trial < 5; ++trial)
        expect_as_on_one_rank(samples[i], expected[i], mesh, 5 * static_cast<unsigned>(i) + trial);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, ModuleGradientsTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{2, 2}, std::vector<int>{3, 2},
                                         std::vector<int>{2, 2, 2}));

}  // namespace
}  // namespace dtrun::dtensor::nn
