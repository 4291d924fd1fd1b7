// Training steps: forward, backward and AdamW of a small GPT and of a narrow, deep MLP, on one rank
// and by each way of sharing the work, beside PyTorch's DDP, FSDP2 and DTensor over gloo, one
// Python process beside each rank. They take turns. One thread a rank; each time is the slowest
// rank's, the least of several runs. The work of a step is the same however many ranks share it.
//
//     dtrun --nproc_per_node=2 train_bench [--torch PYTHON] [--rounds 3] [--only gpt-dp,mlp-tp]
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/dtrun.h"
#include "dtrun/tensor/threads.h"
#include "python_peer.h"

namespace {

using namespace dtrun;
using dtensor::ParallelPlan;

constexpr std::int64_t kWidth = 256, kLayers = 4, kHeads = 8, kContext = 256, kSamples = 8;
constexpr int kMicrobatches = 4;
constexpr std::int64_t kRows = 64, kMlpWidth = 64, kMlpLayers = 20;

struct Block : nn::Module {
  nn::LayerNorm attention_norm = register_module("attention_norm", nn::LayerNorm(kWidth));
  nn::Linear query = register_module("query", nn::Linear(kWidth, kWidth));
  nn::Linear key = register_module("key", nn::Linear(kWidth, kWidth));
  nn::Linear value = register_module("value", nn::Linear(kWidth, kWidth));
  nn::Linear output = register_module("output", nn::Linear(kWidth, kWidth));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(kWidth));
  nn::Linear up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear down = register_module("down", nn::Linear(4 * kWidth, kWidth));

  Tensor forward(const Tensor& x) override {
    // As many heads as this rank has columns of.
    const auto split = [](const Tensor& all) {
      constexpr std::int64_t kEach = kWidth / kHeads;
      return unflatten(all, -1, {all.size(-1) / kEach, kEach}).transpose(1, 2);
    };
    const Tensor h = attention_norm(x);
    const Tensor mixed = scaled_dot_product_attention(split(query(h)), split(key(h)),
                                                      split(value(h)), {.is_causal = true});
    const Tensor y = x + output(flatten(mixed.transpose(1, 2), 2));
    return y + down(gelu(up(norm(y))));
  }
};

struct Embeddings : nn::Module {
  nn::Embedding bytes = register_module("bytes", nn::Embedding(256, kWidth));
  nn::Embedding places = register_module("places", nn::Embedding(kContext, kWidth));
  Tensor forward(const Tensor& text) override { return bytes(text) + places(arange(text.size(1))); }
};

struct Head : nn::Module {
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(kWidth));
  nn::Linear scores = register_module("scores", nn::Linear(kWidth, 256, {.bias = false}));
  Tensor forward(const Tensor& x) override { return scores(norm(x)); }
};

/// What is trained, as on one rank.
struct Model {
  nn::Sequential module;
  std::vector<std::string> units;
  ParallelPlan plan;
  std::int64_t tokens;  ///< of a step, or rows
  Tensor inputs;        ///< of this rank
  std::function<Tensor(const Tensor& output, const Tensor& inputs)> loss;
};

Model made_gpt(std::int64_t parts) {
  const Tensor text = randint(0, 256, {kSamples / parts, kContext}, RandomKey{.seed = 3});
  const auto loss = [](const Tensor& scores, const Tensor& targets) {
    return cross_entropy(flatten(scores, 0, 1), flatten(targets));
  };
  ParallelPlan plan;
  for (const char* name : {"*.query", "*.key", "*.value", "*.up"})
    plan.emplace_back(name, Colwise());
  for (const char* name : {"*.output", "*.down"}) plan.emplace_back(name, Rowwise());
  nn::Sequential layers;
  std::vector<std::string> units;
  layers->push_back(std::make_shared<Embeddings>());
  for (std::int64_t i = 1; i <= kLayers; ++i) {
    layers->push_back(std::make_shared<Block>());
    units.push_back(std::to_string(i));
  }
  layers->push_back(std::make_shared<Head>());
  return {layers, units, plan, kSamples * kContext, text, loss};
}

Model made_mlp(std::int64_t parts) {
  const Tensor x = randn({kRows / parts, kMlpWidth}, RandomKey{.seed = 3});
  nn::Sequential layers;
  ParallelPlan plan;
  std::vector<std::string> units;
  for (std::int64_t i = 0; i < kMlpLayers; ++i) {
    layers->push_back(nn::Linear(kMlpWidth, kMlpWidth));
    layers->push_back(nn::ReLU());
    units.push_back(std::to_string(2 * i));
    plan.emplace_back(units.back(), i % 2 == 0 ? Colwise() : Rowwise());
  }
  const auto loss = [](const Tensor& y, const Tensor&) { return mean(square(y)); };
  return {layers, units, plan, kRows, x, loss};
}

struct Case {
  std::string model;
  std::string way;
  std::int64_t tokens;
  std::function<void()> step;
};

/// AdamW on parameters that lie on the mesh, and nothing else.
Case made_optimizer(const std::string& way, const DeviceMesh& mesh) {
  Tensors parameters;
  for (int i = 0; i < 200; ++i) {
    parameters.push_back(randn({64}, mesh, {Shard(0)}).requires_grad_());
    parameters.back().set_grad(randn({64}, mesh, {Shard(0)}));
  }
  const auto optimizer =
      std::make_shared<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 1e-3});
  return {"200", way, 200, [optimizer] { optimizer->step(); }};
}

