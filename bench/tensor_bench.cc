// Local operations against PyTorch's, which take turns in the same run: microseconds a call, the
// least of all rounds, and PyTorch's divided by dtrun's (more than 1: dtrun is ahead).
//
//     tests/lab/torch-up DIR 2.15.0
//     tensor_bench [--torch DIR/bin/python] [--rounds 3] [--only softmax,add]
//                  [--elements 1024,65536] [--row 1024]
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/attention.h"
#include "dtrun/tensor/ops/convolution.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/ops/optimizer.h"
#include "dtrun/tensor/ops/random.h"
#include "dtrun/tensor/threads.h"
#include "python_peer.h"

namespace {

using namespace dtrun;
using tensors::DType;
using tensors::LocalTensor;
using Call = std::function<void()>;
using Clock = std::chrono::steady_clock;

struct Case {
  std::string op;
  DType dtype;
  std::int64_t elements;
  int threads;
  std::int64_t row;  ///< elements of a row, of operators that have rows

  std::string line() const {
    return fmt::format("{} {} {} {} {}", op, tensors::dtype_short_name(dtype), elements, threads,
                       row);
  }
};

const char* const kOps[] = {"add",
                            "sub",
                            "div",
                            "mul_number",
                            "pow",
                            "maximum",
                            "greater",
                            "where",
                            "clamp",
                            "cast",
                            "sqrt",
                            "log",
                            "sin",
                            "cos",
                            "erf",
                            "exp",
                            "tanh",
                            "gelu",
                            "add_row",
                            "sum",
                            "sum_rows",
                            "sum_columns",
                            "prod",
                            "norm",
                            "logsumexp_rows",
                            "cross_entropy",
                            "amax",
                            "var_rows",
                            "softmax",
                            "log_softmax",
                            "layer_norm",
                            "rms_norm",
                            "cumsum_rows",
                            "argmax_rows",
                            "sort_rows",
                            "pick_rows",
                            "adamw",
                            "matmul",
                            "addmm",
                            "linear",
                            "bmm_16",
                            "bmm_64",
                            "bmm_512",
                            "conv2d",
                            "conv2d_stem",
                            "attention",
                            "attention_causal",
                            "attention_backward",
                            "attention_causal_backward",
                            "attention_decode",
                            "gelu_tanh",
                            "gelu_backward",
                            "gelu_tanh_backward",
                            "silu_backward",
                            "tanh_backward",
                            "sigmoid_backward",
                            "randn",
                            "rand",
                            "randint",
                            "dropout",
                            "mlp_backward"};

Call pointwise_call(const std::string& op, const LocalTensor& x) {
  if (op == "add") return [x] { tensors::add(x, x); };
  if (op == "sub") return [x] { tensors::sub(x, x); };
  if (op == "div") return [x] { tensors::div(x, x); };
  if (op == "maximum") return [x] { tensors::maximum(x, x); };
  if (op == "greater") return [x] { tensors::gt(x, x); };
  if (op == "clamp") return [x] { tensors::clamp(x, -0.5, 0.5); };
  if (op == "cast") {
    const DType other = x.dtype() == DType::f32 ? DType::bf16 : DType::f32;
    return [x, other] { x.to(other); };
  }
  if (op == "mul_number") return [x] { tensors::mul(x, 0.5); };
  if (op == "exp") return [x] { tensors::exp(x); };
  if (op == "tanh") return [x] { tensors::tanh(x); };
  if (op == "gelu") return [x] { tensors::gelu(x); };
  if (op == "gelu_tanh") return [x] { tensors::gelu(x, tensors::GeluForm::tanh); };
  if (op == "gelu_backward") return [x] { tensors::gelu_backward(x, x); };
  if (op == "gelu_tanh_backward") return [x] { tensors::gelu_tanh_backward(x, x); };
  if (op == "silu_backward") return [x] { tensors::silu_backward(x, x); };
  if (op == "tanh_backward") return [x] { tensors::tanh_backward(x, x); };
  if (op == "sigmoid_backward") return [x] { tensors::sigmoid_backward(x, x); };
  if (op == "sum") return [x] { tensors::sum(x); };
  if (op == "amax") return [x] { tensors::amax(x); };
  return {};
}

/// Of numbers of 0.1 and more.
Call positive_call(const std::string& op, const LocalTensor& x) {
  const LocalTensor positive = tensors::add(tensors::abs(x), 0.1);
  const LocalTensor is_large = tensors::gt(positive, 0.5);
  if (op == "pow") return [positive] { tensors::pow(positive, positive); };
  if (op == "sqrt") return [positive] { tensors::sqrt(positive); };
  if (op == "log") return [positive] { tensors::log(positive); };
  if (op == "sin") return [positive] { tensors::sin(positive); };
  if (op == "cos") return [positive] { tensors::cos(positive); };
  if (op == "erf") return [positive] { tensors::erf(positive); };
  if (op == "prod") return [positive] { tensors::prod(positive); };
  if (op == "norm") return [positive] { tensors::norm(positive); };
  if (op == "where") return [=] { tensors::where(is_large, x, positive); };
  return {};
}

Call random_call(const std::string& op, const LocalTensor& x) {
  const auto block = tensors::RandomBlock::whole(x.shape());
  const tensors::TensorOptions options{.dtype = x.dtype()};
  if (op == "randn") return [=] { tensors::randn(block.shape, {1}, options); };
  if (op == "rand") return [=] { tensors::rand_block(block, {1}, options); };
  if (op == "randint") return [=] { tensors::randint_block(0, 1000, block, {1}); };
  if (op == "dropout") return [=] { tensors::dropout(x, 0.5, block, {1}); };
  return {};
}

Call row_call(const std::string& op, const LocalTensor& x, std::int64_t longest) {
  const std::int64_t row = std::min(x.numel(), longest);
  const LocalTensor rows = x.view({-1, row});
  const tensors::NormOptions options{.weight = tensors::ones({row}, {x.dtype()}),
                                     .bias = tensors::zeros({row}, {x.dtype()})};
  if (op == "add_row") return [rows, options] { tensors::add(rows, *options.weight); };
  if (op == "sum_rows") return [rows] { tensors::sum(rows, {1}); };
  if (op == "sum_columns") return [rows] { tensors::sum(rows, {0}); };
  if (op == "var_rows") return [rows] { tensors::var(rows, {1}); };
  if (op == "cumsum_rows") return [rows] { tensors::cumsum(rows, 1); };
  if (op == "argmax_rows") return [rows] { tensors::argmax(rows, 1); };
  if (op == "sort_rows") return [rows] { tensors::sort(rows, 1); };
  if (op == "pick_rows") {
    // Every row once, in another order.
    const std::int64_t count = rows.size(0);
    const LocalTensor order = tensors::remainder(tensors::arange(count) * 7919, count);
    return [rows, order] { tensors::index_select(rows, 0, order); };
  }
  if (op == "logsumexp_rows") return [rows] { tensors::logsumexp(rows, {1}); };
  if (op == "cross_entropy") {
    const LocalTensor target = tensors::remainder(tensors::arange(rows.size(0)) * 7919, row);
    return [rows, target] { tensors::cross_entropy_rows(rows, target, {}); };
  }
  if (op == "softmax") return [rows] { tensors::softmax(rows, 1); };
  if (op == "log_softmax") return [rows] { tensors::log_softmax(rows, 1); };
  if (op == "layer_norm") return [rows, options] { tensors::layer_norm(rows, options); };
  if (op == "rms_norm") {
    return [rows, options] { tensors::rms_norm(rows, {.weight = options.weight}); };
  }
  return {};
}

/// A step over parameters that have that many elements together.
Call adamw_call(std::int64_t elements) {
  constexpr std::int64_t kParameters = 200;
  const tensors::Shape shape = {std::max<std::int64_t>(1, elements / kParameters)};
  tensors::TensorList parameters, gradients, first, second;
  for (std::uint64_t i = 0; i < kParameters; ++i) {
    parameters.push_back(tensors::randn(shape, {.seed = i}));
    gradients.push_back(tensors::randn(shape, {.seed = i + kParameters}));
    first.push_back(tensors::zeros(shape));
    second.push_back(tensors::zeros(shape));
  }
  return [=] { tensors::adam_step_(parameters, gradients, first, second, {}); };
}

/// One sample of 8 heads, numbers of 64. To decode is to ask all keys with the last query alone.
Call attention_call(const Case& what) {
  const std::int64_t positions = std::max<std::int64_t>(1, what.elements / 512);
  const tensors::Shape shape = {1, 8, positions, 64};
  std::vector<LocalTensor> x;
  for (std::uint64_t i = 0; i < 4; ++i) x.push_back(tensors::randn(shape, {i}).to(what.dtype));
  if (what.op == "attention_decode") x[0] = x[0].narrow(2, positions - 1, 1).contiguous();
  tensors::AttentionForm form{.scale = 0.125};
  if (what.op.find("causal") != std::string::npos) form.causal_from = 0;
  const tensors::Attended result = tensors::attention(x[0], x[1], x[2], form);
  if (!what.op.ends_with("backward")) return [=] { tensors::attention(x[0], x[1], x[2], form); };
  return [=] { tensors::attention_backward(x[3], x[0], x[1], x[2], result, form); };
}

/// Square matrices that have that many elements; of bmm_N in batches of N x N.
Call product_call(const Case& what) {
  if (what.op.starts_with("bmm_")) {
    const std::int64_t side = std::stoll(what.op.substr(4));
    const std::int64_t count = std::max<std::int64_t>(1, what.elements / (side * side));
    const LocalTensor x = tensors::randn({count, side, side}, {.seed = 1}).to(what.dtype);
    return [x] { tensors::matmul(x, x); };
  }
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(what.elements)));
  const LocalTensor square = tensors::randn({side, side}, {.seed = 1}).to(what.dtype);
  if (what.op == "matmul") return [square] { tensors::matmul(square, square); };
  if (what.op == "addmm") {
    return [square] { tensors::add_matmul(square, square, square, {.beta = 0.5, .alpha = 2}); };
  }
  const LocalTensor bias = tensors::ones({side}, {what.dtype});
  return [square, bias] { tensors::add_matmul(bias, square, square.transpose(0, 1)); };
}

