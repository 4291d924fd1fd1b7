// What the rules of the operators leave out, those of gradients among them. Each operator is run
// with its operands and its result laid along one axis in every way. What gives the whole result
// and follows from no rule stands below with its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>

#include "autograd/node.h"
#include "dispatch/rule_probe.h"
#include "dtensor/operator_samples.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using sharding::AxisRule;

// --- the reasons

const char* const kFewExtremes =
    "keeps the order of this operand's elements, or turns it: Partial(max) and Partial(min) come "
    "of "
    "amax and amin alone, and their few elements are reduced there";
const char* const kRarelyTwo =
    "linear in two operands at once, or in one beside the others' cuts: the other is rarely "
    "Partial";
const char* const kValueUnseen =
    "true where it pads or masks with zeros, or the sum's factor is 0; rules do not see the value";
const char* const kNoPartialComes =
    "linear in the gradient that comes in, which never is a sum that is due: the engine has "
    "brought "
    "it to where its tensor lies";
const char* const kHeads = "the features of the values are cut by heads, which are another dim";
const char* const kOfTheSample =
    "true of the sample's numbers alone, which give one result for all";

/// Of the rules with Partial(max) and Partial(min), and no other Partial or cut.
const std::map<const char*, std::set<std::string>> kExtremes = {
    {kFewExtremes, {"acos",          "acosh",
                    "add",           "addmm",
                    "baddbmm",       "addcdiv",
                    "addcmul",       "asin",
                    "asinh",         "atan",
                    "atanh",         "cat",
                    "causal_mask",   "ceil",
                    "clamp",         "div",
                    "dropout",       "elu",
                    "erf",           "erfc",
                    "exp",           "expm1",
                    "floor",         "floor_divide",
                    "hardsigmoid",   "hardtanh",
                    "index_add",     "index_backward",
                    "layer_norm",    "leaky_relu",
                    "lerp",          "linear",
                    "log",           "log10",
                    "log1p",         "log2",
                    "logaddexp",     "maximum",
                    "minimum",       "mul",
                    "neg",           "norm",
                    "pad",           "place_classes",
                    "pow",           "relu",
                    "round",         "rpow",
                    "reciprocal",    "rsub",
                    "rsqrt",         "scatter",
                    "scatter_add",   "scatter_reduce",
                    "sigmoid",       "sigmoid_backward",
                    "sign",          "sinh",
                    "softplus",      "sqrt",
                    "sub",           "tanh",
                    "tanh_backward", "to",
                    "trunc",         "trunc_divide",
                    "where"}},
    {kOfTheSample,
     {"all", "any", "argmin", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_and",
      "logical_not", "logical_or", "logical_xor", "lt"}}};

/// Of all others.
const std::map<const char*, std::set<std::string>> kSumsAndCuts = {
    {kRarelyTwo,
     {"addcdiv", "addcmul", "index_add", "index_backward", "layer_norm", "lerp", "norm", "rms_norm",
      "scatter", "scatter_add", "scaled_dot_product_attention_backward", "where"}},
    {kNoPartialComes,
     {"cross_entropy_backward", "index_backward", "log_softmax_backward", "norm_backward",
      "place_classes", "scaled_dot_product_attention_backward", "softmax_backward"}},
    {kValueUnseen, {"addmm", "causal_mask", "pad"}},
    {kHeads, {"scaled_dot_product_attention"}},
    {kOfTheSample,
     {"all", "any", "dropout", "eq", "floor_divide", "index_backward", "isfinite", "isinf", "isnan",
      "logical_and", "logical_or", "logical_xor", "ne", "remainder", "trunc_divide"}}};

// --- the search

/// The ways along one axis. Only parts of floating point numbers are made.
Placements ways_of(const Meta& meta) {
  Placements ways = {Replicate()};
  for (std::size_t dim = 0; dim < meta.shape.size(); ++dim)
    ways.emplace_back(Shard(static_cast<int>(dim)));
  if (!tensors::is_floating_point(meta.dtype)) return ways;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
    ways.emplace_back(Partial(op));
  return ways;
}

