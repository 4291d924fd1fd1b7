// Every rule of every operator is true, and a wrong one is found.
#include "dtrun/dtensor/ops/check_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "autograd/call.h"
#include "dtensor/operator_samples.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

// Even and uneven parts, and ranks that have nothing.
#if defined(__SANITIZE_THREAD__)
// Some fifteen times slower: the uneven parts.
constexpr std::pair<int, int> kSizes[] = {{5, 3}};
#else
constexpr std::pair<int, int> kSizes[] = {{6, 4}, {5, 3}, {2, 2}};
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
/// One size of each kind.
std::vector<std::pair<int, int>> least_sizes(int) {
  return {{1, 3}, {0, 3}};
}
#else
/// Around the number of ranks, each beside a dim that all ranks have a part of.
std::vector<std::pair<int, int>> least_sizes(int ranks) {
  std::vector<std::pair<int, int>> sizes;
  if (ranks == 2) sizes = {{0, 0}, {1, 1}, {3, 3}};
  for (const int size : std::set<int>{0, 1, ranks - 1, ranks}) {
    sizes.emplace_back(size, ranks + 1);
    sizes.emplace_back(ranks + 1, size);
  }
  return sizes;
}
#endif

/// How many of the samples: one in so many.
constexpr std::size_t kOneIn = testing_support::one_in(6);
constexpr std::size_t kOneInAround = testing_support::one_in(12);  ///< around the number of ranks

/// Whether one rank refuses the call: of a size that the operator does not take.
bool is_refused(const OperatorSample& sample, const Tensors& inputs) {
  try {
    sample.run(inputs);
    return false;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument) << sample.name;
    return true;
  }
}

/// What has been seen of all samples in one size.
struct Seen {
  std::size_t rules = 0;
  std::size_t rules_of_gradients = 0;
  std::map<std::string, bool> ops;  ///< by name: whether a rule cuts anything or takes parts
  std::set<std::string> samples;    ///< by name
  std::set<std::string> refused;    ///< the samples that one rank refuses, and ranks, too

  void add(const CheckedRule& rule) {
    ++(rule.caller == CheckedRule::Caller::function ? rules : rules_of_gradients);
    ops[rule.op] |= rule.rule.find_first_of("SP") != std::string::npos;
  }
};

/// @param one_in so many of the samples
Seen expect_true_rules(int ranks, std::int64_t rows, std::int64_t columns, std::size_t one_in = 1) {
  const std::vector<OperatorSample> samples = operator_samples(rows, columns);
  // Each number of ranks and size has others.
  const std::size_t first = static_cast<std::size_t>(7 * ranks + 3 * rows + columns) % one_in;
  Seen seen;
  test::run_ranks(ranks, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {ranks});
    for (std::size_t i = first; i < samples.size(); i += one_in) {
      const OperatorSample& sample = samples[i];
      if (group.rank() == 0) seen.samples.insert(sample.name);
      SCOPED_TRACE(sample.name + " on " + std::to_string(ranks) + " ranks, " +
                   std::to_string(rows) + " x " + std::to_string(columns));
      if (is_refused(sample, sample.inputs)) {
        Tensors inputs;
        for (const Tensor& input : sample.inputs)
          inputs.push_back(distribute_tensor(input, mesh, {Replicate()}, {.source_rank = -1}));
        EXPECT_TRUE(is_refused(sample, inputs));
        if (group.rank() == 0) seen.refused.insert(sample.name);
        continue;
      }
      for (const CheckedRule& rule : check_rule(sample.run, sample.inputs, mesh)) {
        if (group.rank() == 0) seen.add(rule);
        EXPECT_EQ(rule.wrong, "") << rule.op << ": " << rule.rule << " on rank " << group.rank();
      }
    }
  });
  return seen;
}

