// What PyTorch's modules compute: values, gradients, text and names.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "support/vector_file.h"

namespace dtrun::dtensor::nn {
namespace {

struct Mlp : Module {
  Linear up = register_module("up", Linear(6, 8));
  Linear down = register_module("down", Linear(8, 3, {.bias = false}));
  Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
};

struct Nested : Module {
  ModuleList layers =
      register_module("layers", ModuleList(Linear(4, 4), Linear(4, 4), Linear(4, 4)));
  LayerNorm norm = register_module("norm", LayerNorm(4));
  Sequential head = register_module("head", Sequential(Linear(4, 2), Tanh()));
  Tensor forward(const Tensor& input) override {
    Tensor x = input;
    for (std::int64_t i = 0; i < 3; ++i) x = x + relu((*layers)[i](x));
    return head(norm(x));
  }
};

struct Attention : Module {
  MultiheadAttention inner = register_module("inner", MultiheadAttention(8, 2));
  Tensor forward(const Tensor& x) override {
    const Tensor some = x.narrow(0, 0, 3);
    const Tensor padding = tensor({{false, false, true}, {false, true, false}});
    const Tensor pairs = tensor(
        {{false, true, false}, {false, true, false}, {false, true, false}, {false, false, false}});
    const Tensor added = arange(24).to(DType::f64).view({4, 2, 1, 3}).expand({4, 2, 2, 3});
    return inner(x, some, some * 2, padding, pairs) +
           inner(x, some, some, Tensor(), added.permute({1, 2, 0, 3}).reshape({4, 4, 3}));
  }
};

struct Alone : Module {
  explicit Alone(MultiheadAttentionOptions options)
      : inner(register_module("inner", MultiheadAttention(6, 3, options))) {}
  Tensor forward(const Tensor& x) override { return inner(x); }
  MultiheadAttention inner;
};

template <typename Holder>
std::shared_ptr<Module> made(const Holder& module) {
  module->to(DType::f64);
  return module;
}

using Make = std::function<std::shared_ptr<Module>()>;
const std::map<std::string, Make>& makers() {
  static const std::map<std::string, Make> kMakers = {
      {"linear", [] { return made(Linear(5, 3)); }},
      {"linear_no_bias", [] { return made(Linear(5, 3, {.bias = false, .dtype = DType::f64})); }},
      {"mlp", [] { return made(ModuleHolder<Mlp>()); }},
      {"nested", [] { return made(ModuleHolder<Nested>()); }},
      {"embedding", [] { return made(Embedding(7, 3)); }},
      {"embedding_padding", [] { return made(Embedding(7, 3, {.padding_idx = -5})); }},
      {"layer_norm", [] { return made(LayerNorm(6)); }},
      {"layer_norm_two",
       [] {
         return made(LayerNorm({3, 4}, {.eps = 1e-3, .bias = false}));
       }},
      {"layer_norm_plain", [] { return made(LayerNorm(6, {.elementwise_affine = false})); }},
      {"rms_norm", [] { return made(RMSNorm(6)); }},
      {"rms_norm_eps",
       [] {
         return made(RMSNorm({2, 3}, {.eps = 1e-2, .elementwise_affine = false}));
       }},
      {"dropout_eval", [] { return made(Dropout(0.3)); }},
      {"relu", [] { return made(ReLU()); }},
      {"gelu", [] { return made(GELU()); }},
      {"gelu_tanh", [] { return made(GELU(GeluForm::tanh)); }},
      {"silu", [] { return made(SiLU()); }},
      {"tanh", [] { return made(Tanh()); }},
      {"sigmoid", [] { return made(Sigmoid()); }},
      {"softmax", [] { return made(Softmax(-1)); }},
      {"conv2d", [] { return made(Conv2d(3, 4, 3)); }},
      {"conv2d_strided",
       [] {
         return made(Conv2d(
             4, 6, {3, 2},
             {.stride = 2, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2, .bias = false}));
       }},
      {"flatten", [] { return made(Flatten()); }},
      {"flatten_some", [] { return made(Flatten(0, 1)); }},
      {"attention", [] { return made(ModuleHolder<Attention>()); }},
      {"attention_batch_first",
       [] {
         return made(
             ModuleHolder<Alone>(MultiheadAttentionOptions{.bias = false, .batch_first = true}));
       }},
      {"attention_one_sample",
       [] { return made(ModuleHolder<Alone>(MultiheadAttentionOptions{})); }},
      {"sequential", [] { return made(Sequential(Linear(4, 8), ReLU(), Linear(8, 2))); }},
  };
  return kMakers;
}

void expect_near(const Tensor& found, const boost::json::value& expected, const std::string& what) {
  const LocalTensor wanted = tensor_of(expected.as_object());
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.shape(), wanted.shape()) << what;
  const std::vector<double> numbers = found.to_vector(), others = wanted.to_vector();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_NEAR(numbers[i], others[i], 1e-9 * (1 + std::abs(others[i]))) << what << " " << i;
  }
}

void check_case(const test::VectorCase& example, Module& module) {
  EXPECT_EQ(module.to_string(), test::text_of(example.at("text")));
  StateDict state;
  for (const boost::json::value& entry : example.at("state").as_array()) {
    state.insert(test::text_of(entry.at("name")), tensor_of(entry.as_object()));
  }
  EXPECT_EQ(module.state_dict().names(), state.names());
  module.load_state_dict(state);
  if (example.at("eval").as_bool()) module.eval();
  const Tensor input = tensor_of(example.at("input").as_object());
  const bool wants_gradient = tensors::is_floating_point(input.dtype());
  if (wants_gradient) input.requires_grad_();
  const Tensor output = module(input);
  expect_near(output, example.at("output"), "output");
  sum(output * Tensor(tensor_of(example.at("weights").as_object()))).backward();
  if (wants_gradient) expect_near(input.grad(), example.at("input_gradient"), "input's gradient");
  const auto& gradients = example.at("gradients").as_array();
  const auto parameters = module.named_parameters();
  ASSERT_EQ(parameters.size(), gradients.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_near(parameters[i].second.grad(), gradients[i], parameters[i].first);
  }
}

TEST(ModuleVectorsTest, ModulesComputeWhatPyTorchsDo) {
  for (const test::VectorCase& example : test::read_vector_file("modules")) {
    const std::string name = test::text_of(example.at("name"));
    SCOPED_TRACE(name);
    check_case(example, *makers().at(name)());
  }
}

}  // namespace
}  // namespace dtrun::dtensor::nn
