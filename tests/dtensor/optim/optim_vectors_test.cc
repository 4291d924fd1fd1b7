// Training as PyTorch does it: rates, clipping, and the parameters after some steps, on one rank
// and with parameters cut over a mesh.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
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

double number(const boost::json::object& object, const char* name, double other = 0) {
  const boost::json::value* const found = object.if_contains(name);
  return found == nullptr || found->is_null() ? other : found->to_number<double>();
}
std::int64_t whole(const boost::json::object& object, const char* name, std::int64_t other = 0) {
  return static_cast<std::int64_t>(number(object, name, static_cast<double>(other)));
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

std::vector<VectorCase> cases_of(const std::string& op) {
  std::vector<VectorCase> chosen;
  for (VectorCase& example : test::read_vector_file("training")) {
    if (test::text_of(example.at("op")) == op) chosen.push_back(std::move(example));
  }
  EXPECT_FALSE(chosen.empty()) << op;
  return chosen;
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
  for (const VectorCase& example : cases_of("lr_schedule")) {
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

/// Cut in turn along both axes, one, or none.
Tensor placed(const LocalTensor& numbers, const DeviceMesh* mesh, std::size_t which) {
  if (mesh == nullptr) return Tensor(numbers);
  const bool can = !numbers.shape().empty();
  const Placements placements = {can && which % 3 != 2 ? Placement(Shard(0)) : Replicate(),
                                 can && which % 3 == 0 ? Placement(Shard(-1)) : Replicate()};
  return distribute_tensor(Tensor(numbers), *mesh, placements, {.source_rank = -1});
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
    EXPECT_EQ(difference(mesh == nullptr ? gradient.local() : gradient.full_tensor().local(),
                         wanted, {1e-6, 1e-7}),
              "");
  }
}

TEST(OptimVectorsTest, ClippingIsTorchsOnAnyMesh) {
  for (const VectorCase& example : cases_of("clip_grad_norm")) {
    SCOPED_TRACE(test::text_of(example.at("id")));
    check_clipping(example, nullptr);
  }
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const VectorCase& example : cases_of("clip_grad_norm")) check_clipping(example, &mesh);
  });
}

struct Mlp : nn::Module {
  explicit Mlp(const boost::json::object& config)
      : fc1(register_module("fc1", nn::Linear(whole(config, "in"), whole(config, "hidden")))),
        fc2(register_module("fc2", nn::Linear(whole(config, "hidden"), whole(config, "out")))) {}
  Tensor forward(const Tensor& x) override { return fc2(gelu(fc1(x))); }
  nn::Linear fc1, fc2;
};

struct Attention : nn::Module {
  Attention(std::int64_t width, std::int64_t its_heads)
      : heads(its_heads),
        qkv(register_module("qkv", nn::Linear(width, 3 * width))),
        proj(register_module("proj", nn::Linear(width, width))) {}
  Tensor forward(const Tensor& x) override {
    const std::int64_t width = x.size(-1);
    const auto split = [&](const Tensor& all, int which) {
      return unflatten(all.narrow(-1, which * width, width), -1, {heads, width / heads})
          .transpose(1, 2);
    };
    const Tensor all = qkv(x);
    const Tensor mixed = scaled_dot_product_attention(split(all, 0), split(all, 1), split(all, 2),
                                                      {.is_causal = true});
    return proj(flatten(mixed.transpose(1, 2), 2));
  }
  const std::int64_t heads;
  nn::Linear qkv, proj;
};

struct FeedForward : nn::Module {
  explicit FeedForward(std::int64_t width)
      : fc1(register_module("fc1", nn::Linear(width, 4 * width))),
        fc2(register_module("fc2", nn::Linear(4 * width, width))) {}
  Tensor forward(const Tensor& x) override { return fc2(gelu(fc1(x))); }
  nn::Linear fc1, fc2;
};

