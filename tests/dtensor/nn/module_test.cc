// Module: what it has, saves, loads, and does when it is called.
#include "dtrun/dtensor/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/cuda.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor::nn {
namespace {

struct TwoLayers : Module {
  Linear up = register_module("up", Linear(6, 8));
  Linear down = register_module("down", Linear(8, 3, {.bias = false}));
  Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
};

/// Two inputs, a buffer, one that is not saved, and a layer that stands in two places.
struct Odd : Module {
  Linear first = register_module("first", Linear(2, 2));
  Linear again = register_module("again", first);
  Tensor seen = register_buffer("seen", zeros({}, {.dtype = DType::i64}));
  Tensor scale = register_parameter("scale", ones({2}));
  Tensor scratch = register_buffer("scratch", zeros({2}), {.persistent = false});
  Tensors forward_all(const Tensors& x) override {
    return {first(x[0]) * scale + x.at(1), x[0] - x[1]};
  }
};

std::vector<std::string> names_of(const Module::NamedTensors& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}
using Names = std::vector<std::string>;

TEST(ModuleTest, ItsTensorsHaveTheNamesOfTheirPaths) {
  const ModuleHolder<TwoLayers> model;
  EXPECT_EQ(names_of(model->named_parameters()), (Names{"up.weight", "up.bias", "down.weight"}));
  EXPECT_EQ(model->state_dict().names(), (Names{"up.weight", "up.bias", "down.weight"}));
  EXPECT_TRUE(same(model->get_parameter("down.weight"), model->down->weight));
  EXPECT_EQ(&model->get_submodule("up"), model->up.get());
  EXPECT_EQ(model->get_submodule("up").as<Linear>(), model->up.get());
  EXPECT_EQ(model->as<Linear>(), nullptr);
  Names modules;
  for (const auto& [name, module] : model->named_modules()) modules.push_back(name);
  EXPECT_EQ(modules, (Names{"", "up", "down"}));
  expect_refused([&] { model->get_parameter("down.bias"); }, "down.weight",
                 base::ErrorCode::kNotFound);
  expect_refused([&] { model->get_submodule("left"); }, "up, down", base::ErrorCode::kNotFound);
  expect_refused([&] { model->state_dict()["up"]; }, "up.weight", base::ErrorCode::kNotFound);
}

TEST(ModuleTest, WhatStandsTwiceIsListedOnceAndSavedTwice) {
  const ModuleHolder<Odd> model;
  EXPECT_EQ(names_of(model->named_parameters()), (Names{"scale", "first.weight", "first.bias"}));
  EXPECT_EQ(names_of(model->named_buffers()), (Names{"seen", "scratch"}));
  EXPECT_EQ(model->state_dict().names(),
            (Names{"scale", "seen", "first.weight", "first.bias", "again.weight", "again.bias"}));
  EXPECT_EQ(model->parameters().size(), 3U);
  EXPECT_EQ(model->buffers().size(), 2U);
  EXPECT_FALSE(model->seen.requires_grad());
}

TEST(ModuleTest, SeveralTensorsGoInAndComeOut) {
  const ModuleHolder<Odd> model;
  const Tensor x = ones({1, 2}), y = full({1, 2}, 3);
  EXPECT_EQ(model->call({x, y}).size(), 2U);
  EXPECT_TRUE(equal(model(x, y), model->first(x) + y));
  const Linear linear(2, 2);
  expect_refused([&] { linear(x, y); }, "Linear was called with 2 tensors");
  struct Silent : Module {};
  const ModuleHolder<Silent> silent;
  for (int call = 0; call < 2; ++call) expect_refused([&] { silent(x); }, "override forward()");
  expect_refused([&] { silent(x, x); }, "Silent was called with 2 tensors");
  struct Halves : Module {
    Tensors forward_all(const Tensors& in) override { return {in[0] / 2, in[0] / 2}; }
  };
  const ModuleHolder<Halves> halves;
  EXPECT_TRUE(equal(halves(x), x / 2));
  EXPECT_EQ(halves->call({x}).size(), 2U);
  struct Recursive : Module {
    Tensors forward_all(const Tensors& in) override {
      return in[0].item() < 8 ? Tensors{(*this)(in[0] * 2)} : in;
    }
  };
  EXPECT_EQ(ModuleHolder<Recursive>()(ones({})).item(), 8);
  struct Empty : Module {
    Tensors forward_all(const Tensors&) override { return {}; }
  };
  expect_refused([&] { ModuleHolder<Empty>()(x); }, "Empty gave no tensor");
}

TEST(ModuleTest, LoadingWritesIntoTheTensorsThatAreThere) {
  const ModuleHolder<TwoLayers> model, other;
  const Tensor weight = model->up->weight;
  model->load_state_dict(other->state_dict());
  EXPECT_TRUE(same(weight, model->up->weight));
  EXPECT_TRUE(equal(weight, other->up->weight));
  EXPECT_TRUE(weight.requires_grad());
  const IncompatibleKeys keys =
      model->load_state_dict({{"up.bias", ones({8})}, {"left", ones({1})}}, {.strict = false});
  EXPECT_EQ(keys.missing, (Names{"up.weight", "down.weight"}));
  EXPECT_EQ(keys.unexpected, Names{"left"});
  EXPECT_TRUE(equal(model->up->bias, ones({8})));
}

TEST(ModuleTest, ADictThatDoesNotFitIsRefusedAndNothingIsWritten) {
  const ModuleHolder<TwoLayers> model;
  const Tensor before = model->up->bias.detach().clone();
  StateDict state = model->state_dict();
  state.insert("up.bias", zeros({8}));
  state.insert("down.bias", zeros({3}));
  expect_refused([&] { model->load_state_dict(state); }, "unexpected: down.bias");
  expect_refused(
      [&] {
        model->load_state_dict({{"up.bias", zeros({8})}});
      },
      "missing: up.weight, down.weight");
  StateDict wide = model->state_dict();
  wide.insert("up.bias", zeros({8}));
  wide.insert("down.weight", zeros({3, 9}));
  expect_refused([&] { model->load_state_dict(wide); },
                 "down.weight is [3, 9], the module's [3, 8]");
  EXPECT_TRUE(equal(model->up->bias, before));
}

TEST(ModuleTest, NamesAreUsedOnceAndHaveNoDots) {
  const ModuleHolder<TwoLayers> model;
  expect_refused([&] { model->up->register_parameter("weight", ones({1})); },
                 "register_parameter(\"weight\") of Linear");
  expect_refused([&] { model->register_module("up", Linear(1, 1)); }, "a module of that name");
  expect_refused([&] { model->register_buffer("up", ones({1})); }, "a module of that name");
  expect_refused([&] { model->register_buffer("a.b", ones({1})); }, "a dot");
  expect_refused([&] { model->register_buffer("", ones({1})); }, "not empty");
  expect_refused([&] { model->register_module("left", Linear(nullptr)); }, "nullptr");
  expect_refused([&] { model->register_module("self", model); }, "within itself");
  const Tensor made = model->up->weight * 2;
  expect_refused([&] { model->register_parameter("made", made); }, "a parameter is a leaf");
}

TEST(ModuleTest, TrainEvalZeroGradAndRequiresGradReachAllWithin) {
  const ModuleHolder<TwoLayers> model;
  EXPECT_TRUE(model->up->is_training());
  model->eval();
  EXPECT_FALSE(model->up->is_training());
  model->train();
  EXPECT_TRUE(model->down->is_training());
  model(ones({2, 6})).sum().backward();
  EXPECT_TRUE(model->up->bias.grad().defined());
  model->zero_grad();
  EXPECT_FALSE(model->up->bias.grad().defined());
  model->requires_grad_(false);
  EXPECT_FALSE(model(ones({2, 6})).requires_grad());
  Names order;
  model->apply([&](Module& module) { order.push_back(module.name()); });
  EXPECT_EQ(order, (Names{"Linear", "Linear", "TwoLayers"}));
}

TEST(ModuleTest, ItsTensorsStayTheSameWhenItMoves) {
  const ModuleHolder<Odd> model;
  const Tensor weight = model->first->weight;
  sum(model(ones({1, 2}), ones({1, 2}))).backward();
  model->to(DType::f64);
  EXPECT_EQ(weight.dtype(), DType::f64);
  EXPECT_EQ(weight.grad().dtype(), DType::f64);
  EXPECT_EQ(model->seen.dtype(), DType::i64);
  EXPECT_EQ(model->scratch.dtype(), DType::f64);
  EXPECT_TRUE(same(model->get_parameter("again.weight"), weight));
  EXPECT_TRUE(weight.requires_grad());
  model->zero_grad();
  const Tensor x = ones({1, 2}, {.dtype = DType::f64});
  sum(model(x, x)).backward();
  EXPECT_EQ(weight.grad().dtype(), DType::f64);
  expect_refused([&] { model->to(DType::i64); }, "floating point");
}

TEST(ModuleTest, ItMovesToADeviceWithItsGradients) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices simulated;
  const Device gpu{tensors::DeviceType::cuda, 0};
  const ModuleHolder<TwoLayers> model;
  const Tensor x = ones({2, 6});
  const Tensor expected = model(x).detach();
  sum(model(x)).backward();
  const std::vector<double> gradient = model->up->weight.grad().to_vector();
  model->to(gpu);
  EXPECT_EQ(model->up->weight.device(), gpu);
  EXPECT_EQ(model->up->weight.grad().device(), gpu);
  EXPECT_EQ(model->up->weight.grad().to(tensors::kCpu).to_vector(), gradient);
  model->load_state_dict(ModuleHolder<TwoLayers>(model)->state_dict());
  const std::vector<double> found = model(x.to(gpu)).detach().to(tensors::kCpu).to_vector();
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected.to_vector()[i], 1e-6);
  // A dict of the CPU's.
  const ModuleHolder<TwoLayers> other;
  model->load_state_dict(other->state_dict());
  EXPECT_EQ(model->up->weight.device(), gpu);
  EXPECT_EQ(model->up->weight.detach().to(tensors::kCpu).to_vector(),
            other->up->weight.detach().to_vector());
}