/// As digits of a number, the first operand's the last.
Placements combination(std::size_t number, const std::vector<Placements>& ways) {
  Placements inputs;
  for (const Placements& of_one : ways) {
    inputs.push_back(of_one[number % of_one.size()]);
    number /= of_one.size();
  }
  return inputs;
}

/// All ways to lay the operands but that all are whole. Where there are very many, those in which
/// the operands that are not whole lie alike.
std::vector<Placements> all_layouts_of(const std::vector<Meta>& inputs) {
  constexpr std::size_t kMany = 10'000;
  std::vector<Placements> ways, all;
  std::size_t count = 1;
  for (const Meta& meta : inputs) count *= ways.emplace_back(ways_of(meta)).size();
  if (count <= kMany) {
    for (std::size_t number = 1; number < count; ++number) all.push_back(combination(number, ways));
    return all;
  }
  for (const Placement& alike : ways[0]) {
    if (alike == Replicate()) continue;
    std::vector<Placements> two = ways;
    std::size_t of_two = 1;
    for (Placements& of_one : two) {
      const bool has_it = std::ranges::find(of_one, alike) != of_one.end();
      of_one = has_it ? Placements{Replicate(), alike} : Placements{Replicate()};
      of_two *= of_one.size();
    }
    for (std::size_t number = 1; number < of_two; ++number) all.push_back(combination(number, two));
  }
  return all;
}

/// Of one rank, for one way to lay the operands: its result where the kernel is told that the whole
/// is Replicate, and where it is told that it is Shard(d); none where it throws.
using Results = std::vector<std::optional<LocalTensor>>;

bool agree(const LocalTensor& found, const LocalTensor& right) {
  if (found.shape() != right.shape() || found.dtype() != right.dtype()) return false;
  const std::vector<double> a = found.to_vector(), b = right.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool equal = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!equal && !(std::abs(a[i] - b[i]) <= 1e-9 * (1 + std::abs(b[i])))) return false;
  }
  return true;
}

/// How the parts of all ranks make the whole.
Placements true_outputs(const std::vector<Results>& by_rank, const LocalTensor& whole) {
  Placements outputs;
  const auto all = [&](std::size_t told, const auto& is_right) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if (!by_rank[rank][told] || !is_right(*by_rank[rank][told], rank)) return false;
    }
    return true;
  };
  if (all(0, [&](const LocalTensor& part, std::size_t) { return agree(part, whole); }))
    outputs.emplace_back(Replicate());
  const auto ranks = static_cast<std::int64_t>(by_rank.size());
  for (int d = 0; d < whole.dim(); ++d) {
    const std::int64_t size = whole.size(d), step = (size + ranks - 1) / ranks;
    const auto is_cut = [&](const LocalTensor& part, std::size_t rank) {
      const std::int64_t from = std::min(size, static_cast<std::int64_t>(rank) * step);
      return agree(part, whole.narrow(d, from, std::min(step, size - from)));
    };
    if (all(static_cast<std::size_t>(d) + 1, is_cut)) outputs.emplace_back(Shard(d));
  }
  const auto fits = [&](const LocalTensor& part, std::size_t) {
    return part.shape() == whole.shape() && part.dtype() == whole.dtype();
  };
  if (whole.dtype() == DType::boolean || !all(0, fits)) return outputs;
  LocalTensor sum = *by_rank[0][0], most = sum, least = sum;
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    sum = tensors::add(sum, *by_rank[rank][0]);
    most = tensors::maximum(most, *by_rank[rank][0]);
    least = tensors::minimum(least, *by_rank[rank][0]);
  }
  if (agree(sum, whole)) outputs.emplace_back(Partial());
  if (agree(most, whole)) outputs.emplace_back(Partial(ReduceOp::max));
  if (agree(least, whole)) outputs.emplace_back(Partial(ReduceOp::min));
  return outputs;
}

/// Whether a rule gives it, and moves that send nothing: what is whole is cut or made Partial.
bool follows(const AxisRule& wanted, const std::vector<AxisRule>& rules) {
  return std::ranges::any_of(rules, [&](const AxisRule& rule) {
    for (std::size_t i = 0; i < wanted.inputs.size(); ++i) {
      if (wanted.inputs[i] != Replicate() && wanted.inputs[i] != rule.inputs[i]) return false;
    }
    return rule.output == Replicate() || rule.output == wanted.output;
  });
}

