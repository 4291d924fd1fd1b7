// An operator of the program's own: on every layout it is what it is on one rank.
#include "dtrun/dtensor/ops/own_operator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/check_rule.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

/// x[..., i, j] * w[i], by a loop over what a rank has.
LocalTensor scaled_rows(const LocalTensors& in, const OperatorSite&) {
  return tensors::mul(in[0], in[1].reshape({in[1].numel(), 1}));
}

const OwnOperator& scale_rows() {
  static const OwnOperator op(
      {.name = "scale_rows",
       .dims = "...ij,i->...ij",
       .rules = {"P(sum), R -> P(sum)", "R, P(sum) -> P(sum)"},
       .kernel = scaled_rows,
       .backward = [](const Tensors& in, const Tensor&, const Tensor& gradient) {
         std::vector<int> others;
         for (int dim = 0; dim < gradient.dim(); ++dim) {
           if (dim != gradient.dim() - 2) others.push_back(dim);
         }
         return Tensors{scale_rows()(gradient, in[1]), sum(gradient * in[0], others)};
       }});
  return op;
}

/// The sum over j of x[i, j] * y[j, k], by the library's own product.
const OwnOperator& product() {
  static const OwnOperator op({.name = "own_product",
                               .dims = "ij,jk->ik",
                               .kernel = [](const LocalTensors& in, const OperatorSite&) {
                                 return tensors::matmul(in[0], in[1]);
                               }});
  return op;
}

TEST(OwnOperatorTest, ValuesAndGradientsAreRightOnEveryLayout) {
  const Tensor w = tensor({2., -1., 0.5, 3.});
  expect_right(
      [&](const Tensor& x) {
        const Tensor placed_w =
            x.is_distributed() ? distribute_tensor(w, x.device_mesh(),
                                                   Placements(x.placements().size(), Replicate()),
                                                   {.source_rank = -1})
                               : w;
        return scale_rows()(x, placed_w);
      },
      {4, 5});
}

TEST(OwnOperatorTest, TheOneOfTheDocumentDoes) {
  static const OwnOperator weighted_sum(
      {.name = "weighted_sum",
       .dims = "...ij,j->...i",
       .kernel = [](const LocalTensors& in,
                    const OperatorSite&) { return tensors::matmul(in[0], in[1]); },
       .backward =
           [](const Tensors& in, const Tensor&, const Tensor& gradient) {
             const Tensor rows = gradient.unsqueeze(-1) * in[0];
             return Tensors{gradient.unsqueeze(-1) * in[1],
                            sum(rows.reshape({-1, in[0].size(-1)}), {0})};
           }});
  expect_right([](const Tensor& x) { return weighted_sum(x, x.select(0, 0).select(0, 1)); },
               {2, 3, 4});
}

TEST(OwnOperatorTest, ItsRulesAreTrue) {
  test::run_ranks(2, [](const collectives::ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensors samples = {rand({3, 4, 5}, {1}, kDoubles), rand({4}, {2}, kDoubles)};
    const auto checked =
        check_rule([](const Tensors& in) { return scale_rows()(in[0], in[1]); }, samples, mesh);
    const auto is_own = [](const CheckedRule& rule) {
      return rule.caller == CheckedRule::Caller::function;
    };
    EXPECT_EQ(std::ranges::count_if(checked, is_own), 6);
    for (const CheckedRule& rule : checked) EXPECT_EQ(rule.wrong, "") << rule.rule;
  });
}

TEST(OwnOperatorTest, ALetterThatTheResultLacksIsSummedWithoutCommunication) {
  test::run_ranks(4, [](const collectives::ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const Tensor a = randn({6, 8}, {1}, kDoubles), b = randn({8, 4}, {2}, kDoubles);
    const Tensor x = distribute_tensor(a, mesh, {Shard(0), Shard(1)}, {.source_rank = -1});
    const Tensor y = distribute_tensor(b, mesh, {Replicate(), Shard(0)}, {.source_rank = -1});
    const CommCounter counter;
    const Tensor z = product()(x, y);
    EXPECT_EQ(counter.get_total_counts(), 0);
    EXPECT_EQ(z.placements(), (Placements{Shard(0), Partial()}));
    EXPECT_LT(max(abs(z - matmul(x, y))).item(), 1e-12);
  });
}

TEST(OwnOperatorTest, AnOperandMayHaveFewerDimsThanTheDotsOfAnother) {
  const OwnOperator plus({.name = "plus",
                          .dims = "...i,...i->...i",
                          .kernel = [](const LocalTensors& in, const OperatorSite&) {
                            return tensors::add(in[0], in[1]);
                          }});
  test::run_ranks(2, [&](const collectives::ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor matrix = ones({3, 4}, mesh, {Shard(0)}), row = ones({4}, mesh, {Shard(0)});
    EXPECT_EQ(plus(matrix, row).to_vector(), std::vector<double>(12, 2));
    EXPECT_EQ(plus(row, matrix).to_vector(), std::vector<double>(12, 2));
  });
}

