// Every operator, with its operands in any layouts of meshes of two, three and four axes, against
// the result of one rank; and its gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "dtensor/operator_results.h"
#include "dtensor/unequal_terms.h"
#include "dtrun/base/error.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

/// How many layouts of each sample: those that are asked for and some by chance, or two.
enum class Rounds { all, few };
/// Under a sanitizer few.
constexpr Rounds kAllRounds = testing_support::one_in(2) == 1 ? Rounds::all : Rounds::few;
constexpr std::size_t kRoundsByChance = 8;
/// Of eight ranks: one in so many of the samples. It does not divide the number of sizes, so that
/// those samples meet all sizes, too.
constexpr std::size_t kOneInSamples = testing_support::one_in(3);

/// What a layout of the operands must have; nothing: it is any.
struct Asked {
  std::optional<ReduceOp> kind = {};  ///< an axis of the first operand that is Partial so
  std::optional<int> dim = {};  ///< all axes cut it of each operand that has it, the last one first
};

/// The kinds of Partial that a dtype has.
std::vector<ReduceOp> partial_kinds(DType dtype) {
  std::vector<ReduceOp> kinds;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min,
                            ReduceOp::max, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor})
    if (collectives::reduce_op_supports(op, dtype)) kinds.push_back(op);
  return kinds;
}

/// A random legal layout.
class SomeLayout {
 public:
  SomeLayout(unsigned seed, const Tensor& whole, const DeviceMesh& mesh, const Asked& asked)
      : random_(seed) {
    if (asked.dim && *asked.dim < whole.dim()) {
      placements_.assign(static_cast<std::size_t>(mesh.ndim()), Shard(*asked.dim));
      for (int axis = 0; axis < mesh.ndim(); ++axis)
        order_[*asked.dim].insert(order_[*asked.dim].begin(), axis);
    } else {
      choose(whole, mesh, asked.kind);
    }
  }

  const Placements& placements() const { return placements_; }
  const ShardOrder& order() const { return order_; }
  bool has_order() const {
    return std::ranges::any_of(
        order_, [](const auto& entry) { return !std::ranges::is_sorted(entry.second); });
  }

 private:
  void choose(const Tensor& whole, const DeviceMesh& mesh, std::optional<ReduceOp> kind) {
    const std::vector<ReduceOp> kinds = partial_kinds(whole.dtype());
    const ReduceOp op = kind ? *kind : kinds[below(kinds.size())];
    const auto axes = static_cast<std::size_t>(mesh.ndim());
    const std::size_t fixed = kind ? below(axes) : axes;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const std::size_t choice = axis == fixed ? 0 : below(5);
      if (choice == 0) {
        placements_.push_back(Partial(op));
      } else if (choice == 1 || whole.dim() == 0) {
        placements_.push_back(Replicate());
      } else {
        placements_.push_back(some_shard(whole.shape(), mesh.size(static_cast<int>(axis))));
      }
    }
    order_ = Layout(placements_).order();
    for (auto& [dim, inside] : order_) {
      std::ranges::shuffle(inside, random_);
      std::ranges::stable_partition(inside, [&](int axis) {
        return placements_[static_cast<std::size_t>(axis)].is_ragged();
      });
    }
  }

  std::size_t below(std::size_t count) { return random_() % count; }

  /// Now and then ragged, which one axis of a dim may be.
  Placement some_shard(const Shape& shape, std::int64_t ranks) {
    const std::size_t dim = below(shape.size());
    const auto is_ragged = [dim](const Placement& p) {
      return p.is_shard(static_cast<int>(dim)) && p.is_ragged();
    };
    if (std::ranges::any_of(placements_, is_ragged) || below(4) != 0)
      return Shard(static_cast<int>(dim));
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks), 0);
    for (std::int64_t i = 0; i < shape[dim]; ++i) ++sizes[below(sizes.size())];
    return Shard(static_cast<int>(dim), sizes);
  }

  std::mt19937 random_;
  Placements placements_;
  ShardOrder order_;
};

/// What has been seen on a mesh.
struct Met {
  std::size_t calls = 0;
  std::size_t with_order = 0;                       ///< calls of which an operand has a shard order
  std::size_t exact = 0;                            ///< calls of which the bits are compared
  std::map<std::string, std::set<ReduceOp>> kinds;  ///< by sample: of its first operand
};

/// The operands of one call.
struct Operands {
  Tensors inputs;
  std::string text;
  bool has_order = false;
};
Operands some_operands(const OperatorSample& sample, unsigned seed, const DeviceMesh& mesh,
                       const Asked& asked) {
  Operands operands;
  for (const Tensor& input : sample.inputs) {
    const bool is_first = operands.inputs.empty();
    const SomeLayout layout(seed++, input, mesh, is_first ? asked : Asked{.dim = asked.dim});
    operands.inputs.push_back(placed_in_terms(input, mesh, layout.placements(), layout.order()));
    operands.text += operands.inputs.back().spec().to_string() + "  ";
    operands.has_order |= layout.has_order();
  }
  return operands;
}

/// Each kind of Partial, and each dim of the first operand; the sample's number says which of them
/// where only few rounds are run.
std::vector<Asked> rounds_of(const OperatorSample& sample, std::size_t number, Rounds which) {
  std::vector<Asked> kinds, dims;
  for (const ReduceOp kind : partial_kinds(sample.inputs.at(0).dtype()))
    kinds.push_back({.kind = kind});
  for (int dim = 0; dim < sample.inputs.at(0).dim(); ++dim) dims.push_back({.dim = dim});
  if (which == Rounds::few) return {kinds[number % kinds.size()], dims[number % dims.size()]};
  std::vector<Asked> rounds = kinds;
  rounds.insert(rounds.end(), dims.begin(), dims.end());
  rounds.resize(rounds.size() + kRoundsByChance);
  return rounds;
}