TEST(CheckRuleTest, EveryRuleOfEveryOperatorIsTrue) {
  for (const int ranks : {2, 3}) {
    for (const auto& [rows, columns] : kSizes) {
      const Seen seen = expect_true_rules(ranks, rows, columns, kOneIn);
      std::printf("%d ranks, %d x %d: %zu rules, %zu of gradients\n", ranks, rows, columns,
                  seen.rules, seen.rules_of_gradients);
      EXPECT_GT(seen.rules, 600U / testing_support::one_in(6));
      EXPECT_GT(seen.rules_of_gradients, 600U / testing_support::one_in(6));
      EXPECT_EQ(seen.refused, std::set<std::string>{});
    }
  }
}

/// The samples that no rank takes in that size: they pick or place what is not there, or reduce
/// nothing.
std::set<std::string> refused_samples(int rows, int columns) {
  std::set<std::string> refused;
  const auto unless = [&](bool fits, std::initializer_list<const char*> names) {
    if (!fits) refused.insert(names.begin(), names.end());
  };
  unless(rows >= 2 && columns >= 2, {"conv2d", "conv2d, no bias", "conv2d, one image"});
  unless(rows >= 2, {"index_put", "index_put, one value", "index_put_", "topk", "topk, smallest"});
  unless(rows >= 1, {"amax",
                     "amin",
                     "argmax",
                     "argmin",
                     "embedding",
                     "embedding, padding_idx",
                     "index",
                     "index, from the end",
                     "index, i32",
                     "index_add",
                     "index_add_",
                     "index_add_, alpha",
                     "index_select",
                     "max",
                     "max, indices",
                     "min",
                     "min, indices",
                     "norm, power -1.5",
                     "norm, power -inf",
                     "norm, power inf",
                     "one_hot",
                     "pad, cropped",
                     "select",
                     "unbind"});
  unless(columns >= 1,
         {"amax, dim -1 kept", "amin, dim -1 kept", "argmax, dim -1 kept", "argmin, dim -1 kept",
          "max, dim -1 kept", "min, dim -1 kept", "cross_entropy, of one row",
          "nll_loss, of one row", "index_add, alpha, dim -1", "index_select, dim -1",
          "select, last", "topk, dim -1", "topk, indices", "unbind, dim -1"});
  unless(rows >= 1 && columns >= 1,
         {"amax, all dims", "amax, dims kept", "amin, all dims", "amin, dims kept",
          "argmax, all dims", "argmin, all dims", "max, all dims", "min, all dims",
          "conv2d, dilation", "index of two", "index_put, accumulated", "index_put_, accumulated"});
  unless(rows >= 1 || columns == 0, {"gather", "scatter (number)", "scatter_ (number)",
                                     "scatter_add", "scatter_add_", "scatter_reduce_"});
  unless(columns >= 1 || rows == 0,
         {"gather, dim -1", "scatter_add, dim -1", "cross_entropy", "nll_loss"});
  for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"}) {
    const std::string folded = std::string("scatter_reduce, ") + reduce;
    if (rows < 1 && columns > 0) refused.insert({folded, folded + ", without self"});
    if (columns < 1 && rows > 0) refused.insert(folded + ", dim -1");
  }
  if (rows < 1 && columns > 0) {
    for (const char* form : {"scatter", "scatter_", "scatter (number)", "scatter_ (number)"}) {
      for (const char* reduce : {", add", ", multiply"}) refused.insert(std::string(form) + reduce);
    }
  }
  if (columns < 1 && rows > 0) {
    for (const char* loss : {"cross_entropy", "nll_loss"}) {
      for (const char* form :
           {"ignore_index", "none", "of places", "sum", "weight", "weight, none"})
        refused.insert(std::string(loss) + ", " + form);
    }
    refused.insert("cross_entropy, label_smoothing");
    refused.insert("cross_entropy, label_smoothing, weight");
  }
  return refused;
}

std::string names_in_one(const std::set<std::string>& one, const std::set<std::string>& other) {
  std::string names;
  for (const std::string& name : one) {
    if (!other.contains(name)) names += "\"" + name + "\", ";
  }
  return names;
}