std::string rule_text(const AxisRule& rule) {
  std::string text;
  for (const Placement& input : rule.inputs) text += (text.empty() ? "" : ", ") + input.to_string();
  return text + " -> " + rule.output.to_string();
}

/// The combinations of a sample that are true and follow from no rule; of each size and number of
/// ranks that was tried, so far.
struct Missing {
  std::string op;
  std::map<std::string, AxisRule> rules;
};
using MissingOfSamples = std::map<std::string, Missing>;

/// A call of one operator whose operands all ranks have whole.
struct Trial {
  std::string name;  ///< the sample's, and of which gradient and node; no other trial has it
  RuleProbe::Call call;
  std::size_t number;                ///< of the call, in a run
  std::function<LocalTensor()> run;  ///< its result
};

/// Runs the call with its operands laid in one way.
Results results_of_way(const Trial& trial, const Placements& way, int output_dims) {
  Results results;
  for (int told = 0; told <= output_dims; ++told) {
    const Placement output = told == 0 ? Placement(Replicate()) : Placement(Shard(told - 1));
    try {
      const RuleProbe probe(RuleProbe::Forced{trial.number, {way, output}});
      results.emplace_back(trial.run().clone());
    } catch (const base::Error&) {
      results.emplace_back();
    }
  }
  return results;
}

struct Config {
  int ranks;
  std::int64_t rows, columns;
};

/// The search on all ranks; rank 0 judges what they have left.
class Search {
 public:
  Search(const Config& config, bool first, MissingOfSamples& missing)
      : config_(config),
        first_(first),
        missing_(missing),
        samples_(operator_samples(config.rows, config.columns)),
        parts_(static_cast<std::size_t>(config.ranks)) {}