TEST(ModuleTest, AGraphOfWhatAParameterWasIsRefused) {
  const Linear linear(2, 2);
  const Tensor loss = sum(linear(ones({1, 2})));
  linear->to(DType::f64);
  expect_refused([&] { loss.backward(); }, "set_data() has changed since");
}

TEST(ModuleTest, SetDataChangesALeafAndNothingElse) {
  const Tensor leaf = ones({2}).requires_grad_();
  const Tensor other = leaf;
  leaf.set_data(zeros({3}));
  EXPECT_EQ(other.shape(), Shape{3});
  sum(leaf * 2).backward();
  EXPECT_EQ(other.grad().shape(), Shape{3});
  expect_refused([&] { leaf.set_data(ones({2})); }, "set_grad({}) first");
  expect_refused([&] { leaf.set_data(arange(3)); }, "only floating point");
  expect_refused([&] { leaf.set_data({}); }, "undefined");
  expect_refused([&] { (leaf * 2).set_data(ones({3})); }, "part of a graph");
}

TEST(ModuleTest, HooksChangeWhatGoesInAndWhatComesOut) {
  const Linear linear(2, 2);
  const Tensor x = ones({1, 2});
  const Tensor plain = linear(x);
  const HookHandle doubles = linear->register_forward_pre_hook(
      [](Module&, const Tensors& inputs) { return Tensors{inputs[0] * 2}; });
  int calls = 0;
  const HookHandle counts = linear->register_forward_hook(
      [&](Module& module, const Tensors& inputs, const Tensors& outputs) {
        EXPECT_EQ(&module, linear.get());
        EXPECT_EQ(inputs.size() + outputs.size(), 2U);
        ++calls;
        return Tensors();
      });
  EXPECT_TRUE(equal(linear(x), linear->forward(x * 2)));
  EXPECT_EQ(calls, 1);
  doubles.remove();
  counts.remove();
  EXPECT_TRUE(equal(linear(x), plain));
  EXPECT_EQ(calls, 1);
}

