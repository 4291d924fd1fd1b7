// Tables of calls with a bad number: a dim that the tensor lacks, a negative size, a position that
// is not there. Each error names the operator, the argument, the tensor and how it lies, and says
// what to try.
#include <gtest/gtest.h>

#include "dtensor/explained.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/tensor/cuda.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

/// A call of an operator with [4, 6] numbers, and what its error has to name besides the tensor.
struct BadCall {
  const char* op;
  std::function<void(const Tensor& x)> run;
  Words words = {};
};

void expect_all_explained(const std::vector<BadCall>& calls, const Tensor& x) {
  const std::string tensor = tensors::shape_to_string(x.shape()),
                    placed = x.is_distributed() ? placements_to_string(x.placements()) : "";
  for (const BadCall& call : calls) {
    SCOPED_TRACE(std::string(call.op) + " of " + tensor + placed);
    Words words = call.words;
    words.insert(words.end(), {call.op, tensor, placed});
    expect_explained([&] { call.run(x); }, words);
  }
}

/// Of a local tensor, and of one that two ranks hold, cut along either dim or whole.
void expect_explained_everywhere(const std::vector<BadCall>& calls) {
  const Tensor x = arange(24).to(DType::f32).reshape({4, 6});
  expect_all_explained(calls, x);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const Placement& placement : {Shard(0), Shard(1), Replicate()})
      expect_all_explained(calls, distribute_tensor(x, mesh, {placement}, {.source_rank = -1}));
    EXPECT_EQ(sum(ones({4}, mesh, {Shard(0)})).item(), 4);  // the ranks are in step
  });
}

/// Positions beside the tensor, whole on every rank.
Tensor beside(const Tensor& x, const Tensor& local) {
  if (!x.is_distributed()) return local.to(x.device());
  return distribute_tensor(local, x.device_mesh(), {Replicate()}, {.source_rank = -1});
}

// --- Dims.

std::vector<BadCall> reductions_along(int dim) {
  return {{"sum", [=](const Tensor& x) { sum(x, {dim}); }},
          {"mean", [=](const Tensor& x) { mean(x, {dim}); }},
          {"prod", [=](const Tensor& x) { prod(x, dim); }},
          {"any", [=](const Tensor& x) { any(x, {dim}); }},
          {"all", [=](const Tensor& x) { all(x, {dim}); }},
          {"amax", [=](const Tensor& x) { amax(x, {dim}); }},
          {"amin", [=](const Tensor& x) { amin(x, {dim}); }},
          {"max", [=](const Tensor& x) { max(x, dim); }},
          {"min", [=](const Tensor& x) { min(x, dim); }},
          {"argmax", [=](const Tensor& x) { argmax(x, dim); }},
          {"argmin", [=](const Tensor& x) { argmin(x, dim); }},
          {"var", [=](const Tensor& x) { var(x, {dim}); }},
          {"std", [=](const Tensor& x) { stddev(x, {dim}); }},
          {"norm", [=](const Tensor& x) { norm(x, 2, {dim}); }},
          {"logsumexp", [=](const Tensor& x) { logsumexp(x, {dim}); }},
          {"cumsum", [=](const Tensor& x) { cumsum(x, dim); }},
          {"cumprod", [=](const Tensor& x) { cumprod(x, dim); }},
          {"cumsum_", [=](const Tensor& x) { x.clone().cumsum_(dim); }},
          {"cumprod_", [=](const Tensor& x) { x.clone().cumprod_(dim); }},
          {"softmax", [=](const Tensor& x) { softmax(x, dim); }},
          {"log_softmax", [=](const Tensor& x) { log_softmax(x, dim); }},
          {"sort", [=](const Tensor& x) { sort(x, dim); }},
          {"argsort", [=](const Tensor& x) { argsort(x, dim); }},
          {"topk", [=](const Tensor& x) { topk(x, 1, dim); }}};
}