/// Images, and what is done with them: a block of a residual network, and its first layer.
struct Convolved {
  tensors::Shape images, filters;
  tensors::ConvOptions form;
};
Convolved convolved(const std::string& op) {
  if (op == "conv2d") return {{8, 64, 56, 56}, {64, 64, 3, 3}, {.padding = 1}};
  return {{32, 3, 224, 224}, {64, 3, 7, 7}, {.stride = 2, .padding = 3}};
}
Call convolution_call(const Case& what) {
  const Convolved sizes = convolved(what.op);
  const LocalTensor images = tensors::randn(sizes.images, {.seed = 1}).to(what.dtype);
  const LocalTensor filters = tensors::randn(sizes.filters, {.seed = 2}).to(what.dtype);
  return [=] { tensors::conv2d(images, filters, sizes.form); };
}

/// A small network: what is computed is little, so that the calls are compared.
struct Network {
  static constexpr std::int64_t kLayers = 20, kSamples = 4, kFeatures = 16;
  dtensor::Tensor x;
  dtensor::Tensors weights, biases;

  explicit Network(DType dtype) : x(tensors::randn({kSamples, kFeatures}, {.seed = 99}).to(dtype)) {
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
      const LocalTensor weight = tensors::randn({kFeatures, kFeatures}, {.seed = layer}) * 0.25;
      weights.push_back(dtensor::Tensor(weight.to(dtype)).requires_grad_());
      biases.push_back(dtensor::Tensor(tensors::zeros({kFeatures}, {dtype})).requires_grad_());
    }
  }
  /// Forward and backward, for new gradients of all parameters.
  void step() const {
    dtensor::Tensor y = x;
    for (std::size_t layer = 0; layer < weights.size(); ++layer)
      y = dtensor::relu(dtensor::linear(y, weights[layer], biases[layer]));
    y.sum().backward();
    for (const dtensor::Tensors* const parameters : {&weights, &biases})
      for (const dtensor::Tensor& parameter : *parameters) parameter.set_grad({});
  }
};
Call network_call(const Case& what) {
  return [network = Network(what.dtype)] { network.step(); };
}

