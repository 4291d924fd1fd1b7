// Every operator on every dtype, compared with PyTorch's results (make_operator_goldens.py).
#include <gtest/gtest.h>

#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/convolution.h"
#include "dtrun/tensor/ops/index.h"
#include "tensor/golden_file.h"

namespace dtrun::tensors {
namespace {

using Arguments = boost::json::object;

/// The tensors of a case, and its numbers.
class GoldenInputs {
 public:
  explicit GoldenInputs(const boost::json::array& described) {
    tensors_.reserve(described.size());
    for (const boost::json::value& fields : described) {
      const boost::json::value* number = fields.as_object().if_contains("number");
      if (number == nullptr) {
        tensors_.push_back(golden_tensor(fields));
        operands_.emplace_back(tensors_.back());
      } else if (number->is_bool()) {
        operands_.emplace_back(number->as_bool());
      } else if (number->is_int64()) {
        operands_.emplace_back(number->as_int64());
      } else {
        operands_.emplace_back(number->as_double());
      }
    }
  }
  std::size_t size() const { return operands_.size(); }
  const Operand& operator[](std::size_t k) const { return operands_[k]; }
  const LocalTensor& tensor(std::size_t k) const { return operands_[k].tensor(); }

 private:
  std::vector<LocalTensor> tensors_;
  std::vector<Operand> operands_;
};

using Outputs = std::vector<LocalTensor>;
using Run = std::function<Outputs(const GoldenInputs&, const Arguments&)>;
using Catalogue = std::map<std::string, Run>;

Scalar number_argument(const Arguments& arguments, const char* name) {
  const boost::json::value& value = arguments.at(name);
  return value.is_int64() ? Scalar(value.as_int64()) : Scalar(value.as_double());
}

void add_unary(Catalogue& catalogue) {
  using Unary = LocalTensor (*)(const LocalTensor&);
  const std::map<std::string, Unary> unary = {{"neg", neg},
                                              {"abs", abs},
                                              {"sign", sign},
                                              {"square", square},
                                              {"floor", floor},
                                              {"ceil", ceil},
                                              {"round", round},
                                              {"trunc", trunc},
                                              {"relu", relu},
                                              {"isnan", isnan},
                                              {"isinf", isinf},
                                              {"isfinite", isfinite},
                                              {"sqrt", sqrt},
                                              {"rsqrt", rsqrt},
                                              {"exp", exp},
                                              {"log", log},
                                              {"log2", log2},
                                              {"log10", log10},
                                              {"log1p", log1p},
                                              {"expm1", expm1},
                                              {"sin", sin},
                                              {"cos", cos},
                                              {"tan", tan},
                                              {"sinh", sinh},
                                              {"asinh", asinh},
                                              {"acosh", acosh},
                                              {"atanh", atanh},
                                              {"cosh", cosh},
                                              {"tanh", tanh},
                                              {"asin", asin},
                                              {"acos", acos},
                                              {"atan", atan},
                                              {"mish", mish},
                                              {"hardsigmoid", hardsigmoid},
                                              {"erf", erf},
                                              {"erfc", erfc},
                                              {"sigmoid", sigmoid},
                                              {"silu", silu},
                                              {"bitwise_not", bitwise_not},
                                              {"logical_not", logical_not},
                                              {"reciprocal", reciprocal}};
  for (const auto& [name, run] : unary) {
    catalogue[name] = [run = run](const GoldenInputs& in, const Arguments&) {
      return Outputs{run(in.tensor(0))};
    };
  }
  catalogue["hardtanh"] = [](const auto& in, const auto&) {
    return Outputs{hardtanh(in.tensor(0))};
  };
  catalogue["leaky_relu"] = [](const auto& in, const auto&) {
    return Outputs{leaky_relu(in.tensor(0))};
  };
  catalogue["elu"] = [](const auto& in, const auto&) { return Outputs{elu(in.tensor(0))}; };
  catalogue["softplus"] = [](const auto& in, const auto&) {
    return Outputs{softplus(in.tensor(0))};
  };
  catalogue["gelu"] = [](const auto& in, const auto&) { return Outputs{gelu(in.tensor(0))}; };
  catalogue["gelu_tanh"] = [](const auto& in, const auto&) {
    return Outputs{gelu(in.tensor(0), GeluForm::tanh)};
  };
}

void add_binary(Catalogue& catalogue) {
  using Binary = LocalTensor (*)(const Operand&, const Operand&);
  const std::map<std::string, Binary> binary = {{"add", add},
                                                {"sub", sub},
                                                {"mul", mul},
                                                {"div", div},
                                                {"maximum", maximum},
                                                {"minimum", minimum},
                                                {"floor_divide", floor_divide},
                                                {"trunc_divide", trunc_divide},
                                                {"remainder", remainder},
                                                {"fmod", fmod},
                                                {"eq", eq},
                                                {"ne", ne},
                                                {"lt", lt},
                                                {"le", le},
                                                {"gt", gt},
                                                {"ge", ge},
                                                {"logical_and", logical_and},
                                                {"logical_or", logical_or},
                                                {"logical_xor", logical_xor},
                                                {"bitwise_and", bitwise_and},
                                                {"bitwise_or", bitwise_or},
                                                {"bitwise_xor", bitwise_xor},
                                                {"bitwise_left_shift", bitwise_left_shift},
                                                {"bitwise_right_shift", bitwise_right_shift},
                                                {"pow", pow},
                                                {"atan2", atan2},
                                                {"logaddexp", logaddexp}};
  for (const auto& [name, run] : binary) {
    catalogue[name] = [run = run](const GoldenInputs& in, const Arguments&) {
      return Outputs{run(in[0], in[1])};
    };
  }
}

void add_in_place(Catalogue& catalogue) {
  using Unary = const LocalTensor& (*)(const LocalTensor&);
  using Binary = const LocalTensor& (*)(const LocalTensor&, const Operand&);
  const std::map<std::string, Unary> unary = {
      {"neg_", neg_}, {"abs_", abs_}, {"sqrt_", sqrt_}, {"exp_", exp_}, {"relu_", relu_}};
  const std::map<std::string, Binary> binary = {{"add_", add_},
                                                {"div_", div_},
                                                {"pow_", pow_},
                                                {"bitwise_or_", bitwise_or_},
                                                {"remainder_", remainder_}};
  for (const auto& [name, run] : unary) {
    catalogue[name] = [run = run](const GoldenInputs& in, const Arguments&) {
      return Outputs{run(in.tensor(0))};
    };
  }
  for (const auto& [name, run] : binary) {
    catalogue[name] = [run = run](const GoldenInputs& in, const Arguments&) {
      return Outputs{run(in.tensor(0), in[1])};
    };
  }
}

void add_ternary(Catalogue& catalogue) {
  catalogue["where"] = [](const auto& in, const auto&) {
    return Outputs{where(in.tensor(0), in[1], in[2])};
  };
  catalogue["clamp"] = [](const auto& in, const auto&) {
    return Outputs{clamp(in.tensor(0), in[1], in[2])};
  };
  catalogue["lerp"] = [](const auto& in, const auto&) {
    return Outputs{lerp(in.tensor(0), in.tensor(1), in[2])};
  };
  catalogue["addcmul"] = [](const auto& in, const auto& arguments) {
    return Outputs{
        addcmul(in.tensor(0), in.tensor(1), in.tensor(2), number_argument(arguments, "value"))};
  };
  catalogue["addcdiv"] = [](const auto& in, const auto& arguments) {
    return Outputs{
        addcdiv(in.tensor(0), in.tensor(1), in.tensor(2), number_argument(arguments, "value"))};
  };
}

std::vector<int> dims_argument(const Arguments& arguments) {
  std::vector<int> dims;
  for (const std::int64_t dim : golden_integers(arguments.at("dims"))) {
    dims.push_back(static_cast<int>(dim));
  }
  return dims;
}

double power_argument(const Arguments& arguments) {
  return std::stod(std::string(arguments.at("power").as_string()));
}

void add_reductions(Catalogue& catalogue) {
  using Reduction = LocalTensor (*)(const LocalTensor&, const std::vector<int>&, bool);
  const std::map<std::string, Reduction> reductions = {
      {"sum", sum}, {"mean", mean}, {"amax", amax},           {"amin", amin},
      {"any", any}, {"all", all},   {"logsumexp", logsumexp},
  };
  for (const auto& [name, run] : reductions) {
    catalogue[name] = [run = run](const GoldenInputs& in, const Arguments& arguments) {
      return Outputs{
          run(in.tensor(0), dims_argument(arguments), arguments.at("keepdim").as_bool())};
    };
  }
  catalogue["var"] = [](const auto& in, const auto& arguments) {
    return Outputs{
        var(in.tensor(0), dims_argument(arguments), 1, arguments.at("keepdim").as_bool())};
  };
  catalogue["stddev"] = [](const auto& in, const auto& arguments) {
    return Outputs{
        stddev(in.tensor(0), dims_argument(arguments), 1, arguments.at("keepdim").as_bool())};
  };
  catalogue["norm"] = [](const auto& in, const auto& arguments) {
    return Outputs{norm(in.tensor(0), power_argument(arguments), dims_argument(arguments),
                        arguments.at("keepdim").as_bool())};
  };
}

void add_reductions_along_a_dim(Catalogue& catalogue) {
  using Whole = LocalTensor (*)(const LocalTensor&);
  using Along = LocalTensor (*)(const LocalTensor&, int, bool);
  struct Pair {
    Whole whole;
    Along along;
  };
  const std::map<std::string, Pair> pairs = {
      {"prod", {prod, prod}}, {"argmax", {argmax, argmax}}, {"argmin", {argmin, argmin}}};
  for (const auto& [name, pair] : pairs) {
    catalogue[name] = [pair = pair](const GoldenInputs& in, const Arguments& arguments) {
      if (!arguments.contains("dim")) return Outputs{pair.whole(in.tensor(0))};
      return Outputs{
          pair.along(in.tensor(0), static_cast<int>(arguments.at("dim").as_int64()), false)};
    };
  }
  const std::map<std::string, Extremes (*)(const LocalTensor&, int, bool)> extremes = {
      {"max", max}, {"min", min}};
  for (const auto& [name, run] : extremes) {
    const Whole whole = name == "max" ? Whole(max) : Whole(min);
    catalogue[name] = [run = run, whole](const GoldenInputs& in, const Arguments& arguments) {
      if (!arguments.contains("dim")) return Outputs{whole(in.tensor(0))};
      const Extremes found =
          run(in.tensor(0), static_cast<int>(arguments.at("dim").as_int64()), false);
      return Outputs{found.values, found.indices};
    };
  }
  const std::map<std::string, LocalTensor (*)(const LocalTensor&, int)> scans = {
      {"cumsum", cumsum}, {"cumprod", cumprod}};
  for (const auto& [name, run] : scans) {
    catalogue[name] = [run = run](const GoldenInputs& in, const Arguments& arguments) {
      return Outputs{run(in.tensor(0), static_cast<int>(arguments.at("dim").as_int64()))};
    };
  }
}

/// Results, then the gradients of the inputs.
void add_rows(Catalogue& catalogue) {
  const auto dim_of = [](const Arguments& arguments) {
    return static_cast<int>(arguments.at("dim").as_int64());
  };
  catalogue["softmax"] = [dim_of](const GoldenInputs& in, const Arguments& arguments) {
    const LocalTensor output = softmax(in.tensor(0), dim_of(arguments));
    return Outputs{output, softmax_backward(in.tensor(1), output, dim_of(arguments))};
  };
  catalogue["log_softmax"] = [dim_of](const GoldenInputs& in, const Arguments& arguments) {
    const LocalTensor output = log_softmax(in.tensor(0), dim_of(arguments));
    return Outputs{output, log_softmax_backward(in.tensor(1), output, dim_of(arguments))};
  };
  catalogue["layer_norm"] = [](const GoldenInputs& in, const Arguments&) {
    const NormOptions options{.weight = in.tensor(2), .bias = in.tensor(3)};
    const Normalized forward = layer_norm(in.tensor(0), options);
    const NormGradients grads = layer_norm_backward(in.tensor(1), in.tensor(0), forward, options);
    return Outputs{forward.output, grads.a, grads.weight, grads.bias};
  };
  catalogue["rms_norm"] = [](const GoldenInputs& in, const Arguments&) {
    const NormOptions options{.weight = in.tensor(2), .bias = std::nullopt};
    const Normalized forward = rms_norm(in.tensor(0), options);
    const NormGradients grads = rms_norm_backward(in.tensor(1), in.tensor(0), forward, options);
    return Outputs{forward.output, grads.a, grads.weight};
  };
  catalogue["cross_entropy"] = [](const GoldenInputs& in, const Arguments&) {
    const CrossEntropy forward = cross_entropy_rows(in.tensor(0), in.tensor(1));
    return Outputs{forward.loss, cross_entropy_rows_backward(in.tensor(2), in.tensor(0),
                                                             in.tensor(1), forward.logsumexp)};
  };
}

HeightWidth size_argument(const Arguments& arguments, const char* name, HeightWidth otherwise) {
  if (!arguments.contains(name)) return otherwise;
  const auto sizes = golden_integers(arguments.at(name));
  return {sizes[0], sizes[1]};
}

/// The result, then the gradients of images and weights.
void add_convolution(Catalogue& catalogue) {
  catalogue["conv2d"] = [](const GoldenInputs& in, const Arguments& arguments) {
    const ConvOptions options{
        .stride = size_argument(arguments, "stride", 1),
        .padding = size_argument(arguments, "padding", 0),
        .dilation = size_argument(arguments, "dilation", 1),
        .groups = arguments.contains("groups") ? arguments.at("groups").as_int64() : 1};
    const LocalTensor images = in.tensor(0), weight = in.tensor(1), grad = in.tensor(2);
    return Outputs{conv2d(images, weight, options),
                   conv2d_input_gradient(grad, weight, {images.size(2), images.size(3)}, options),
                   conv2d_weight_gradient(grad, images, {weight.size(2), weight.size(3)}, options)};
  };
}

void add_picks(Catalogue& catalogue) {
  const auto dim_of = [](const Arguments& arguments) {
    return static_cast<int>(arguments.at("dim").as_int64());
  };
  catalogue["gather"] = [dim_of](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{gather(in.tensor(0), dim_of(arguments), in.tensor(1))};
  };
  catalogue["index_select"] = [dim_of](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{index_select(in.tensor(0), dim_of(arguments), in.tensor(1))};
  };
  catalogue["scatter"] = [dim_of](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{scatter(in.tensor(0), dim_of(arguments), in.tensor(1), in.tensor(2))};
  };
  catalogue["scatter_add"] = [dim_of](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{scatter_add(in.tensor(0), dim_of(arguments), in.tensor(1), in.tensor(2))};
  };
  catalogue["masked_select"] = [](const GoldenInputs& in, const Arguments&) {
    return Outputs{masked_select(in.tensor(0), in.tensor(1))};
  };
  catalogue["one_hot"] = [](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{one_hot(in.tensor(0), arguments.at("count").as_int64())};
  };
  catalogue["index_add"] = [dim_of](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{index_add(in.tensor(0), dim_of(arguments), in.tensor(1), in.tensor(2))};
  };
}

template <typename T>
std::vector<T> list_argument(const Arguments& arguments, const char* name) {
  std::vector<T> list;
  for (const boost::json::value& item : arguments.at(name).as_array()) {
    list.push_back(static_cast<T>(item.as_int64()));
  }
  return list;
}

void add_rearrangements(Catalogue& catalogue) {
  catalogue["flip"] = [](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{flip(in.tensor(0), list_argument<int>(arguments, "dims"))};
  };
  catalogue["roll"] = [](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{roll(in.tensor(0), list_argument<std::int64_t>(arguments, "shifts"),
                        list_argument<int>(arguments, "dims"))};
  };
  catalogue["tril"] = [](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{tril(in.tensor(0), arguments.at("diagonal").as_int64())};
  };
  catalogue["triu"] = [](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{triu(in.tensor(0), arguments.at("diagonal").as_int64())};
  };
  catalogue["pad"] = [](const GoldenInputs& in, const Arguments& arguments) {
    return Outputs{pad(in.tensor(0), list_argument<std::int64_t>(arguments, "pads"), 1)};
  };
  const auto order_of = [](const Arguments& arguments) {
    return arguments.at("descending").as_bool() ? SortOrder::descending : SortOrder::ascending;
  };
  const auto dim_of = [](const Arguments& arguments) {
    return static_cast<int>(arguments.at("dim").as_int64());
  };
  catalogue["sort"] = [=](const GoldenInputs& in, const Arguments& arguments) {
    const Sorted found = sort(in.tensor(0), dim_of(arguments), order_of(arguments));
    return Outputs{found.values, found.indices};
  };
  catalogue["topk"] = [=](const GoldenInputs& in, const Arguments& arguments) {
    const Sorted found =
        topk(in.tensor(0), arguments.at("k").as_int64(), dim_of(arguments), order_of(arguments));
    return Outputs{found.values, found.indices};
  };
}

Catalogue whole_catalogue() {
  Catalogue catalogue;
  add_unary(catalogue);
  add_binary(catalogue);
  add_in_place(catalogue);
  add_ternary(catalogue);
  add_reductions(catalogue);
  add_reductions_along_a_dim(catalogue);
  add_rows(catalogue);
  add_picks(catalogue);
  add_rearrangements(catalogue);
  add_convolution(catalogue);
  return catalogue;
}

struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

bool is_close(double got, double expected, Tolerance tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(expected)) return true;
  if (!std::isfinite(expected) || (expected == 0 && got == 0 && tolerance.absolute == 0))
    return false;
  return std::abs(got - expected) <= tolerance.relative * std::abs(expected) + tolerance.absolute;
}

/// Empty when all is as it should be.
std::string difference(const LocalTensor& got, const LocalTensor& expected, Tolerance tolerance) {
  if (got.dtype() != expected.dtype())
    return "the dtype is " + std::string(dtype_name(got.dtype()));
  if (got.shape() != expected.shape()) return "the shape is " + shape_to_string(got.shape());
  if (!is_floating_point(got.dtype())) {
    return got.to_vector_i64() == expected.to_vector_i64() ? "" : "got " + got.to_string();
  }
  const std::vector<double> values = got.to_vector();
  const std::vector<double> wanted = expected.to_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_close(values[i], wanted[i], tolerance)) continue;
    char text[100];
    std::snprintf(text, sizeof text, "element %zu is %.17g, not %.17g", i, values[i], wanted[i]);
    return text;
  }
  return "";
}