std::vector<BadCall> views_along(int dim) {
  // Where a dim is added there is one more.
  const int added = dim < 0 ? dim - 1 : dim + 1;
  const Words named = {"dim " + std::to_string(added)};
  return {{"transpose", [=](const Tensor& x) { x.transpose(0, dim); }},
          {"permute",
           [=](const Tensor& x) {
             x.permute({0, dim});
           }},
          {"squeeze", [=](const Tensor& x) { x.squeeze(dim); }},
          {"unsqueeze", [=](const Tensor& x) { x.unsqueeze(added); }, named},
          {"slice", [=](const Tensor& x) { x.slice(dim, 0, 1); }},
          {"narrow", [=](const Tensor& x) { x.narrow(dim, 0, 1); }},
          {"select", [=](const Tensor& x) { x.select(dim, 0); }},
          {"flatten", [=](const Tensor& x) { flatten(x, 0, dim); }},
          {"unflatten",
           [=](const Tensor& x) {
             unflatten(x, dim, {1, 6});
           }},
          {"movedim", [=](const Tensor& x) { movedim(x, dim, 0); }},
          {"unbind", [=](const Tensor& x) { unbind(x, dim); }},
          {"split", [=](const Tensor& x) { split(x, 2, dim); }},
          {"split",
           [=](const Tensor& x) {
             split(x, std::vector<std::int64_t>{1, 3}, dim);
           }},
          {"cat",
           [=](const Tensor& x) {
             cat({x, x}, dim);
           }},
          {"stack",
           [=](const Tensor& x) {
             stack({x, x}, added);
           },
           named},
          {"flip", [=](const Tensor& x) { flip(x, {dim}); }},
          {"roll", [=](const Tensor& x) { roll(x, {1}, {dim}); }}};
}

std::vector<BadCall> places_along(int dim) {
  const Tensor list = tensor({0, 1}), places = zeros({4, 6}, {.dtype = DType::i64});
  return {{"index_select", [=](const Tensor& x) { index_select(x, dim, beside(x, list)); }},
          {"index_add", [=](const Tensor& x) { index_add(x, dim, beside(x, list), x); }},
          {"index_add_", [=](const Tensor& x) { x.clone().index_add_(dim, beside(x, list), x); }},
          {"gather", [=](const Tensor& x) { gather(x, dim, beside(x, places)); }},
          {"scatter", [=](const Tensor& x) { scatter(x, dim, beside(x, places), x); }},
          {"scatter", [=](const Tensor& x) { scatter(x, dim, beside(x, places), 1); }},
          {"scatter_", [=](const Tensor& x) { x.clone().scatter_(dim, beside(x, places), x); }},
          {"scatter_add", [=](const Tensor& x) { scatter_add(x, dim, beside(x, places), x); }},
          {"scatter",
           [=](const Tensor& x) { scatter(x, dim, beside(x, places), 1, ScatterReduce::prod); }},
          {"scatter_reduce", [=](const Tensor& x) {
             scatter_reduce(x, dim, beside(x, places), x, ScatterReduce::amax);
           }}};
}

TEST(BadArgumentsTest, DimsThatTheTensorLacks) {
  for (const int dim : {2, -3}) {
    for (auto calls : {reductions_along(dim), views_along(dim), places_along(dim)}) {
      for (BadCall& call : calls) {
        if (call.words.empty()) call.words = {"dim " + std::to_string(dim)};
      }
      expect_explained_everywhere(calls);
    }
  }
}

TEST(BadArgumentsTest, DimsThatAreNamedTwice) {
  expect_explained_everywhere({{"sum",
                                [](const Tensor& x) {
                                  sum(x, {0, -2});
                                },
                                {"twice"}},
                               {"amax",
                                [](const Tensor& x) {
                                  amax(x, {1, 1});
                                },
                                {"twice"}},
                               {"var",
                                [](const Tensor& x) {
                                  var(x, {1, 1});
                                },
                                {"twice"}},
                               {"flip",
                                [](const Tensor& x) {
                                  flip(x, {0, 0});
                                },
                                {"twice"}},
                               {"permute",
                                [](const Tensor& x) {
                                  x.permute({0, 0});
                                },
                                {"once"}},
                               {"permute", [](const Tensor& x) { x.permute({0}); }, {"1 dim"}}});
}

// --- Sizes.