  void run() {
    test::run_ranks(config_.ranks, [this](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {config_.ranks});
      // What is called alone by any sample, if that is among those of this run or not.
      std::set<std::string> known;
      for (const OperatorSample& sample : samples_) note_alone(sample, mesh, group, known);
      for_each_sample([&](const OperatorSample& sample) { try_alone(sample, mesh, group); });
      group.barrier();
      // Operators that only others call.
      for_each_sample([&](const OperatorSample& sample) {
        try_last(sample, known, mesh, group);
        for (std::size_t i = 0; i < sample.inputs.size(); ++i)
          try_gradients(sample, i, known, mesh, group);
      });
    });
  }
  std::size_t trials() const { return trials_; }
  const std::set<std::string>& called() const { return called_; }
  std::set<std::string> tried() const {
    const std::scoped_lock lock(mutex_);
    return tried_;
  }

 private:
  static std::size_t rank_of(const ProcessGroup& group) {
    return static_cast<std::size_t>(group.rank());
  }
  template <typename Use>
  void for_each_sample(const Use& use) const {
    for (std::size_t i = 0; i < samples_.size(); i += testing_support::one_in(40)) {
      if (!is_in_place(samples_[i])) use(samples_[i]);
    }
  }
  /// A form in place consists of what has samples of its own.
  static bool is_in_place(const OperatorSample& sample) {
    return sample.family.find("n place, on a copy") != std::string::npos;
  }
  static Tensors whole_inputs(const OperatorSample& sample, const DeviceMesh& mesh) {
    Tensors inputs;
    for (const Tensor& input : sample.inputs)
      inputs.push_back(distribute_tensor(input, mesh, {Replicate()}, {.source_rank = -1}));
    return inputs;
  }

  /// @return what it calls
  template <typename Run>
  std::vector<RuleProbe::Call> calls_of(const ProcessGroup& group, const Run& run) {
    const RuleProbe probe;
    run();
    if (rank_of(group) == 0) {
      for (const RuleProbe::Call& call : probe.calls()) called_.insert(call.op);
    }
    return probe.calls();
  }

  void note_alone(const OperatorSample& sample, const DeviceMesh& mesh, const ProcessGroup& group,
                  std::set<std::string>& known) {
    if (is_in_place(sample)) return;
    const NoGrad no_grad;
    const Tensors inputs = whole_inputs(sample, mesh);
    const std::vector<RuleProbe::Call> calls = calls_of(group, [&] { sample.run(inputs); });
    if (calls.size() == 1) known.insert(calls[0].op);
  }

  void try_alone(const OperatorSample& sample, const DeviceMesh& mesh, const ProcessGroup& group) {
    const NoGrad no_grad;
    const Tensors inputs = whole_inputs(sample, mesh);
    const auto run = [&] { return sample.run(inputs).local(); };
    const std::vector<RuleProbe::Call> calls = calls_of(group, run);
    // What a sample consists of has samples of its own.
    if (calls.size() == 1) try_out({sample.name, calls[0], 0, run}, group);
  }

  /// The last of several calls, whose result is the sample's.
  void try_last(const OperatorSample& sample, const std::set<std::string>& known,
                const DeviceMesh& mesh, const ProcessGroup& group) {
    const NoGrad no_grad;
    const Tensors inputs = whole_inputs(sample, mesh);
    const auto run = [&] { return sample.run(inputs).local(); };
    const std::vector<RuleProbe::Call> calls = calls_of(group, run);
    if (calls.size() > 1 && !known.contains(calls.back().op))
      try_out({sample.name, calls.back(), calls.size() - 1, run}, group);
  }

  /// The operators that the way back to one input calls, each from the node that calls it.
  void try_gradients(const OperatorSample& sample, std::size_t input,
                     const std::set<std::string>& known, const DeviceMesh& mesh,
                     const ProcessGroup& group) {
    if (sample.inputs[input].dtype() != DType::f64) return;
    Tensors inputs = whole_inputs(sample, mesh);
    inputs[input].requires_grad_();
    const Tensor result = sample.run(inputs);
    if (!result.requires_grad()) return;
    const NoGrad no_grad;
    std::vector<Edge> ways_back = {Edge::to(result)};
    for (std::size_t next = 0; next < ways_back.size(); ++next) {
      const Edge edge = ways_back[next];
      if (edge.node->edges().empty() || edge.output != 0) continue;
      for (const Edge& further : edge.node->edges()) {
        const auto is_it = [&](const Edge& seen) { return seen.node.get() == further.node.get(); };
        if (further.node && std::ranges::none_of(ways_back, is_it)) ways_back.push_back(further);
      }
      const Tensor gradient = distribute_tensor(randn(edge.shape, {5}, {.dtype = edge.dtype}), mesh,
                                                {Replicate()}, {.source_rank = -1});
      const auto run = [&] {
        for (const Tensor& found : edge.node->backward({&gradient, 1})) {
          if (found.defined()) return found.local();
        }
        throw std::logic_error("no gradient");
      };
      const std::vector<RuleProbe::Call> calls = calls_of(group, run);
      if (calls.empty() || known.contains(calls.back().op)) continue;
      try_out({sample.name + ", gradient " + std::to_string(input) + ", " + calls.back().op + " " +
                   std::to_string(next),
               calls.back(), calls.size() - 1, run},
              group);
    }
  }

  void try_out(const Trial& trial, const ProcessGroup& group) {
    const LocalTensor whole = trial.run().clone();
    const std::size_t rank = rank_of(group);
    std::vector<Placements> tried;
    for (const Placements& way : all_layouts_of(trial.call.inputs)) {
      if (first_ || is_missing(trial.name, way)) tried.push_back(way);
    }
    std::vector<Results> results;
    for (const Placements& way : tried) results.push_back(results_of_way(trial, way, whole.dim()));
    leave(rank, std::move(results));
    group.barrier();
    if (rank == 0) judge(trial, tried, whole);
    group.barrier();
  }

  void leave(std::size_t rank, std::vector<Results> results) {
    const std::scoped_lock lock(mutex_);
    parts_[rank] = std::move(results);
  }

  bool is_missing(const std::string& sample, const Placements& way) const {
    const std::scoped_lock lock(mutex_);
    const auto found = missing_.find(sample);
    return found != missing_.end() && std::ranges::any_of(found->second.rules, [&](const auto& r) {
             return r.second.inputs == way;
           });
  }

  void judge(const Trial& trial, const std::vector<Placements>& tried, const LocalTensor& whole) {
    const std::scoped_lock lock(mutex_);
    tried_.insert(trial.call.op);
    trials_ += tried.size();
    Missing now{trial.call.op, {}};
    for (std::size_t t = 0; t < tried.size(); ++t) {
      std::vector<Results> by_rank;
      for (const std::vector<Results>& of_rank : parts_) by_rank.push_back(of_rank[t]);
      for (const Placement& output : true_outputs(by_rank, whole)) {
        const AxisRule rule{tried[t], output};
        const std::string text = rule_text(rule);
        const bool was = first_ || missing_[trial.name].rules.contains(text);
        if (was && !follows(rule, trial.call.rules)) now.rules.emplace(text, rule);
      }
    }
    missing_[trial.name] = now;
    EXPECT_TRUE(judged_.insert(trial.name).second) << trial.name << " is tried twice";
  }

  const Config config_;
  const bool first_;
  MissingOfSamples& missing_;
  const std::vector<OperatorSample> samples_;
  /// Barriers of the group give the order. Each rank maps the group's memory for itself, so the
  /// thread sanitizer sees no order in them, only in the mutex.
  mutable std::mutex mutex_;
  std::vector<std::vector<Results>> parts_;  ///< by rank and way
  std::size_t trials_ = 0;
  std::set<std::string> called_, tried_, judged_;
};

