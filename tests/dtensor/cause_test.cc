// Causes: whatever communicates is told as the call that the program made, wherever it is told: in
// strict mode's errors, and in the log.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dtensor/operator_results.h"
#include "dtensor/operator_samples.h"
#include "dtensor/parallel/small_models.h"
#include "dtensor/unequal_terms.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/visualize_sharding.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The lines of all ranks that it stands for, once each.
class MoveLines {
 public:
  MoveLines() {
    lines().clear();
    base::log::set_levels("+dtensor");
    base::log::set_writer([](const base::log::Line& line) {
      const std::lock_guard lock(mutex());
      lines().emplace(line.message);
    });
  }
  ~MoveLines() {
    base::log::set_writer(nullptr);
    base::log::set_levels("");
  }
  MoveLines(const MoveLines&) = delete;
  MoveLines& operator=(const MoveLines&) = delete;

  const std::set<std::string>& all() const { return lines(); }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::set<std::string>& lines() {
    static std::set<std::string> all;
    return all;
  }
};

/// How an operand lies on a line of ranks: the one that is asked about, or all.
struct Lying {
  Placement placement;
  bool is_of_all;
};
const Lying kLyings[] = {{Shard(0), true},  {Shard(1), true},  {Partial(), true},
                         {Shard(0), false}, {Shard(1), false}, {Partial(), false}};

Tensor placed(const Tensor& whole, const DeviceMesh& mesh, Placement placement) {
  const bool has_it = placement.is_shard() && placement.dim() < whole.dim();
  const bool has_sum = placement.is_partial() && whole.dtype() == DType::f64;
  if (!has_it && !has_sum) placement = Replicate();
  return placed_in_terms(whole, mesh, {placement}, {});
}

/// @param which is cut where not all are
Tensors operands_of(const OperatorSample& sample, const DeviceMesh& mesh, const Lying& lying,
                    std::size_t which) {
  Tensors operands;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const bool is_so = lying.is_of_all || i == which;
    operands.push_back(placed(sample.inputs[i], mesh, is_so ? lying.placement : Replicate()));
  }
  return operands;
}

/// "index_add, alpha" is of "index_add".
std::string public_name(const std::string& sample) {
  static const std::map<std::string, std::string> kOthers = {
      {"operator ==", "eq"}, {"operator !=", "ne"}, {"operator <", "lt"},
      {"operator <=", "le"}, {"operator >", "gt"},  {"operator >=", "ge"}};
  if (const auto other = kOthers.find(sample); other != kOthers.end()) return other->second;
  if (sample.starts_with("stddev")) return "std";  // PyTorch's name
  std::size_t end = 0;
  while (end < sample.size() && (std::isalnum(sample[end]) != 0 || sample[end] == '_')) ++end;
  return sample.substr(0, end);
}

/// @param visit of each sample with each way in which its operands lie
void for_each_lying(
    const std::vector<OperatorSample>& samples, const DeviceMesh& mesh,
    const std::function<void(const OperatorSample& sample, const Tensors& operands)>& visit) {
  for (std::size_t i = 0; i < samples.size(); i += testing_support::one_in(10)) {
    const OperatorSample& sample = samples[i];
    for (const Lying& lying : kLyings) {
      const std::size_t count = lying.is_of_all ? 1 : sample.inputs.size();
      for (std::size_t which = 0; which < count; ++which)
        visit(sample, operands_of(sample, mesh, lying, which));
    }
  }
}

/// What is asked of one call.
struct Found {
  std::size_t calls = 0;        ///< that communicated
  std::set<std::string> names;  ///< of their operators
  std::set<std::string> wrong;
};

std::string refusal_of(const OperatorSample& sample, const Tensors& operands) {
  const StrictScope strict;
  try {
    sample.run(operands);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

/// Empty where it is as it should be.
std::string wrong_in(const std::string& refusal, const std::string& name, const Tensors& operands) {
  if (refusal.empty()) return "is let through";
  if (!refusal.starts_with(name + " would communicate, which nobody asked for"))
    return "is told otherwise";
  if (!has(refusal, " takes ")) return "does not tell what it takes";
  for (const Tensor& operand : operands) {
    if (!has(refusal, operand.spec().to_string())) return "does not tell the operands";
  }
  return "";
}

void look_at(const OperatorSample& sample, const Tensors& operands, Found& found) {
  // They call another operator before.
  if (sample.name == "clamp of tensors" || sample.name == "reshape, transposed") return;
  const std::string name = public_name(sample.name);
  const CommCounter counter;
  sample.run(operands);
  if (counter.get_total_counts() == 0) return;
  ++found.calls;
  found.names.insert(name);
  for (const auto& [op, counts] : counter.by_operator()) {
    if (op != name) found.wrong.insert(sample.name + " is counted under \"" + op + "\"");
  }
  const std::string refusal = refusal_of(sample, operands);
  const std::string wrong = wrong_in(refusal, name, operands);
  if (!wrong.empty()) found.wrong.insert(sample.name + " " + wrong + "\n" + refusal);
}

Tensors with_gradients(const Tensors& operands) {
  Tensors leaves;
  for (const Tensor& operand : operands) {
    leaves.push_back(operand.detach());
    if (operand.dtype() == DType::f64) leaves.back().requires_grad_();
  }
  return leaves;
}

TEST(CauseTest, WhatAnyOperatorSendsIsCountedAndRefusedUnderItsName) {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    Found found;
    for_each_lying(samples, mesh, [&](const OperatorSample& sample, const Tensors& operands) {
      look_at(sample, operands, found);
      look_at(sample, with_gradients(operands), found);
    });
    EXPECT_EQ(sum(ones({4}, mesh, {Shard(0)})).item(), 4);  // the ranks are in step
    if (group.rank() != 0) return;
    for (const std::string& wrong : found.wrong) ADD_FAILURE() << wrong;
    std::printf("%zu calls of %zu operators are refused\n", found.calls, found.names.size());
    EXPECT_GT(found.calls, 1000U / testing_support::one_in(20));
    EXPECT_GT(found.names.size(), 150U / testing_support::one_in(20));
  });
}

