// PyTorch's training vectors of modules and losses: what they compute and every gradient, on one
// rank and with parameters cut over a mesh.
#include <gtest/gtest.h>

#include "dtensor/vector_models.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/losses.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/ops/rows.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::vector_models {
namespace {

using collectives::ProcessGroup;
using tensors::DType;
using test::VectorCase;

std::shared_ptr<nn::Module> module_of(const std::string& name, const boost::json::object& config) {
  if (name == "linear") {
    return nn::Linear(whole(config, "in"), whole(config, "out"), {.bias = flag(config, "bias")});
  }
  if (name == "embedding") return nn::Embedding(whole(config, "vocab"), whole(config, "dim"));
  if (name == "layer_norm") return norm_of(config);
  if (name == "rms_norm") {
    boost::json::object other = config;
    other["norm"] = name;
    return norm_of(other);
  }
  if (name == "conv2d") {
    return nn::Conv2d(whole(config, "in"), whole(config, "out"), whole(config, "kernel"),
                      {.stride = whole(config, "stride"), .padding = whole(config, "padding")});
  }
  if (name == "multihead_attention") {
    return nn::MultiheadAttention(whole(config, "d_model"), whole(config, "heads"),
                                  {.batch_first = flag(config, "batch_first")});
  }
  if (name == "mlp") return mlp_of(config);
  if (name == "attention") {
    return std::make_shared<FusedAttention>(whole(config, "d_model"), whole(config, "heads"));
  }
  if (name == "gpt_block") return std::make_shared<Block>(config);
  return std::make_shared<Gpt>(config);
}

/// The numbers of a case, in its dtype.
class Numbers {
 public:
  explicit Numbers(const VectorCase& example)
      : tensors_(example.at("tensors").as_object()),
        dtype_(tensors::parse_dtype(test::text_of(example.at("dtype")))) {}
  DType dtype() const { return dtype_; }
  LocalTensor at(const std::string& name) const {
    const LocalTensor numbers = tensor_of(tensors_.at(name).as_object());
    return tensors::is_floating_point(numbers.dtype()) ? numbers.to(dtype_) : numbers;
  }
  void expect(const Tensor& found, const std::string& name) const {
    ASSERT_TRUE(found.defined()) << name;
    const Tolerance tolerance =
        dtype_ == DType::f64 ? Tolerance{1e-9, 1e-10} : Tolerance{1e-4, 1e-5};
    EXPECT_EQ(difference(gathered(found), at(name), tolerance), "") << name;
  }
  /// How many names start so.
  std::size_t count(std::string_view prefix) const {
    std::size_t found = 0;
    for (const auto& entry : tensors_) found += entry.key().starts_with(prefix) ? 1 : 0;
    return found;
  }

 private:
  const boost::json::object& tensors_;
  const DType dtype_;
};

void check_module(const VectorCase& example, const DeviceMesh* mesh) {
  SCOPED_TRACE(test::text_of(example.at("id")));
  const Numbers numbers(example);
  const auto model =
      module_of(test::text_of(example.at("module")), example.at("config").as_object());
  model->to(numbers.dtype());
  nn::StateDict state;
  for (const auto& [name, parameter] : model->named_parameters())
    state.insert(name, Tensor(numbers.at("param/" + name)));
  EXPECT_EQ(state.names().size(), numbers.count("param/"));
  model->load_state_dict(state, {.strict = false});  // not strict: a head that is the table
  if (mesh != nullptr) place_parameters(*model, *mesh);
  const Tensor input = everywhere(numbers.at("input"), mesh);
  const bool wants_gradient = tensors::is_floating_point(input.dtype());
  if (wants_gradient) input.requires_grad_();
  const Tensor output = (*model)(input);
  numbers.expect(output.detach(), "output");
  output.backward(everywhere(numbers.at("grad_output"), mesh));
  if (wants_gradient) numbers.expect(input.grad(), "grad/input");
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters.size() + (wants_gradient ? 1 : 0), numbers.count("grad/"));
  for (const auto& [name, parameter] : parameters) numbers.expect(parameter.grad(), "grad/" + name);
}

TEST(TrainingModulesTest, ModulesAndTheirGradientsArePyTorchs) {
  const std::vector<VectorCase> examples = cases_of("training_modules", "module");
  EXPECT_EQ(examples.size(), 33U);
  for (const VectorCase& example : examples) check_module(example, nullptr);
}

TEST(TrainingModulesTest, ModulesCutOverAMeshHaveTheSameGradients) {
  const std::vector<VectorCase> examples = cases_of("training_modules", "module");
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const VectorCase& example : examples) check_module(example, &mesh);
  });
}

Reduction reduction_of(const std::string& name) {
  if (name == "none") return Reduction::none;
  return name == "sum" ? Reduction::sum : Reduction::mean;
}

/// @param which how the scores are cut on the mesh
void check_loss(const VectorCase& example, const DeviceMesh* mesh, std::size_t which) {
  SCOPED_TRACE(test::text_of(example.at("id")) + " " + std::to_string(which));
  const Shape shape = test::sizes_of(example.at("logits_shape"));
  const auto given = [&](const char* name, const Shape& of, DType dtype = DType::f64) {
    return tensor_of(example.at(name), of, dtype);
  };
  const Reduction reduction = reduction_of(test::text_of(example.at("reduction")));
  LossOptions options{.reduction = reduction,
                      .ignore_index = whole(example, "ignore_index"),
                      .label_smoothing = number(example, "label_smoothing")};
  if (!example.at("weight").is_null())
    options.weight = everywhere(given("weight", {shape[1]}), mesh);
  const Tensor logits = placed(given("logits", shape), mesh, which).detach();
  logits.requires_grad_();
  const Tensor target = everywhere(given("target", {shape[0]}, DType::i64), mesh);
  const Tensor loss = mesh == nullptr ? nn::CrossEntropyLoss(options)(logits, target)
                                      : cross_entropy(logits, target, options);
  const Shape result = reduction == Reduction::none ? Shape{shape[0]} : Shape{};
  EXPECT_EQ(difference(gathered(loss.detach()), given("loss", result), {1e-9, 1e-10}), "");
  loss.backward(everywhere(given("grad_output", result), mesh));
  EXPECT_EQ(difference(gathered(logits.grad()), given("grad_logits", shape), {1e-9, 1e-10}), "");
}

TEST(TrainingModulesTest, LossesAndTheirGradientsArePyTorchsOnAnyMesh) {
  const std::vector<VectorCase> examples = cases_of("training_modules", "cross_entropy_loss");
  EXPECT_EQ(examples.size(), 29U);
  for (const VectorCase& example : examples) check_loss(example, nullptr, 0);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const VectorCase& example : examples) {
      for (std::size_t which = 0; which < 3; ++which) check_loss(example, &mesh, which);
    }
  });
}

}  // namespace
}  // namespace dtrun::dtensor::vector_models