void expect_true_rules_around(int ranks) {
  for (const auto& [rows, columns] : least_sizes(ranks)) {
    const Seen seen = expect_true_rules(ranks, rows, columns, kOneInAround);
    std::printf("%d ranks, %d x %d: %zu rules, %zu of gradients, %zu samples refused\n", ranks,
                rows, columns, seen.rules, seen.rules_of_gradients, seen.refused.size());
    EXPECT_GT(seen.rules, 500U / testing_support::one_in(12));
    std::set<std::string> refused = refused_samples(rows, columns);
    std::erase_if(refused, [&](const std::string& name) { return !seen.samples.contains(name); });
    EXPECT_EQ(names_in_one(seen.refused, refused), "") << "refused of " << rows << " x " << columns;
    EXPECT_EQ(names_in_one(refused, seen.refused), "") << "taken of " << rows << " x " << columns;
  }
}

TEST(CheckRuleTest, EveryRuleIsTrueOfDimsAroundTwoRanks) {
  expect_true_rules_around(2);
}

TEST(CheckRuleTest, EveryRuleIsTrueOfDimsAroundThreeRanks) {
  expect_true_rules_around(3);
}

/// The names that the definitions in src/ops give their operators.
std::set<std::string> defined_operators() {
  std::set<std::string> names;
  const std::regex definition("\\.name = \"([a-z_0-9]+)\"");
  for (const auto& entry : std::filesystem::directory_iterator(DTRUN_HEADERS "/../src/ops")) {
    std::ifstream file(entry.path());
    std::smatch found;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_search(line, found, definition)) names.insert(found[1]);
    }
  }
  return names;
}

TEST(CheckRuleTest, NoOperatorIsWithoutRules) {
  const Seen seen = expect_true_rules(2, 6, 4);
  // What one rank and whole operands never call.
  const std::map<std::string, std::string> others = {
      {"copy_", "recorded with the value as its result, and never called: AutogradTest"},
      {"cut_cross_entropy", "only of logits whose classes are cut: RowsTest"},
      {"cut_cross_entropy_backward", "only of logits whose classes are cut: RowsTest"}};
  for (const std::string& name : defined_operators()) {
    if (const auto other = others.find(name); other != others.end()) {
      std::printf("not checked: %s, %s\n", name.c_str(), other->second.c_str());
      EXPECT_FALSE(seen.ops.contains(name)) << name;
    } else {
      EXPECT_TRUE(seen.ops.contains(name)) << name << " is called by no sample";
    }
  }
  for (const auto& [name, is_cut] : seen.ops)
    EXPECT_TRUE(is_cut) << name << " has no rule but that all are whole";
}

/// Claims to be linear.
constexpr Op<> kClaimedLinear{
    .name = "claimed",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().linear(0); },
    .local = [](Locals in, const None&, const None&, const Site&) { return tensors::relu(in[0]); }};

TEST(CheckRuleTest, AWrongRuleIsNamed) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto checked = check_rule([](const Tensors& in) { return call(kClaimedLinear, in[0]); },
                                    {tensor({1.5, -2.0})}, mesh);
    std::string wrong;
    for (const CheckedRule& rule : checked) {
      if (!rule.wrong.empty()) wrong += rule.op + ": " + rule.rule + ": " + rule.wrong + "\n";
    }
    EXPECT_EQ(wrong,
              "claimed: P(sum) -> P(sum): element 0 is 4.500000, not 1.500000\n"
              "claimed: P(avg) -> P(avg): element 0 is 2.250000, not 1.500000\n");
  });
}

TEST(CheckRuleTest, AMeshOfTwoAxesIsRefused) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    expect_refused(
        [&] { check_rule([](const Tensors& in) { return neg(in[0]); }, {ones(2)}, mesh); },
        "a rule is of one axis");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