std::string outcome(const GoldenCase& golden, const Run& run) {
  const auto number = [&](const char* name) {
    const boost::json::value* value = golden.if_contains(name);
    return value != nullptr ? value->to_number<double>() : 0;
  };
  const bool refused = golden.contains("error");
  try {
    const GoldenInputs inputs(golden.at("in").as_array());
    const Outputs outputs = run(inputs, golden.at("args").as_object());
    if (refused) return "no error";
    const boost::json::array& expected = golden.at("out").as_array();
    if (outputs.size() != expected.size()) return "another number of results";
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      std::string text =
          difference(outputs[k], golden_tensor(expected[k]), {number("rtol"), number("atol")});
      if (!text.empty()) return "result " + std::to_string(k) + ": " + text;
    }
    return "";
  } catch (const base::Error& error) {
    return refused && error.code() == base::ErrorCode::kInvalidArgument ? "" : error.what();
  }
}

std::string description(const GoldenCase& golden) {
  std::string text = std::string(golden.at("op").as_string());
  for (const boost::json::value& input : golden.at("in").as_array()) {
    const boost::json::value* number = input.as_object().if_contains("number");
    text += "\n" + (number != nullptr ? serialize(*number) : golden_tensor(input).to_string());
  }
  return text + "\n" + serialize(golden.at("args"));
}

