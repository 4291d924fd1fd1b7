// Optimizer steps: the parameters after three steps are those of torch.optim (2.15, f64), whatever
// the number of threads, and lists that do not fit change nothing.
#include "dtrun/tensor/ops/optimizer.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::tensors {
namespace {

using Values = std::vector<double>;

struct Model {
  TensorList parameters, first, second;

  explicit Model(DType dtype = DType::f64)
      : parameters{tensor({0.5}).to(dtype),
                   tensor({{1.0, -2.0, 3.0}, {0.0, 0.25, -0.125}}).to(dtype)} {
    for (const LocalTensor& parameter : parameters) {
      first.push_back(zeros(parameter.shape(), {dtype}));
      second.push_back(zeros(parameter.shape(), {dtype}));
    }
  }
  TensorList gradients(int step) const {
    TensorList all;
    for (const LocalTensor& p : parameters) {
      const LocalTensor numbers = arange(p.numel()).view(p.shape()).to(p.dtype());
      all.push_back(numbers * 0.5 - 1.0 + 0.25 * step);
    }
    return all;
  }
  void expect(const Values& expected, double tolerance) const {
    Values found;
    for (const LocalTensor& parameter : parameters) {
      for (const double value : parameter.to_vector()) found.push_back(value);
    }
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], tolerance) << i;
  }
};

TEST(OptimizerTest, AdamAndAdamWAreTorchs) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double tolerance = dtype == DType::f64 ? 1e-14 : 1e-6;
    Model decoupled(dtype), plain(dtype);
    for (int k = 0; k < 3; ++k) {
      adam_step_(decoupled.parameters, decoupled.gradients(k), decoupled.first, decoupled.second,
                 {.lr = 0.1, .weight_decay = 0.05, .step = k + 1});
      adam_step_(plain.parameters, plain.gradients(k), plain.first, plain.second,
                 {.lr = 0.1,
                  .beta1 = 0.8,
                  .beta2 = 0.95,
                  .weight_decay = 0.05,
                  .step = k + 1,
                  .decay = AdamStep::Decay::of_gradient});
    }
    decoupled.expect({0.7835607982788324, 1.2760982357788326, -1.7063376262438015, 2.79832575494209,
                      -0.29631250853730656, -0.05226169840376713, -0.4220536147532994},
                     tolerance);
    plain.expect({0.7896836344710325, 1.2891680322149546, -1.7279841945664975, 2.7093763614280846,
                  -0.29999825328222685, -0.05128380074638532, -0.42629107340495986},
                 tolerance);
  }
}

TEST(OptimizerTest, SgdIsTorchs) {
  const auto run = [](SgdStep options) {
    Model model;
    for (int k = 0; k < 3; ++k) {
      options.is_first = k == 0;
      sgd_step_(model.parameters, model.gradients(k),
                options.momentum == 0 ? TensorList{} : model.first, options);
    }
    return model;
  };
  run({.lr = 0.1, .weight_decay = 0.05})
      .expect({0.7161649375000001, 1.208702375, -1.8957735, 2.8803496249999996,
               -0.22412625000000003, -0.12710878125000002, -0.645763109375},
              1e-15);
  run({.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05})
      .expect({0.892426819375, 1.38061616375, -1.784733015, 2.86094731625, -0.3044018625,
               -0.2965203028125, -0.8988754235937498},
              1e-15);
  run({.lr = 0.1, .momentum = 0.9, .nesterov = true})
      .expect({1.14215, 1.64215, -1.7603, 2.83725, -0.5652, -0.71765, -1.4951}, 1e-15);
}

TEST(OptimizerTest, BitsDoNotDependOnTheThreads) {
  const int before = num_threads();
  const auto run = [](int threads) {
    set_num_threads(threads);
    TensorList parameters, gradients, first, second;
    for (const std::int64_t size : {0, 100000, 1, 33, 70001}) {
      parameters.push_back(randn({size}, {1}));
      gradients.push_back(randn({size}, {2}));
      first.push_back(zeros({size}));
      second.push_back(zeros({size}));
    }
    adam_step_(parameters, gradients, first, second, {});
    return cat(parameters);
  };
  const LocalTensor expected = run(1);
  for (const int threads : {2, 4}) EXPECT_TRUE(equal(run(threads), expected)) << threads;
  set_num_threads(before);
}

TEST(OptimizerTest, WhatDoesNotFitIsNamedAndChangesNothing) {
  const auto expect_refused = [](const std::function<void(Model&, TensorList&)>& spoil,
                                 const std::string& why) {
    Model model;
    TensorList gradients = model.gradients(0);
    spoil(model, gradients);
    const Values before = model.parameters[0].to_vector();
    try {
      adam_step_(model.parameters, gradients, model.first, model.second, {});
      ADD_FAILURE() << "no error: " << why;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
    EXPECT_EQ(model.parameters[0].to_vector(), before);
  };
  expect_refused([](Model&, TensorList& g) { g.pop_back(); }, "2 parameters and 1 gradients");
  expect_refused([](Model&, TensorList& g) { g[1] = g[1].view({6}); },
                 "number 1 of the gradients is float64 [6]");
  expect_refused([](Model& m, TensorList&) { m.first[1] = m.first[1].to(DType::f32); },
                 "number 1 of the moments is float32 [2, 3]");
  expect_refused(
      [](Model&, TensorList& g) {
        g[1] = arange(6).to(DType::f64).view({3, 2}).transpose(0, 1);
      },
      "do not lie one after the other");
  expect_refused([](Model& m, TensorList&) { m.parameters[1] = m.parameters[1].to(DType::bf16); },
                 "keep a copy in float32");
  Model model;
  EXPECT_THROW(
      adam_step_(model.parameters, model.gradients(0), model.first, model.second, {.step = 0}),
      base::Error);
}

}  // namespace
}  // namespace dtrun::tensors