Call call_of(const Case& what) {
  if (what.op == "mlp_backward") return network_call(what);
  if (what.op.starts_with("attention")) return attention_call(what);
  if (what.op == "adamw") return adamw_call(what.elements);
  if (what.op.starts_with("conv2d")) return convolution_call(what);
  if (what.op == "matmul" || what.op == "addmm" || what.op == "linear" ||
      what.op.starts_with("bmm_")) {
    return product_call(what);
  }
  const LocalTensor x =
      tensors::randn({std::max<std::int64_t>(what.elements, 4)}, {.seed = 1}).to(what.dtype);
  const Call pointwise = pointwise_call(what.op, x);
  if (pointwise) return pointwise;
  const Call positive = positive_call(what.op, x);
  if (positive) return positive;
  const Call random = random_call(what.op, x);
  return random ? random : row_call(what.op, x, what.row);
}

/// The least of several runs, as tensor_torch.py takes it.
double nanoseconds(const Call& call) {
  call();
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int calls = 1; spent < 0.06e9;) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    const double took = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
    spent += took;
    best = std::min(best, took / calls);
    if (took < 2e6) calls *= 2;
  }
  return best;
}

double time_dtrun(const Case& what) {
  tensors::set_num_threads(what.threads);
  return nanoseconds(call_of(what));
}

