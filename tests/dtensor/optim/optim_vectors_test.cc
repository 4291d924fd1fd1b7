// Training as PyTorch does it: rates, clipping, and the parameters after some steps, on one rank
// and with parameters cut over a mesh.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "dtensor/vector_models.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/optim/lr_scheduler.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "support/rank_threads.h"
#include "support/vector_file.h"

namespace dtrun::dtensor::optim {
namespace {

using collectives::ProcessGroup;
using test::VectorCase;
using vector_models::everywhere;
using vector_models::gathered;
using vector_models::number;
using vector_models::place_parameters;
using vector_models::placed;
using vector_models::whole;

std::vector<VectorCase> cases_of(const std::string& op, std::size_t in_the_tree) {
  std::vector<VectorCase> cases = vector_models::cases_of("training", op);
  test::expect_cases(cases.size(), in_the_tree);
  return cases;
}

/// Null where it is not there.
const boost::json::object* part(const VectorCase& example, const char* name) {
  const boost::json::value* const found = example.if_contains(name);
  return found == nullptr ? nullptr : found->if_object();
}
double norm_type_of(const boost::json::object& object) {
  const std::string text = test::text_of(object.at("norm_type"));
  return text == "inf" ? std::numeric_limits<double>::infinity() : std::stod(text);
}

std::unique_ptr<LRScheduler> schedule_of(const std::string& name, const boost::json::object& args,
                                         Optimizer& optimizer) {
  if (name == "cosine_annealing") {
    return std::make_unique<CosineAnnealingLR>(optimizer, whole(args, "t_max"),
                                               number(args, "eta_min"));
  }
  if (name == "linear") {
    return std::make_unique<LinearLR>(optimizer, number(args, "start_factor"),
                                      number(args, "end_factor"), whole(args, "total_iters"));
  }
  if (name == "exponential")
    return std::make_unique<ExponentialLR>(optimizer, number(args, "gamma"));
  return std::make_unique<WarmupCosineLR>(optimizer, whole(args, "warmup"), whole(args, "total"),
                                          number(args, "min_ratio"));
}

TEST(OptimVectorsTest, RatesAreTorchs) {
  for (const VectorCase& example : cases_of("lr_schedule", 7)) {
    SCOPED_TRACE(test::text_of(example.at("id")));
    const boost::json::object& args = example.at("schedule_args").as_object();
    const Tensor parameter = ones(2);
    parameter.requires_grad_();
    SGD optimizer({parameter}, {.lr = number(args, "lr")});
    const auto schedule = schedule_of(test::text_of(example.at("schedule")), args, optimizer);
    for (const double rate : test::numbers_of(example.at("lrs"))) {
      EXPECT_NEAR(optimizer.lr(), rate, 1e-15);
      schedule->step();
    }
  }
}

void check_clipping(const VectorCase& example, const DeviceMesh* mesh) {
  const auto& shapes = example.at("shapes").as_array();
  Tensors parameters;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const LocalTensor gradient = tensor_of(example.at("grads").as_array()[i],
                                           test::sizes_of(shapes[i]), tensors::DType::f32);
    parameters.push_back(placed(tensors::zeros(gradient.shape()), mesh, i));
    parameters.back().requires_grad_();
    parameters.back().set_grad(placed(gradient, mesh, i));
  }
  const Tensor total = clip_grad_norm_(parameters, number(example, "max_norm"),
                                       {.norm_type = norm_type_of(example)});
  EXPECT_EQ(total.dtype(), tensors::DType::f32);
  EXPECT_NEAR(total.item() / number(example, "total_norm"), 1, 1e-6);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const LocalTensor wanted = tensor_of(example.at("clipped").as_array()[i],
                                         test::sizes_of(shapes[i]), tensors::DType::f32);
    const Tensor& gradient = parameters[i].grad();
    EXPECT_EQ(difference(gathered(gradient), wanted, {1e-6, 1e-7}), "");
  }
}

TEST(OptimVectorsTest, ClippingIsTorchsOnAnyMesh) {
  for (const VectorCase& example : cases_of("clip_grad_norm", 9)) {
    SCOPED_TRACE(test::text_of(example.at("id")));
    check_clipping(example, nullptr);
  }
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const VectorCase& example : cases_of("clip_grad_norm", 9)) check_clipping(example, &mesh);
  });
}

std::unique_ptr<Optimizer> optimizer_of(const VectorCase& example, const Tensors& parameters) {
  const std::string name = test::text_of(example.at("optimizer"));
  const boost::json::object& args = example.at("optimizer_args").as_object();
  double beta1 = 0.9, beta2 = 0.999;
  if (args.contains("betas")) {
    const std::vector<double> betas = test::numbers_of(args.at("betas"));
    beta1 = betas[0], beta2 = betas[1];
  }
  const double lr = number(args, "lr"), eps = number(args, "eps", 1e-8);
  if (name == "sgd") {
    return std::make_unique<SGD>(parameters,
                                 SGDOptions{.lr = lr,
                                            .momentum = number(args, "momentum"),
                                            .dampening = number(args, "dampening"),
                                            .weight_decay = number(args, "weight_decay")});
  }
  if (name == "adam") {
    return std::make_unique<Adam>(parameters,
                                  AdamOptions{lr, beta1, beta2, eps, number(args, "weight_decay")});
  }
  return std::make_unique<AdamW>(
      parameters, AdamWOptions{lr, beta1, beta2, eps, number(args, "weight_decay", 1e-2)});
}