TEST(CauseTest, NoLineOfTheLogNamesALineOfTheLibrary) {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  const MoveLines lines;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for_each_lying(samples, mesh, [&](const OperatorSample& sample, const Tensors& operands) {
      results_of(sample, operands);
    });
    const Tensor x = ones({4, 2}, mesh, {Shard(0)});
    EXPECT_TRUE(equal(x, x));
    shards_text(x);
  });
  std::printf("%zu different lines\n", lines.all().size());
  EXPECT_GT(lines.all().size(), 1000U / testing_support::one_in(20));
  for (const std::string& line : lines.all()) {
    EXPECT_FALSE(has(line, "dtensor/src/")) << line;
    EXPECT_FALSE(has(line, "an operator")) << line;
  }
}

TEST(CauseTest, WhatLayersAroundModulesSendIsCountedUnderTheirNames) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto names_of = [&](nn::Module& model) {
      const CommCounter counter;
      part_of_loss(model, group).backward();
      std::set<std::string> names;
      for (const auto& [name, counts] : counter.by_operator()) names.insert(name);
      return names;
    };
    const auto sharded = made_reader();
    fully_shard(*sharded, mesh, {.units = {"blocks.*"}});
    EXPECT_EQ(
        names_of(*sharded),
        (std::set<std::string>{"unshard", "unshard of blocks.0", "unshard of blocks.1",
                               "unshard of blocks.0, backward", "unshard of blocks.1, backward",
                               "gradients, backward", "gradients of blocks.0, backward",
                               "gradients of blocks.1, backward"}));
    const auto copied = made_reader();
    data_parallel(*copied, mesh);
    EXPECT_EQ(names_of(*copied), (std::set<std::string>{"data_parallel's bucket, backward",
                                                        "the order of data_parallel's buckets, "
                                                        "backward"}));
  });
}

TEST(DisagreementTest, ACallOfTheLibraryIsToldByTheProgramsLineOrItsName) {
  const int here = __LINE__;
  const auto thrown = test::run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    const Tensor x = ones({4, 2}, DeviceMesh(group, {2}), {Shard(0)}).requires_grad_();
    x.set_grad(x.detach());
    if (group.rank() == 0) optim::clip_grad_norm_({x}, 1);  // here + 4
    if (group.rank() == 1) masked_select(x.detach(), gt(x.detach(), 0));
  });
  const std::string line = "cause_test.cc:" + std::to_string(here + 4);
  for (const auto& error : thrown) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, base::ErrorCode::kDisagreement);
    EXPECT_TRUE(has(error->text, line)) << error->text;
    EXPECT_TRUE(has(error->text, " at masked_select")) << error->text;
    EXPECT_FALSE(has(error->text, "dtensor/src/")) << error->text;
  }
}

/// Rows that `remedy` says how to bring; then the call is let through.
void expect_remedy(const Tensor& a, const Tensor& b, const std::string& remedy,
                   const std::function<Tensor(const Tensor&)>& apply) {
  const StrictScope strict;
  std::string text;
  try {
    a.add(b);
  } catch (const base::Error& error) {
    text = error.what();
  }
  EXPECT_TRUE(has(text, "  try: " + remedy + " it before, or end the StrictScope")) << text;
  const bool is_first = has(text, "why: argument 1, ");
  const Tensor moved = apply(is_first ? a : b);
  const CommCounter counter;
  is_first ? moved.add(b) : a.add(moved);
  EXPECT_EQ(counter.get_total_counts(), 0) << counter;
}

TEST(StrictScopeTest, TheRemedyBringsAnOrderOfAxes) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const Tensor whole = ones({8, 8});
    const auto lying = [&](const Placements& placements, const ShardOrder& order) {
      return placed_in_terms(whole, mesh, placements, order);
    };
    const ShardOrder order = {{0, {1, 0}}};
    expect_remedy(lying({Shard(0), Shard(0)}, order), lying({Partial(), Shard(0)}, {}),
                  "redistribute({Shard(0), Shard(0)}, {{0, {1, 0}}})", [](const Tensor& x) {
                    return x.redistribute({Shard(0), Shard(0)}, {{0, {1, 0}}});
                  });
  });
}

TEST(StrictScopeTest, TheRemedyBringsRaggedShards) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor whole = ones({8, 64});
    expect_remedy(placed_in_terms(whole, mesh, {Shard(0, {3, 0, 5})}),
                  placed_in_terms(whole, mesh, {Partial()}), "redistribute({Shard(0, {3, 0, 5})})",
                  [](const Tensor& x) {
                    return x.redistribute({Shard(0, {3, 0, 5})});
                  });
  });
}

}  // namespace
}  // namespace dtrun::dtensor