/// A convolution has one size, and so has the network.
std::vector<std::int64_t> sizes_of(const std::string& op, const std::vector<std::int64_t>& asked) {
  if (op == "mlp_backward") return {Network::kSamples * Network::kFeatures};
  if (!op.starts_with("conv2d")) return asked;
  return {tensors::numel(convolved(op).images)};
}

void compare(const Case& what, int rounds, bench::PythonPeer* torch) {
  double own = std::numeric_limits<double>::infinity();
  double other = own;
  for (int round = 0; round < rounds; ++round) {
    own = std::min(own, time_dtrun(what));
    const std::optional<double> theirs = torch ? torch->time(what.line()) : std::nullopt;
    if (theirs) other = std::min(other, *theirs);
  }
  const bool known = std::isfinite(other);
  fmt::print("{:<26}{:<6}{:>10}{:>4}{:>12.2f}{:>12}{:>8}\n", what.op,
             tensors::dtype_short_name(what.dtype), what.elements, what.threads, own / 1e3,
             known ? fmt::format("{:.2f}", other / 1e3) : "-",
             known ? fmt::format("{:.2f}", other / own) : "-");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string python = base::get_env("HOME").value_or("") + "/.cache/dtrun/torch-2.15.0/bin/python";
  int rounds = 3;
  std::vector<std::string> only(std::begin(kOps), std::end(kOps));
  std::vector<std::string> dtypes = {"f32", "bf16"};
  std::vector<std::int64_t> sizes = {4, 1 << 10, 1 << 16, 1 << 20, 1 << 24};
  std::vector<int> threads = {1, 2};
  std::int64_t row = 1024;
  CLI::App app("local operations against PyTorch's");
  app.add_option("--torch", python, "a python that imports torch");
  app.add_option("--rounds", rounds);
  app.add_option("--only", only)->check(CLI::IsMember(only))->delimiter(',');
  app.add_option("--dtypes", dtypes)->delimiter(',');
  app.add_option("--elements", sizes)->delimiter(',');
  app.add_option("--threads", threads)->delimiter(',');
  app.add_option("--row", row, "elements of a row; a power of two (1024)")
      ->check(CLI::IsMember({16, 32, 64, 128, 256, 512, 1024, 2048, 4096}));
  CLI11_PARSE(app, argc, argv);
  std::optional<bench::PythonPeer> torch;
  if (::access(python.c_str(), X_OK) == 0) {
    torch.emplace(python, "tensor_torch.py");
  } else {
    fmt::print("no python with PyTorch at {}: tests/lab/torch-up makes one\n", python);
  }
  fmt::print("{:<26}{:<6}{:>10}{:>4}{:>12}{:>12}{:>8}\n", "operation", "dtype", "elements", "thr",
             "dtrun us", "torch us", "ratio");
  for (const std::string& op : only)
    for (const std::string& dtype : dtypes)
      for (const std::int64_t size : sizes_of(op, sizes))
        for (const int count : threads)
          compare({op, tensors::parse_dtype(dtype), size, count, row}, rounds,
                  torch ? &*torch : nullptr);
}
