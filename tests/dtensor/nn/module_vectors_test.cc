// What PyTorch's modules compute: values, gradients, text and names.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/nn/linear.h"
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

using Make = std::function<std::shared_ptr<Module>()>;
const std::map<std::string, Make>& makers() {
  static const std::map<std::string, Make> kMakers = {
      {"linear", [] { return Linear(5, 3, {.dtype = DType::f64}); }},
      {"linear_no_bias", [] { return Linear(5, 3, {.bias = false, .dtype = DType::f64}); }},
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
    const auto make = makers().find(name);
    if (make != makers().end()) check_case(example, *make->second());
  }
}

}  // namespace
}  // namespace dtrun::dtensor::nn