/// Whether no sum of the call is split, so that its result has the bits of one rank's: each element
/// of it is made of one of each operand, which no operand has as a sum that is due.
bool has_the_same_bits(const OperatorSample& sample, const Tensors& inputs) {
  static const std::set<std::string> kOfOneElement = {"Arithmetic",
                                                      "Bits",
                                                      "Functions of one tensor",
                                                      "Casts and fills",
                                                      "Comparisons and choice",
                                                      "Views, joins and splits",
                                                      "Picking and placing, along dim 0",
                                                      "Moving and ordering, along dim 0",
                                                      "In place, on a copy",
                                                      "Bits, in place, on a copy"};
  static const char* const kOfSeveral[] = {"index_add", "scatter_add", "scatter_reduce",
                                           ", add",     ", multiply",  "accumulated",
                                           "cumsum",    "cumprod"};
  const auto is_so = [&](const char* part) { return sample.name.find(part) != std::string::npos; };
  if (!kOfOneElement.contains(sample.family)) return false;
  if (std::ranges::any_of(kOfSeveral, is_so)) return false;
  return std::ranges::all_of(inputs, [](const Tensor& input) {
    return std::ranges::none_of(input.placements(),
                                [](const Placement& p) { return p.is_partial(); });
  });
}

/// @param exact_calls counts those of which the bits are compared
std::string wrong_with(const OperatorSample& sample, const Tensors& inputs, const Tensors& right,
                       std::size_t& exact_calls) {
  const bool exact = has_the_same_bits(sample, inputs);
  exact_calls += exact ? 1 : 0;
  try {
    return first_difference(results_of(sample, inputs), right,
                            exact ? Tolerance{0, 0} : Tolerance{1e-9, 1e-9});
  } catch (const base::Error& error) {
    return error.what();
  }
}

/// Sizes with even parts, uneven ones, and ranks that have nothing.
constexpr std::pair<int, int> kSizesOfAnyLayout[] = {{5, 3}, {2, 3}, {4, 4}, {3, 2}};

Met expect_right_in_any_layout(const std::vector<int>& mesh_shape, Rounds which,
                               std::size_t one_in) {
  std::vector<std::vector<OperatorSample>> by_size;
  for (const auto& [rows, columns] : kSizesOfAnyLayout)
    by_size.push_back(operator_samples(rows, columns));
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  Met met;
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    for (std::size_t i = 0; i < by_size[0].size(); i += one_in) {
      const std::vector<Asked> rounds = rounds_of(by_size[0][i], i, which);
      for (std::size_t round = 0; round < rounds.size(); ++round) {
        const OperatorSample& sample = by_size[(i + round) % by_size.size()][i];
        const auto seed = static_cast<unsigned>(100 * (i * 100 + round) + mesh_shape.size());
        const Operands operands = some_operands(sample, seed, mesh, rounds[round]);
        std::size_t exact = 0;
        const std::string wrong =
            wrong_with(sample, operands.inputs, results_of(sample, sample.inputs), exact);
        EXPECT_EQ(wrong, "") << sample.name << " of " << operands.text << "on rank "
                             << group.rank();
        if (group.rank() != 0) continue;
        ++met.calls;
        met.exact += exact;
        met.with_order += operands.has_order ? 1 : 0;
        if (rounds[round].kind) met.kinds[sample.name].insert(*rounds[round].kind);
      }
    }
  });
  return met;
}

/// @param one_in so many of the samples
void expect_every_operator_right_on(const std::vector<int>& mesh_shape, Rounds which,
                                    std::size_t one_in = 1) {
  const Met met = expect_right_in_any_layout(mesh_shape, which, one_in);
  std::printf(
      "%zu samples in %zu layouts of their operands, %zu of them with a shard order; the "
      "bits of %zu are compared\n",
      met.kinds.size(), met.calls, met.with_order, met.exact);
  EXPECT_GT(met.exact, met.kinds.size() / 4);
  const std::vector<OperatorSample> samples = operator_samples(2, 2);
  for (std::size_t i = 0; i < samples.size(); i += one_in) {
    const OperatorSample& sample = samples[i];
    const auto kinds = met.kinds.find(sample.name);
    ASSERT_NE(kinds, met.kinds.end()) << sample.name << " was not met";
    const std::vector<ReduceOp> all = partial_kinds(sample.inputs.at(0).dtype());
    EXPECT_EQ(kinds->second.size(), which == Rounds::all ? all.size() : 1U) << sample.name;
  }
  // At least that of each dim.
  EXPECT_GE(met.with_order, met.kinds.size());
}

TEST(AnyLayoutTest, EveryOperatorIsRightOnTwoAxes) {
  expect_every_operator_right_on({2, 2}, kAllRounds);
}

TEST(AnyLayoutTest, EveryOperatorIsRightOnThreeAxes) {
  expect_every_operator_right_on({2, 1, 3}, kAllRounds);
}

TEST(AnyLayoutTest, EveryOperatorIsRightOnFourAxes) {
  expect_every_operator_right_on({2, 1, 2, 2}, Rounds::few, kOneInSamples);
}

}  // namespace
}  // namespace dtrun::dtensor