/// Returns how many cases there are.
int compare_with_goldens(const std::string& file) {
  const Catalogue catalogue = whole_catalogue();
  std::map<std::string, int> wrong;
  int count = 0;
  for (const GoldenCase& golden : read_golden_file(file)) {
    const std::string op(golden.at("op").as_string());
    if (!catalogue.contains(op)) {
      ADD_FAILURE() << op;
      continue;
    }
    const std::string problem = outcome(golden, catalogue.at(op));
    ++count;
    if (!problem.empty() && ++wrong[op] <= 4)
      ADD_FAILURE() << "case " << count << ": " << description(golden) << "\n" << problem;
  }
  return count;
}

TEST(OperatorGoldenTest, EveryOperatorGivesPyTorchsResultForEveryDType) {
  EXPECT_GE(compare_with_goldens("tensor_operators"), 2000);
}

TEST(OperatorGoldenTest, EveryOperatorGivesPyTorchsResultForShortIntegers) {
  EXPECT_GE(compare_with_goldens("tensor_short_integers"), 1500);
}

TEST(OperatorGoldenTest, ATensorWithoutDimsGivesPyTorchsResult) {
  EXPECT_GE(compare_with_goldens("tensor_no_dims"), 400);
}

TEST(OperatorGoldenTest, ConvolutionsGivePyTorchsResultsAndGradients) {
  EXPECT_GE(compare_with_goldens("tensor_convolutions"), 36);
}

}  // namespace
}  // namespace dtrun::tensors