TEST(BadArgumentsTest, SizesThatAViewCannotHave) {
  expect_explained_everywhere(
      {{"view",
        [](const Tensor& x) {
          x.view({-2, 12});
        },
        {"[-2, 12]"}},
       {"view",
        [](const Tensor& x) {
          x.view({5, 5});
        },
        {"[5, 5]"}},
       {"view",
        [](const Tensor& x) {
          x.view({-1, -1});
        },
        {"[-1, -1]"}},
       {"reshape",
        [](const Tensor& x) {
          x.reshape({-1, 5});
        },
        {"[-1, 5]"}},
       {"expand",
        [](const Tensor& x) {
          x.expand({4, 7});
        },
        {"[4, 7]"}},
       {"expand", [](const Tensor& x) { x.expand({6}); }, {"[6]"}},
       {"expand",
        [](const Tensor& x) {
          x.expand({-2, 4, 6});
        },
        {"-2"}},
       {"repeat",
        [](const Tensor& x) {
          repeat(x, {2, -1});
        },
        {"[2, -1]"}},
       {"repeat", [](const Tensor& x) { repeat(x, {2}); }, {"[2]"}},
       {"unflatten",
        [](const Tensor& x) {
          unflatten(x, 1, {4, 2});
        },
        {"[4, 2]"}},
       {"unflatten",
        [](const Tensor& x) {
          unflatten(x, 1, {-1, -1});
        },
        {"-1"}},
       {"unflatten",
        [](const Tensor& x) {
          unflatten(x, 1, {-2, -3});
        },
        {"[-2, -3]"}},
       {"flatten", [](const Tensor& x) { flatten(x, 1, 0); }, {"1", "0"}},
       {"narrow", [](const Tensor& x) { x.narrow(0, 1, -1); }, {"-1"}},
       {"narrow", [](const Tensor& x) { x.narrow(1, 4, 3); }, {"3", "4"}},
       {"slice", [](const Tensor& x) { x.slice(0, 0, 4, 0); }, {"step 0"}}});
}

TEST(BadArgumentsTest, SizesThatDoNotGo) {
  expect_explained_everywhere(
      {{"split", [](const Tensor& x) { split(x, 0, 0); }, {"pieces of 0"}},
       {"split",
        [](const Tensor& x) {
          split(x, std::vector<std::int64_t>{5, -1}, 0);
        },
        {"-1"}},
       {"split",
        [](const Tensor& x) {
          split(x, std::vector<std::int64_t>{1, 1}, 0);
        },
        {"[1, 1]"}},
       {"topk", [](const Tensor& x) { topk(x, 7); }, {"7", "6"}},
       {"topk", [](const Tensor& x) { topk(x, -1); }, {"-1"}},
       {"pad",
        [](const Tensor& x) {
          pad(x, {0, -7});
        },
        {"-7"}},
       {"pad", [](const Tensor& x) { pad(x, {1}); }, {"1"}},
       {"roll",
        [](const Tensor& x) {
          roll(x, {1, 2}, {0});
        },
        {"2", "1"}},
       {"layer_norm", [](const Tensor& x) { layer_norm(x, {5}); }, {"[5]"}},
       {"rms_norm", [](const Tensor& x) { rms_norm(x, {}); }, {"[]"}},
       {"dropout", [](const Tensor& x) { dropout(x, {.p = 1.5}); }, {"1.5"}},
       {"mm", [](const Tensor& x) { mm(x, x); }, {}},
       {"mv", [](const Tensor& x) { mv(x, x); }, {}},
       {"linear", [](const Tensor& x) { linear(x, x.t()); }, {"input", "weight"}},
       {"one_hot", [](const Tensor& x) { one_hot(x); }, {"float32", "int64"}},
       {"one_hot", [](const Tensor& x) { one_hot(x.to(DType::i64), 0); }, {"0 classes"}}});
}

struct BadFactory {
  const char* op;
  std::function<void()> run;
  Words words;
};

void expect_explained_factories(const std::vector<BadFactory>& calls) {
  for (const BadFactory& call : calls) {
    SCOPED_TRACE(call.op);
    Words words = call.words;
    words.push_back(call.op);
    expect_explained(call.run, words);
  }
}