bool is_of_extremes(const AxisRule& rule) {
  bool is_extreme = false;
  Placements all = rule.inputs;
  all.push_back(rule.output);
  for (const Placement& one : all) {
    if (one.is_shard() || one == Partial()) return false;
    is_extreme = is_extreme || one.is_partial();
  }
  return is_extreme;
}

/// Adds the operator to those whose reasons are needed.
void expect_reason(const std::map<const char*, std::set<std::string>>& reasons,
                   const std::string& op, const std::string& rule, std::set<std::string>& found) {
  const auto has_it = [&](const auto& reason) { return reason.second.contains(op); };
  EXPECT_TRUE(std::ranges::any_of(reasons, has_it))
      << op << ": " << rule << " is true, follows from no rule, and has no reason";
  found.insert(op);
}

std::set<std::string> operators_of(const std::map<const char*, std::set<std::string>>& reasons) {
  std::set<std::string> operators;
  for (const auto& [reason, ops] : reasons) operators.insert(ops.begin(), ops.end());
  return operators;
}

TEST(MissingRulesTest, WhatIsTrueAndNotDeclaredHasAReason) {
  MissingOfSamples missing;
  std::set<std::string> never_alone;
  bool first = true;
  for (const Config& config :
       {Config{2, 5, 3}, Config{3, 5, 3}, Config{2, 6, 4}, Config{3, 6, 4}}) {
    Search search(config, first, missing);
    search.run();
    std::printf("%d ranks, %d x %d: %zu layouts of the operands of %zu operators\n", config.ranks,
                static_cast<int>(config.rows), static_cast<int>(config.columns), search.trials(),
                search.tried().size());
    first = false;
    never_alone = search.called();
    for (const std::string& op : search.tried()) never_alone.erase(op);
  }
  std::size_t rules = 0;
  std::set<std::string> extremes, others;
  for (const auto& [sample, found] : missing) {
    for (const auto& [text, rule] : found.rules) {
      ++rules;
      const bool is_extreme = is_of_extremes(rule);
      expect_reason(is_extreme ? kExtremes : kSumsAndCuts, found.op, text,
                    is_extreme ? extremes : others);
    }
  }
  std::printf("%zu rules of %zu trials are true and not declared\n", rules, missing.size());
  if (testing_support::one_in(40) > 1) return;
  // Their samples call others behind them, and their results are no sample's.
  EXPECT_EQ(never_alone,
            (std::set<std::string>{"counted_targets", "cross_entropy", "pick_classes"}));
  EXPECT_EQ(extremes, operators_of(kExtremes));
  EXPECT_EQ(others, operators_of(kSumsAndCuts));
}

}  // namespace
}  // namespace dtrun::dtensor
