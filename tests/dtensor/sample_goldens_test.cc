// Every operator in every dtype, with its gradient, against PyTorch's recorded results:
// make_sample_goldens.py makes them, of the calls in tests/dtensor/samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <map>
#include <set>

#include "dtensor/operator_samples.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/tensor/ops.h"
#include "tensor/all_dtypes.h"
#include "tensor/golden_file.h"

namespace dtrun::dtensor {
namespace {

using tensors::golden_tensor;
using tensors::GoldenCase;

using Reasons = std::map<std::string, std::string>;

/// Samples of which PyTorch's results say nothing.
const Reasons kWithoutGolden = {
    {"dropout", "its random numbers are others than PyTorch's"},
    {"scaled_dot_product_attention, dropped", "its random numbers are others than PyTorch's"}};

struct Difference {
  std::string dtypes;
  std::string reason;
};
using Differences = std::map<std::string, Difference>;
/// Where PyTorch refuses, and this does not.
const Differences kTakesMore = [] {
  Differences more;
  for (const char* form : {"nll_loss", "nll_loss, ignore_index", "nll_loss, none", "nll_loss, sum",
                           "nll_loss, of one row", "nll_loss, of places"})
    more[form] = {" i64 i32 u8 i16 i8", "what is picked, added up and divided is any number"};
  for (const char* form : {"mse_loss, none", "mse_loss, sum"})
    more[form] = {" i64 i32 u8 i16 i8", "squares of integers are integers, and so is their sum"};
  for (const char* form : {"topk", "topk, dim -1", "topk, smallest"})
    more[form] = {" bool", "false is less than true, as in sort"};
  return more;
}();
/// Where this refuses, and PyTorch does not.
const Differences kTakesLess = [] {
  Differences less = {{"add_, times", {" bool", "2 * true is no bool, in place or not"}},
                      {"hardtanh", {" u8", "the bound -1 is no u8; PyTorch 2.11 refuses as well"}}};
  for (const char* form : {"conv2d", "conv2d, no bias", "conv2d, stride and padding",
                           "conv2d, groups", "conv2d, one image"})
    less[form] = {" i64 i32 u8 i16 i8", "no library multiplies windows of integers"};
  less["conv2d, dilation"] = {" i64", "no library multiplies windows of integers"};
  for (const char* form : {"dropout, in evaluation", "dropout, of all"})
    less[form] = {" i64 i32 u8 bool i16 i8", "x / (1 - p) is no integer, and training is no dtype"};
  return less;
}();

/// The same of tensor_edges.
const Differences kTakesMoreOfEdges = [] {
  Differences more;
  for (const char* form : {"conv2d, groups", "conv2d, stride and padding"})
    more[form] = {" f32[0, 4] f32[3, 0]", "the padding alone has places for the window"};
  for (const char* form : {"mse_loss, none", "mse_loss, sum"})
    more[form] = {" i64[0, 4] i64[3, 0]", "as where there are elements"};
  for (const char* form : {"nll_loss", "nll_loss, ignore_index", "nll_loss, none", "nll_loss, sum",
                           "nll_loss, of one row", "nll_loss, of places"})
    more[form] = {" i64[0, 4]", "as where there are elements"};
  return more;
}();
const Differences kTakesLessOfEdges = [] {
  const char* const kNoElements = "where there are no elements PyTorch does not look at the dtype";
  const char* const kNoIndex = "where there are no elements PyTorch does not look at the index";
  Differences less;
  for (const char* form : {"softmax", "softmax, dim 0", "log_softmax", "log_softmax, dim 0"})
    less[form] = {" i64[0, 4] i64[3, 0]", kNoElements};
  for (const char* form : {"", ", all keys", ", grouped", ", mask", ", scale", ", weights"})
    less[std::string("scaled_dot_product_attention") + form] = {" i64[0, 4]", kNoElements};
  for (const char* form : {"dropout, in evaluation", "dropout, of all"})
    less[form] = {" i64[0, 4] i64[3, 0]", "as where there are elements"};
  for (const char* form : {"index_add", "index_add_", "index_add_, alpha"})
    less[form] = {" f32[0, 4] i64[0, 4]", kNoIndex};
  less["index_add, alpha, dim -1"] = {" f32[3, 0] i64[3, 0]", kNoIndex};
  return less;
}();
/// Where the elements are others than PyTorch's of special numbers, by operator and dtype.
const Reasons kOtherOfSpecials = [] {
  Reasons others = {
      {"gelu in bf16", "PyTorch's of infinity is nan in bf16, and infinity in the others"},
      {"maximum in bf16", "of 0 and -0 PyTorch takes the first in bf16; either is right"}};
  for (const char* dtype : {" in f32", " in bf16"})
    others[std::string("conv2d, dilation") + dtype] =
        "PyTorch leaves out some of the products with zeros of the padding";
  const std::string attention = "scaled_dot_product_attention";
  for (const char* dtype : {" in f32", " in f64", " in f16", " in bf16"}) {
    for (const char* form : {"", ", all keys", ", grouped", ", scale"})
      others[attention + form + dtype] =
          "PyTorch's kernel gives keys no weight where a score is nan";
    others[attention + ", mask" + dtype] =
        "a key that the mask hides counts for nothing here; its nan comes through in PyTorch";
  }
  return others;
}();

void expect_known(const char* what, const std::map<std::string, std::string>& found,
                  const Differences& known) {
  std::map<std::string, std::string> dtypes;
  for (const auto& [op, difference] : known) {
    std::printf("%s than PyTorch: %s of%s: %s\n", what, op.c_str(), difference.dtypes.c_str(),
                difference.reason.c_str());
    dtypes[op] = difference.dtypes;
  }
  EXPECT_EQ(found, dtypes) << "taking " << what;
}

using SamplesByName = std::map<std::string, OperatorSample>;
SamplesByName samples_by_name(std::int64_t rows = 3, std::int64_t columns = 4) {
  SamplesByName samples;
  for (OperatorSample& sample : operator_samples(rows, columns)) {
    const std::string name = sample.name;
    EXPECT_TRUE(samples.emplace(name, std::move(sample)).second) << name << " is there twice";
  }
  return samples;
}

Tensors inputs_of(const GoldenCase& golden) {
  Tensors inputs;
  for (const boost::json::value& fields : golden.at("in").as_array()) {
    const Tensor input = golden_tensor(fields);
    inputs.push_back(tensors::is_floating_point(input.dtype()) ? input.requires_grad_() : input);
  }
  return inputs;
}

constexpr const char* kOtherElements = "the elements are ";

/// Empty where all is right. @param tolerance of each element and of the greatest; 0: to the bit,
/// where all nans are one
std::string difference_of(const LocalTensor& found, const LocalTensor& right, double tolerance) {
  if (found.dtype() != right.dtype())
    return "the dtype is " + std::string(tensors::dtype_name(found.dtype()));
  if (found.shape() != right.shape())
    return "the shape is " + tensors::shape_to_string(found.shape());
  if (!tensors::is_floating_point(right.dtype()))
    return found.to_vector_i64() == right.to_vector_i64() ? "" : kOtherElements + found.to_string();
  const std::vector<double> got = found.to_vector(), wanted = right.to_vector();
  double greatest = 0;
  for (const double x : wanted) greatest = std::max(greatest, std::isfinite(x) ? std::abs(x) : 0);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool is_signed = tolerance > 0 || std::signbit(got[i]) == std::signbit(wanted[i]);
    if (std::isnan(wanted[i]) ? std::isnan(got[i]) : got[i] == wanted[i] && is_signed) continue;
    if (tolerance > 0 && std::isfinite(wanted[i]) &&
        std::abs(got[i] - wanted[i]) <= tolerance * (std::abs(wanted[i]) + greatest))
      continue;
    return kOtherElements + found.to_string() + "\nnot " + right.to_string();
  }
  return "";
}

/// A gradient that is not there is one of zeros.
std::string gradient_difference(const Tensor& found, const boost::json::value& right,
                                double tolerance) {
  if (right.is_null())
    return !found.defined() || !tensors::any(found.local()).item() ? "" : "not 0";
  const LocalTensor expected = golden_tensor(right);
  if (!found.defined()) return tensors::any(expected).item() ? "there is none" : "";
  return difference_of(found.local(), expected, tolerance);
}

std::string wrong_gradients(const GoldenCase& golden, const Tensors& inputs, const Tensor& result,
                            double tolerance) {
  const boost::json::array& right = golden.at("grads").as_array();
  Tensors wanted, found;
  std::ranges::copy_if(inputs, std::back_inserter(wanted), &Tensor::requires_grad);
  if (result.requires_grad()) found = grad({result}, wanted, {golden_tensor(golden.at("grad"))});
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const Tensor gradient = found.empty() ? Tensor() : found[next++];
    const std::string wrong = gradient_difference(gradient, right[i], tolerance);
    if (!wrong.empty()) return "gradient of input " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

/// "" where all is as PyTorch's, else what is not; "takes more" and "takes less" of refusals.
std::string outcome_of(const GoldenCase& golden, const OperatorSample& sample) {
  const Tensors inputs = inputs_of(golden);
  const boost::json::value* const rtol = golden.if_contains("rtol");
  const double tolerance = rtol != nullptr ? rtol->to_number<double>() : 0;
  Tensor result;
  try {
    result = sample.run(inputs);
  } catch (const base::Error& error) {
    if (error.code() != base::ErrorCode::kInvalidArgument) return error.what();
    return golden.contains("error") ? "" : "takes less";
  }
  if (golden.contains("error")) return "takes more";
  std::string wrong = difference_of(result.local(), golden_tensor(golden.at("out")), tolerance);
  if (!wrong.empty() || !golden.contains("grads")) return wrong;
  return wrong_gradients(golden, inputs, result, tolerance);
}

void expect_shapes_of(const OperatorSample& sample, const GoldenCase& golden) {
  const boost::json::array& inputs = golden.at("in").as_array();
  ASSERT_EQ(inputs.size(), sample.inputs.size()) << sample.name;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const LocalTensor input = golden_tensor(inputs[i]);
    EXPECT_EQ(input.shape(), sample.inputs[i].shape()) << sample.name;
    const bool stands_for_any = sample.inputs[i].dtype() == sample.stand_in;
    EXPECT_EQ(tensors::dtype_short_name(input.dtype()),
              stands_for_any ? golden.at("dtype").as_string()
                             : tensors::dtype_short_name(sample.inputs[i].dtype()))
        << sample.name;
  }
}

TEST(SampleGoldensTest, EveryOperatorIsPyTorchsInEveryDtype) {
  const SamplesByName samples = samples_by_name();
  std::map<std::string, std::string> more, less;  // the dtypes
  int cases = 0;
  for (const GoldenCase& golden : tensors::read_golden_file("tensor_samples")) {
    const std::string op(golden.at("op").as_string()), dtype(golden.at("dtype").as_string());
    ASSERT_TRUE(samples.contains(op)) << op << " is in no sample any more";
    expect_shapes_of(samples.at(op), golden);
    const std::string outcome = outcome_of(golden, samples.at(op));
    ++cases;
    if (outcome == "takes more") {
      more[op] += " " + dtype;
    } else if (outcome == "takes less") {
      less[op] += " " + dtype;
    } else {
      EXPECT_EQ(outcome, "") << op << " in " << dtype;
    }
  }
  std::printf("%d cases\n", cases);
  EXPECT_GT(cases, 2000);
  expect_known("more", more, kTakesMore);
  expect_known("less", less, kTakesLess);
}

std::string inputs_text(const GoldenCase& golden) {
  std::string text;
  for (const boost::json::value& input : golden.at("in").as_array())
    text += "\n" + golden_tensor(input).to_string();
  return text;
}

/// Whether a case of tensor_edges has elements.
bool is_special(const GoldenCase& golden) {
  return tensors::golden_integers(golden.at("size")) == std::vector<std::int64_t>{3, 4};
}

/// How a case of tensor_edges is called: its dtype, and its size if it is empty.
std::string edge_text(const GoldenCase& golden) {
  const std::string dtype(golden.at("dtype").as_string());
  if (is_special(golden)) return dtype;
  return dtype + tensors::shape_to_string(tensors::golden_integers(golden.at("size")));
}

TEST(SampleGoldensTest, EmptyMatricesAndSpecialNumbersGiveWhatPyTorchGives) {
  std::map<std::vector<std::int64_t>, SamplesByName> samples;
  for (const auto& [rows, columns] : {std::pair(0, 4), std::pair(3, 0), std::pair(3, 4)})
    samples[{rows, columns}] = samples_by_name(rows, columns);
  std::map<std::string, std::string> more, less;  // the dtypes
  std::map<std::string, std::set<std::vector<std::int64_t>>> sizes;
  std::set<std::string> differ;
  int cases = 0;
  for (const GoldenCase& golden : tensors::read_golden_file("tensor_edges")) {
    const std::string op(golden.at("op").as_string());
    const std::vector<std::int64_t> size = tensors::golden_integers(golden.at("size"));
    const SamplesByName& of_size = samples.at(size);
    ASSERT_TRUE(of_size.contains(op)) << op << " is in no sample any more";
    sizes[op].insert(size);
    expect_shapes_of(of_size.at(op), golden);
    const std::string outcome = outcome_of(golden, of_size.at(op));
    ++cases;
    const std::string of_dtype = op + " in " + edge_text(golden);
    if (kOtherOfSpecials.contains(of_dtype) && outcome.starts_with(kOtherElements)) {
      differ.insert(of_dtype);
    } else if (outcome == "takes more") {
      more[op] += " " + edge_text(golden);
    } else if (outcome == "takes less") {
      less[op] += " " + edge_text(golden);
    } else {
      EXPECT_EQ(outcome, "") << of_dtype << " of" << inputs_text(golden);
    }
  }
  std::printf("%d cases\n", cases);
  EXPECT_GT(cases, 4000);
  for (const auto& [name, sample] : samples.at({3, 4})) {
    // Of special numbers there is none where floating point numbers are refused.
    EXPECT_GE(sizes[name].size(), kWithoutGolden.contains(name) ? 0U : 2U) << name;
  }
  for (const auto& [of_dtype, reason] : kOtherOfSpecials) {
    std::printf("other than PyTorch of special numbers: %s: %s\n", of_dtype.c_str(),
                reason.c_str());
    EXPECT_TRUE(differ.contains(of_dtype)) << of_dtype << " is as PyTorch's";
  }
  expect_known("more", more, kTakesMoreOfEdges);
  expect_known("less", less, kTakesLessOfEdges);
}

TEST(SampleGoldensTest, NoOperatorIsWithoutAGolden) {
  std::map<std::string, std::set<std::string>> dtypes;
  for (const GoldenCase& golden : tensors::read_golden_file("tensor_samples")) {
    dtypes[std::string(golden.at("op").as_string())].insert(
        std::string(golden.at("dtype").as_string()));
  }
  for (const auto& [name, sample] : samples_by_name()) {
    if (const auto reason = kWithoutGolden.find(name); reason != kWithoutGolden.end()) {
      std::printf("%s has no golden: %s\n", name.c_str(), reason->second.c_str());
      EXPECT_FALSE(dtypes.contains(name)) << name;
      continue;
    }
    for (const DType dtype : tensors::kAllDTypes) {
      EXPECT_TRUE(dtypes[name].contains(std::string(tensors::dtype_short_name(dtype))))
          << name << " in " << tensors::dtype_name(dtype)
          << " has no case: tests/vectors/make_sample_goldens.py makes them";
    }
  }
}

}  // namespace
}  // namespace dtrun::dtensor