/// One run of a case, with its parameters on the mesh where there is one.
class Training {
 public:
  Training(const VectorCase& example, const DeviceMesh* mesh)
      : example_(example), tensors_(example.at("tensors").as_object()), mesh_(mesh) {
    const boost::json::object& config = example.at("config").as_object();
    if (test::text_of(example.at("model")) == "mlp") {
      model_ = vector_models::mlp_of(config);
    } else {
      model_ = std::make_shared<vector_models::Gpt>(config);
    }
    const tensors::DType dtype = tensors::parse_dtype(test::text_of(example.at("dtype")));
    model_->to(dtype);
    tolerance_ = dtype == tensors::DType::f64 ? Tolerance{1e-9, 1e-10} : Tolerance{1e-4, 1e-5};
    nn::StateDict state;
    for (const auto& [name, parameter] : model_->named_parameters())
      state.insert(name, Tensor(tensor_of(tensors_.at("param/" + name).as_object())));
    model_->load_state_dict(state);
    if (mesh != nullptr) place_parameters(*model_, *mesh);
    optimizer_ = optimizer_of(example, model_->parameters());
    if (const boost::json::object* const args = part(example, "schedule"))
      schedule_ = schedule_of("warmup_cosine", *args, *optimizer_);
  }

  void run() {
    for (std::int64_t step = 0; step < whole(example_, "steps"); ++step) {
      EXPECT_NEAR(optimizer_->lr(), example_.at("lrs").as_array()[at(step)].to_number<double>(),
                  1e-15);
      expect_near(forward_and_backward(step), "losses", step);
      if (const boost::json::object* const clip = part(example_, "clip")) {
        const Tensor norm = clip_grad_norm_(model_->parameters(), number(*clip, "max_norm"),
                                            {.norm_type = norm_type_of(*clip)});
        expect_near(norm.item(), "grad_norms", step);
      }
      if (step == 0) compare("grad_step0/", [](const Tensor& p) { return p.grad(); });
      optimizer_->step();
      optimizer_->zero_grad();
      compare("after_step" + std::to_string(step) + "/",
              [](const Tensor& parameter) { return parameter.detach(); });
      if (schedule_) schedule_->step();
    }
  }

 private:
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  LocalTensor given(const std::string& name) const {
    return tensor_of(tensors_.at(name).as_object());
  }
  /// Whole, on all ranks.
  Tensor input(const std::string& name) const { return everywhere(given(name), mesh_); }
  double forward_and_backward(std::int64_t step) {
    const std::int64_t parts = whole(example_, "micro_batches", 1);
    double loss = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::string which = std::to_string(step) + "/" + std::to_string(part);
      Tensor logits = (*model_)(input("input/" + which));
      if (logits.shape().size() == 3) logits = flatten(logits, 0, 1);
      const Tensor term = cross_entropy(logits, input("target/" + which),
                                        {.ignore_index = whole(example_, "ignore_index", -100),
                                         .label_smoothing = number(example_, "label_smoothing")}) *
                          (1.0 / static_cast<double>(parts));
      term.backward();
      loss += term.item();
    }
    return loss;
  }
  void expect_near(double found, const char* list, std::int64_t step) const {
    const double wanted = example_.at(list).as_array()[at(step)].to_number<double>();
    EXPECT_NEAR(found, wanted, tolerance_.absolute + tolerance_.relative * std::abs(wanted))
        << list;
  }
  void compare(const std::string& prefix, const std::function<Tensor(const Tensor&)>& take) const {
    for (const auto& [name, parameter] : model_->named_parameters()) {
      if (!tensors_.contains(prefix + name)) continue;
      const Tensor found = take(parameter);
      ASSERT_TRUE(found.defined()) << prefix << name;
      LocalTensor numbers = gathered(found);
      LocalTensor wanted = given(prefix + name);
      if (name.ends_with("qkv.bias") && wanted.dtype() == tensors::DType::f32) {
        numbers = without_key(numbers);
        wanted = without_key(wanted);
      }
      EXPECT_EQ(difference(numbers, wanted, tolerance_), "") << prefix << name;
    }
  }
  /// Softmax does not depend on the keys' bias: its gradient is what rounding leaves, of which Adam
  /// makes a step as long as any other.
  static LocalTensor without_key(const LocalTensor& bias) {
    const std::int64_t width = bias.numel() / 3;
    return tensors::cat({bias.narrow(0, 0, width), bias.narrow(0, 2 * width, width)}, 0);
  }

  const VectorCase& example_;
  const boost::json::object& tensors_;
  const DeviceMesh* const mesh_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LRScheduler> schedule_;
  Tolerance tolerance_;
};

TEST(OptimVectorsTest, ModelsLearnAsTorchsDo) {
  for (const VectorCase& example : cases_of("train", 44)) {
    SCOPED_TRACE(test::text_of(example.at("id")));
    Training(example, nullptr).run();
  }
}

TEST(OptimVectorsTest, ModelsCutOverAMeshLearnAlike) {
  const std::vector<VectorCase> examples = cases_of("train", 44);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const VectorCase& example : examples) {
      SCOPED_TRACE(test::text_of(example.at("id")));
      Training(example, &mesh).run();
    }
  });
}

}  // namespace
}  // namespace dtrun::dtensor::optim