TEST(OwnOperatorTest, AKernelMayKnowWhereItsPartLies) {
  const OwnOperator positions(
      {.name = "row_numbers",
       .dims = "ij->i",
       .whole = "j",
       .kernel = [](const LocalTensors& in, const OperatorSite& site) {
         const std::int64_t first = site.output ? site.output.local_box().offsets[0] : 0;
         const std::int64_t rows = in[0].shape()[0];
         return tensors::arange(static_cast<double>(first), static_cast<double>(first + rows), 1,
                                {.dtype = in[0].dtype()});
       }});
  test::run_ranks(3, [&](const collectives::ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (const Placement& placement : {Shard(0), Shard(1), Replicate()}) {
      const Tensor numbers = positions(ones({7, 3}, mesh, {placement}));
      EXPECT_EQ(numbers.to_vector(), (std::vector<double>{0, 1, 2, 3, 4, 5, 6}));
      EXPECT_FALSE(numbers.placements()[0].is_partial());
    }
  });
}

// Whatever its rules say, an operator takes whole operands.
TEST(OwnOperatorTest, WhereNoRuleFitsTheOperandsAreGatheredAndStrictModeNamesTheLegalLayouts) {
  const auto doubled = [](const std::string& whole) {
    return OwnOperator({.name = "doubled",
                        .dims = "ij->ij",
                        .whole = whole,
                        .kernel = [](const LocalTensors& in, const OperatorSite&) {
                          return tensors::mul(in[0], Scalar(2));
                        }});
  };
  const OwnOperator of_rows = doubled("j"), of_matrices = doubled("ij");
  test::run_ranks(2, [&](const collectives::ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1))}) {
      const Tensor x = ones({4, 6}, mesh, {placement});
      const CommCounter counter;
      const Tensor y = of_matrices(x);
      EXPECT_EQ(counter.get_comm_counts(),
                (std::map<std::string, std::int64_t>{{"all_gather", 1}}));
      EXPECT_EQ(y.placements(), Placements{Replicate()});
      EXPECT_EQ(y.to_vector(), std::vector<double>(24, 2));
    }
    const Tensor x = ones({4, 6}, mesh, {Shard(1)});
    const StrictScope strict;
    expect_refused([&] { of_matrices(x); },
                   {"doubled would communicate, which nobody asked for", "doubled takes [R] for "});
    expect_refused([&] { of_rows(x); }, {"doubled takes [S(0)] for ", ", [R] for "});
  });
}

TEST(OwnOperatorTest, ARuleThatCanNeverHoldIsRefused) {
  const auto defined = [](const std::string& dims, const std::string& rule,
                          const std::string& whole = "") {
    return OwnOperator(
        {.name = "odd",
         .dims = dims,
         .whole = whole,
         .rules = {rule},
         .kernel = [](const LocalTensors& in, const OperatorSite&) { return in[0]; }});
  };
  expect_refused(
      [&] { defined("ij,j->ij", "R, S(1) -> R"); },
      {"'odd' cannot have the rule \"R, S(1) -> R\"", "dim 1 of operand 2, which has 1"});
  expect_refused([&] { defined("ij->i", "S(1) -> S(1)"); }, "dim 1 of the result, which has 1");
  expect_refused([&] { defined("ij->ij", "S(1) -> S(1)", "j"); }, "cuts 'j' of operand 1");
  expect_refused([&] { defined("ij->ij", "S(-1) -> S(0)"); }, "counted from 0");
  // These may hold.
  defined("...i->...i", "S(5) -> S(5)");
  defined("ij->ij", "P(avg) -> P(avg)")(ones({2, 3}));
  test::run_ranks(2, [&](const collectives::ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor whole = ones({4, 3}, {.dtype = DType::boolean});
    const Tensor x = distribute_tensor(whole, mesh, {Shard(0)}, {.source_rank = -1});
    expect_refused([&] { defined("ij->ij", "P(avg) -> P(avg)")(x); },
                   {"'odd' cannot have the rule", "operand 1 is bool, which cannot be"});
  });
}

TEST(OwnOperatorTest, WhatContradictsItselfIsRefused) {
  const auto kernel = [](const LocalTensors& in, const OperatorSite&) { return in[0]; };
  const auto defined = [&](const std::string& dims, const std::string& whole = "",
                           const std::vector<std::string>& rules = {}) {
    return OwnOperator(
        {.name = "odd", .dims = dims, .whole = whole, .rules = rules, .kernel = kernel});
  };
  expect_refused([&] { defined("ij"); }, "there is no \"->\"");
  expect_refused([&] { defined("ii->i"); }, "one tensor has 'i' twice");
  expect_refused([&] { defined("i1->i"); }, "'1' is no letter");
  expect_refused([&] { defined("ij->i", "k"); }, "no operand has 'k' of whole");
  expect_refused([&] { defined("i->i", "", {"R, R -> R"}); }, "2 operands, and the operator 1");
  expect_refused([&] { defined("i->i", "", {"R, "}); }, "there is no \"->\"");
  expect_refused([] { OwnOperator({.name = "none", .dims = "i->i"}); }, "has no kernel");
  expect_refused([&] { defined("i,i->i")(ones(2)); }, "was called with 1 operands");
  expect_refused([&] { defined("ij->ij")(ones(2)); }, "an operand of 1 dims");
  expect_refused([&] { defined("i,i->i")(ones(2), ones(3)); }, "do not fit");
  expect_refused([&] { defined("i->ik")(ones(2)); }, "define `result`, too");
  expect_refused([&] { defined("ij->i")(ones(2, 3)); }, "this rank's part is f32[2]");
}

}  // namespace
}  // namespace dtrun::dtensor