struct Block : nn::Module {
  Block(std::int64_t width, std::int64_t heads)
      : ln1(register_module("ln1", nn::LayerNorm(width))),
        attn(register_module("attn", nn::ModuleHolder<Attention>(width, heads))),
        ln2(register_module("ln2", nn::LayerNorm(width))),
        mlp(register_module("mlp", nn::ModuleHolder<FeedForward>(width))) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attn(ln1(x));
    return y + mlp(ln2(y));
  }
  nn::LayerNorm ln1;
  nn::ModuleHolder<Attention> attn;
  nn::LayerNorm ln2;
  nn::ModuleHolder<FeedForward> mlp;
};

/// Whole on all ranks of the other one's mesh.
Tensor everywhere(const Tensor& tensor, const Tensor& like) {
  if (!like.is_distributed()) return tensor;
  const Placements whole(like.placements().size(), Replicate());
  return distribute_tensor(tensor, like.device_mesh(), whole, {.source_rank = -1});
}

struct Gpt : nn::Module {
  explicit Gpt(const boost::json::object& config)
      : wte(register_module("wte",
                            nn::Embedding(whole(config, "vocab"), whole(config, "d_model")))),
        wpe(register_module("wpe",
                            nn::Embedding(whole(config, "context"), whole(config, "d_model")))),
        blocks(register_module("blocks", nn::ModuleList())),
        ln_f(register_module("ln_f", nn::LayerNorm(whole(config, "d_model")))),
        head(register_module("head", nn::Linear(whole(config, "d_model"), whole(config, "vocab"),
                                                {.bias = false}))) {
    for (std::int64_t i = 0; i < whole(config, "layers"); ++i)
      blocks->push_back(nn::ModuleHolder<Block>(whole(config, "d_model"), whole(config, "heads")));
  }
  Tensor forward(const Tensor& tokens) override {
    const Tensor positions = everywhere(arange(tokens.size(-1)), tokens);
    Tensor x = wte(tokens) + wpe(positions);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(blocks->size()); ++i)
      x = (*blocks)[i](x);
    return head(ln_f(x));
  }
  nn::Embedding wte, wpe;
  nn::ModuleList blocks;
  nn::LayerNorm ln_f;
  nn::Linear head;
};

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
      model_ = std::make_shared<Mlp>(config);
    } else {
      model_ = std::make_shared<Gpt>(config);
    }
    const tensors::DType dtype = tensors::parse_dtype(test::text_of(example.at("dtype")));
    model_->to(dtype);
    tolerance_ = dtype == tensors::DType::f64 ? Tolerance{1e-9, 1e-10} : Tolerance{1e-4, 1e-5};
    nn::StateDict state;
    for (const auto& [name, parameter] : model_->named_parameters())
      state.insert(name, Tensor(tensor_of(tensors_.at("param/" + name).as_object())));
    model_->load_state_dict(state);
    if (mesh != nullptr) place_parameters();
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
  Tensor input(const std::string& name) const {
    const LocalTensor numbers = given(name);
    if (mesh_ == nullptr) return Tensor(numbers);
    return distribute_tensor(Tensor(numbers), *mesh_, {Replicate(), Replicate()},
                             {.source_rank = -1});
  }
  void place_parameters() {
    std::size_t number = 0;
    for (const auto& [name, module] : model_->named_modules()) {
      for (const auto& [own, parameter] : module->own_parameters()) {
        const Tensor like = placed(parameter.local(), mesh_, number++);
        module->distribute_parameter(own, *mesh_, like.placements());
      }
    }
  }
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
      LocalTensor numbers = found.is_distributed() ? found.full_tensor().local() : found.local();
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
  for (const VectorCase& example : cases_of("train")) {
    SCOPED_TRACE(test::text_of(example.at("id")));
    Training(example, nullptr).run();
  }
}

TEST(OptimVectorsTest, ModelsCutOverAMeshLearnAlike) {
  const std::vector<VectorCase> examples = cases_of("train");
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