TEST(ModuleTest, HooksAtTheEndRunAfterAnExceptionAndMayThrow) {
  const ReLU layer;
  int ends = 0;
  layer->register_forward_end_hook([&](Module&) { ++ends; });
  const HookHandle refusing = layer->register_forward_pre_hook(
      [](Module&, const Tensors&) -> Tensors { throw std::runtime_error("before"); });
  EXPECT_THROW(layer(ones({1})), std::runtime_error);
  EXPECT_EQ(ends, 1);
  refusing.remove();
  const HookHandle last =
      layer->register_forward_end_hook([](Module&) { throw std::logic_error("at the end"); });
  EXPECT_THROW(layer(ones({1})), std::logic_error);
  EXPECT_EQ(ends, 2);
  last.remove();
  layer(ones({1}));
  EXPECT_EQ(ends, 3);
}

TEST(ModuleTest, FirstNumbersAreThoseOfTheSeedAndWithinPyTorchsBounds) {
  manual_seed(5);
  const Linear one(16, 1000);
  manual_seed(5);
  const Linear two(16, 1000);
  EXPECT_TRUE(equal(one->weight, two->weight));
  EXPECT_TRUE(equal(one->bias, two->bias));
  for (const Tensor& numbers : {one->weight, one->bias}) {
    EXPECT_GE(numbers.detach().min().item(), -0.25);
    EXPECT_LT(numbers.detach().max().item(), 0.25);
    EXPECT_NEAR(numbers.detach().stddev().item(), 0.25 / std::sqrt(3.0), 0.01);
  }
}

}  // namespace
}  // namespace dtrun::dtensor::nn