TEST(BadArgumentsTest, FactoriesOfSizesThatDoNotGo) {
  const Shape bad = {2, -1};
  const Words named = {"[2, -1]", "negative"};
  expect_explained_factories(
      {{"zeros", [&] { zeros(bad); }, named},
       {"ones", [&] { ones(bad); }, named},
       {"full", [&] { full(bad, 3); }, named},
       {"empty", [&] { empty(bad); }, named},
       {"rand", [&] { rand(bad); }, named},
       {"randn", [&] { randn(bad); }, named},
       {"randint", [&] { randint(0, 4, bad); }, named},
       {"randint", [] { randint(4, 4, {2}); }, {"4"}},
       {"randint", [] { randint(0, 999, {2}, {.dtype = DType::u8}); }, {"998"}},
       {"rand", [] { rand({2}, {.dtype = DType::i64}); }, {"int64"}},
       {"randn", [] { randn({2}, {.dtype = DType::i64}); }, {"int64"}},
       {"randperm", [] { randperm(-1); }, {"-1"}},
       {"eye", [] { eye(-1); }, {"-1"}},
       {"arange", [] { arange(-3); }, {"-3"}},
       {"arange", [] { arange(0.0, 3.0, 0.0, TensorOptions{}); }, {"0"}},
       {"arange", [] { arange(0.0, 3.0, -1.0, TensorOptions{}); }, {"-1"}},
       {"linspace", [] { linspace(0, 1, -1); }, {"-1"}}});
}

TEST(BadArgumentsTest, FactoriesOfSizesThatDoNotGoOnAMesh) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Placements cut = {Shard(0)};
    const Shape bad = {2, -1};
    const Words named = {"[2, -1]", "negative"};
    expect_explained_factories({{"zeros", [&] { zeros(bad, mesh, cut); }, named},
                                {"ones", [&] { ones(bad, mesh, cut); }, named},
                                {"full", [&] { full(bad, 3, mesh, cut); }, named},
                                {"empty", [&] { empty(bad, mesh, cut); }, named},
                                {"rand", [&] { rand(bad, mesh, cut); }, named},
                                {"randn", [&] { randn(bad, mesh, cut); }, named},
                                {"randint", [&] { randint(0, 4, bad, mesh, cut); }, named},
                                {"randint", [&] { randint(4, 4, {2}, mesh, cut); }, {"4"}},
                                {"randn", [&] { randn({2}, mesh, cut, DType::i64); }, {"int64"}},
                                {"randperm", [&] { randperm(-1, mesh, cut); }, {"-1"}},
                                {"eye", [&] { eye(-1, 2, mesh, cut); }, {"-1"}},
                                {"arange", [&] { arange(-3, mesh, cut); }, {"-3"}},
                                {"linspace", [&] { linspace(0, 1, -1, mesh, cut); }, {"-1"}},
                                {"zeros", [&] { zeros({2}, mesh, {Shard(1)}); }, {"S(1)", "[2]"}},
                                {"zeros",
                                 [&] {
                                   zeros({2}, mesh, {Shard(0), Shard(0)});
                                 },
                                 {"2"}}});
    EXPECT_EQ(sum(ones({4}, mesh, {Shard(0)})).item(), 4);
  });
}

// --- Positions.