Case made(const std::string& name, const std::string& way) {
  const std::int64_t parts = way == "dp" || way == "fsdp" ? dist::get_world_size() : 1;
  manual_seed(1);
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {dist::get_world_size()}, {way});
  if (name == "200") return made_optimizer(way, mesh);
  const Model model = name == "gpt" ? made_gpt(parts) : made_mlp(parts);
  if (way == "dp") data_parallel(*model.module, mesh);
  if (way == "fsdp") fully_shard(*model.module, mesh, {.units = model.units});
  if (way == "tp") parallelize(*model.module, mesh, model.plan);
  std::shared_ptr<Pipeline> pipeline;
  if (way == "pp") {
    pipeline = std::make_shared<Pipeline>(
        model.module, mesh, PipelineOptions{.microbatches = kMicrobatches, .loss = model.loss});
  }
  const auto optimizer = std::make_shared<optim::AdamW>(
      (pipeline ? pipeline->model() : model.module)->parameters(), optim::AdamWOptions{.lr = 1e-3});
  return {name, way, model.tokens, [model, pipeline, optimizer] {
            if (pipeline) {
              pipeline->step(model.inputs, model.inputs);
            } else {
              model.loss(model.module(model.inputs), model.inputs).backward();
            }
            optimizer->step();
            optimizer->zero_grad();
          }};
}

double slowest_rank(double seconds) {
  const Tensor all = full({1}, seconds, {.dtype = DType::f64});
  dist::all_reduce(all, ReduceOp::max);
  return all.item();
}

/// Seconds a step.
double timed(const Case& what, int steps) {
  dist::barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) what.step();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return slowest_rank(took.count()) / steps;
}

void compare(const Case& what, int rounds, std::optional<bench::PythonPeer>& torch) {
  double own = std::numeric_limits<double>::infinity(), theirs = own;
  timed(what, 3);
  const int steps = std::max(2, static_cast<int>(1 / timed(what, 1)));
  for (int round = 0; round < rounds; ++round) {
    own = std::min(own, timed(what, steps));
    dist::barrier();
    if (!torch) continue;
    const auto took = torch->time(what.model + " " + what.way);
    theirs = std::min(theirs, slowest_rank(took.value_or(theirs)));
  }
  if (dist::get_rank() != 0) return;
  const auto tokens = static_cast<double>(what.tokens);
  fmt::print("{:<6}{:<6}{:>14.2f}{:>14.2f}{:>16.0f}{:>16.0f}{:>10.2f}\n", what.model, what.way,
             own * 1e3, theirs * 1e3, tokens / own, tokens / theirs, theirs / own);
  std::fflush(stdout);
}

/// Where PyTorch's processes meet: a file of rank 0's name.
std::string meeting_place() {
  const Tensor of_first = full({1}, ::getpid(), {.dtype = DType::i64});
  dist::broadcast(of_first, 0);
  const std::string folder = base::get_env("TMPDIR").value_or("/tmp");
  return fmt::format("{}/train_bench.{:.0f}", folder, of_first.item());
}

}  // namespace

int main(int argc, char** argv) {
  std::string python = base::get_env("HOME").value_or("") + "/.cache/dtrun/torch-2.15.0/bin/python";
  int rounds = 3;
  std::vector<std::string> only;
  CLI::App app("training steps against PyTorch's");
  app.add_option("--torch", python, "a python that imports torch");
  app.add_option("--rounds", rounds);
  app.add_option("--only", only, "such as gpt-dp,mlp-tp; of one rank: gpt-one")->delimiter(',');
  CLI11_PARSE(app, argc, argv);

  std::signal(SIGPIPE, SIG_IGN);  // a peer that has ended gives no times
  tensors::set_num_threads(1);
  dist::init_process_group();
  std::optional<bench::PythonPeer> torch;
  if (::access(python.c_str(), X_OK) == 0) {
    ::setenv("TRAIN_BENCH_MEETING", meeting_place().c_str(), 1);
    torch.emplace(python, "train_torch.py");
  } else if (dist::get_rank() == 0) {
    fmt::print("no python with PyTorch at {}: tests/lab/torch-up makes one\n", python);
  }
  if (dist::get_rank() == 0) {
    fmt::print("{:<6}{:<6}{:>14}{:>14}{:>16}{:>16}{:>10}\n", "model", "way", "dtrun ms", "torch ms",
               "dtrun tokens/s", "torch tokens/s", "torch/");
  }
  const std::vector<std::string> ways =
      dist::get_world_size() == 1 ? std::vector<std::string>{"one"}
                                  : std::vector<std::string>{"dp", "fsdp", "tp", "pp", "adamw"};
  for (const std::string model : {"gpt", "mlp", "200"}) {
    for (const std::string& way : ways) {
      if ((model == "200") != (way == "adamw") || (model == "mlp" && way == "pp")) continue;
      const bool is_wanted =
          only.empty() || std::find(only.begin(), only.end(), model + "-" + way) != only.end();
      if (is_wanted) compare(made(model, way), rounds, torch);
    }
  }
  if (torch) std::filesystem::remove(meeting_place());
  dist::destroy_process_group();
}