std::vector<BadCall> calls_with_positions() {
  const Tensor list = tensor({1, 9}), places = full({2, 6}, 9, {.dtype = DType::i64});
  const auto rows = [](const Tensor& x) { return x.slice(0, 0, 2); };
  return {
      {"index_select", [=](const Tensor& x) { index_select(x, 0, beside(x, list)); }},
      {"index", [=](const Tensor& x) { index(x, beside(x, list)); }},
      {"index", [=](const Tensor& x) { x[beside(x, list)]; }},
      {"index_add", [=](const Tensor& x) { index_add(x, 0, beside(x, list), rows(x)); }},
      {"index_add_", [=](const Tensor& x) { x.clone().index_add_(0, beside(x, list), rows(x)); }},
      {"gather", [=](const Tensor& x) { gather(x, 0, beside(x, places)); }},
      {"scatter", [=](const Tensor& x) { scatter(x, 0, beside(x, places), rows(x)); }},
      {"scatter", [=](const Tensor& x) { scatter(x, 0, beside(x, places), 1); }},
      {"scatter_", [=](const Tensor& x) { x.clone().scatter_(0, beside(x, places), rows(x)); }},
      {"scatter_add", [=](const Tensor& x) { scatter_add(x, 0, beside(x, places), rows(x)); }},
      {"scatter_add_",
       [=](const Tensor& x) { x.clone().scatter_add_(0, beside(x, places), rows(x)); }},
      {"scatter",
       [=](const Tensor& x) { scatter(x, 0, beside(x, places), rows(x), ScatterReduce::prod); }},
      {"scatter_reduce",
       [=](const Tensor& x) {
         scatter_reduce(x, 0, beside(x, places), rows(x), ScatterReduce::amin);
       }},
      {"scatter_reduce",
       [=](const Tensor& x) {
         scatter_reduce(x, 0, beside(x, places), rows(x), ScatterReduce::mean);
       }},
      {"scatter_reduce_",
       [=](const Tensor& x) {
         x.clone().scatter_reduce_(0, beside(x, places), rows(x), ScatterReduce::prod,
                                   IncludeSelf::no);
       }},
      {"embedding", [=](const Tensor& x) { embedding(beside(x, list), x); }},
      {"cross_entropy",
       [](const Tensor& x) {
         cross_entropy(x, beside(x, tensor({9, 1, 2, 9})));
       }},
      {"nll_loss",
       [](const Tensor& x) {
         nll_loss(x, beside(x, tensor({9, 1, 2, 9})));
       }},
      {"select", [](const Tensor& x) { x.select(0, 9); }},
      {"select", [](const Tensor& x) { x[9]; }}};
}

std::vector<BadCall> named_nine() {
  std::vector<BadCall> calls = calls_with_positions();
  for (BadCall& call : calls) call.words = {"9"};
  return calls;
}

TEST(BadArgumentsTest, PositionsThatAreNotThere) {
  expect_explained_everywhere(named_nine());
}

TEST(BadArgumentsTest, PositionsThatAreNotThereOnADevice) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices simulated;
  const Tensor x =
      arange(24).to(DType::f32).reshape({4, 6}).to(Device{tensors::DeviceType::cuda, 0});
  expect_all_explained(named_nine(), x);
  EXPECT_EQ(sum(x).item(), 276);  // the device is not lost by it
}

TEST(BadArgumentsTest, PositionsOfAnotherDtype) {
  const Tensor list = tensor({0.0, 1.0}), places = zeros({4, 6});
  const Words dtypes = {"int64"};
  expect_explained_everywhere(
      {{"index_select", [=](const Tensor& x) { index_select(x, 0, beside(x, list)); }, dtypes},
       {"index", [=](const Tensor& x) { index(x, beside(x, list)); }, dtypes},
       {"index_add", [=](const Tensor& x) { index_add(x, 0, beside(x, list), x); }, dtypes},
       {"gather", [=](const Tensor& x) { gather(x, 0, beside(x, places)); }, dtypes},
       {"scatter", [=](const Tensor& x) { scatter(x, 0, beside(x, places), x); }, dtypes},
       {"scatter_add", [=](const Tensor& x) { scatter_add(x, 0, beside(x, places), x); }, dtypes},
       {"scatter_reduce",
        [=](const Tensor& x) { scatter_reduce(x, 0, beside(x, places), x, ScatterReduce::prod); },
        dtypes},
       {"embedding", [=](const Tensor& x) { embedding(beside(x, list), x); }, dtypes},
       {"cross_entropy", [=](const Tensor& x) { cross_entropy(x, beside(x, ones(4))); }, {"i64"}},
       {"nll_loss", [=](const Tensor& x) { nll_loss(x, beside(x, ones(4))); }, {"i64"}},
       {"masked_select", [](const Tensor& x) { masked_select(x, x); }, {"bool"}},
       {"where", [](const Tensor& x) { where(x, x, x); }, {"bool"}}});
}

}  // namespace
}  // namespace dtrun::dtensor
