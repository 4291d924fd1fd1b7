// What the rules and the choice among them come to, without any rank.
#include "dispatch/choice.h"

#include <gtest/gtest.h>

#include "dispatch/matmul_operation.h"
#include "dispatch/pointwise_operation.h"
#include "dispatch/rules.h"
#include "dtensor/vector_layout.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor::sharding {
namespace {

using tensors::DType;
using tensors::Shape;

struct Input {
  Shape shape;
  std::vector<std::string> placements;
  DType dtype = DType::f32;
  ShardOrder order = {};
};

struct Outcome {
  std::string output;
  int collectives;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};
std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << outcome.output << " after " << outcome.collectives << " collectives";
}

Operand operand_of(const Input& input) {
  return {input.shape, input.dtype, {}};
}

Outcome outcome_of(const Rules& rules, const std::vector<int>& mesh,
                   const std::vector<Input>& inputs) {
  std::vector<Layout> layouts;
  for (const Input& input : inputs) {
    Placements placements;
    for (const std::string& text : input.placements) placements.push_back(Placement::parse(text));
    layouts.push_back(make_layout(input.shape, mesh, placements, input.order));
  }
  const Choice choice = cheapest_choice(rules.operation(), rules.rules(), mesh, layouts);
  PlanCost cost;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    cost += plan_cost(inputs[i].shape, mesh,
                      plan_redistribute(inputs[i].shape, mesh, layouts[i], choice.inputs[i]));
  }
  return {choice.output.to_string(), cost.collectives};
}

DType result_dtype(const std::vector<Input>& inputs) {
  DType dtype = inputs[0].dtype;
  for (const Input& input : inputs) dtype = tensors::promote_types(dtype, input.dtype);
  return dtype;
}

/// Rules about to be told, as an operator's definition gets them.
Rules rules_for(const std::vector<Input>& inputs) {
  std::vector<Meta> metas;
  for (const Input& input : inputs) metas.push_back({input.shape, input.dtype});
  return Rules(metas, {{}, result_dtype(inputs)});
}
Outcome add(const std::vector<int>& mesh, const std::vector<Input>& inputs) {
  return outcome_of(rules_for(inputs).pointwise().cut_all().additive(), mesh, inputs);
}
Outcome mul(const std::vector<int>& mesh, const std::vector<Input>& inputs) {
  return outcome_of(rules_for(inputs).pointwise().cut_all().multiplicative(), mesh, inputs);
}
/// As a layer's, of which gradients are wanted, and whose result shall lie so.
Outcome layer(const Input& left, const Input& right, const std::string& wished) {
  const std::vector<int> mesh = {2};
  const Operation product = matmul_operation(operand_of(left), operand_of(right), DType::f32);
  const Layout layout = make_layout(product.output_shape, mesh, {Placement::parse(wished)});
  return outcome_of(rules_for({left, right})
                        .einsum(product)
                        .cut_all()
                        .multiplicative()
                        .weigh_both_ways({true, true}, 0b11, layout),
                    mesh, {left, right});
}
Outcome matmul(const std::vector<int>& mesh, const Input& left, const Input& right) {
  const Operation product =
      matmul_operation(operand_of(left), operand_of(right), result_dtype({left, right}));
  return outcome_of(rules_for({left, right}).einsum(product).cut_all().multiplicative(), mesh,
                    {left, right});
}

TEST(ChoiceTest, EqualPlacementsAddWithoutCommunication) {
  for (const char* placement : {"R", "S(0)", "S(1)", "P(sum)", "P(avg)"}) {
    EXPECT_EQ(add({4}, {{{5, 3}, {placement}}, {{5, 3}, {placement}}}),
              (Outcome{"[" + std::string(placement) + "]", 0}));
  }
}

TEST(ChoiceTest, AShardMeetsAWholeTensorByCuttingIt) {
  EXPECT_EQ(add({4}, {{{5, 3}, {"S(1)"}}, {{5, 3}, {"R"}}}), (Outcome{"[S(1)]", 0}));
  EXPECT_EQ(mul({4}, {{{5, 3}, {"R"}}, {{5, 3}, {"S(0)"}}}), (Outcome{"[S(0)]", 0}));
}

TEST(ChoiceTest, DifferentShardsTakeOneAllToAll) {
  EXPECT_EQ(add({4}, {{{9, 3}, {"S(0)"}}, {{9, 3}, {"S(1)"}}}).collectives, 1);
}

TEST(ChoiceTest, BroadcastDimsAreAlignedFromTheRightAndStayWholeWhereTheyAreStretched) {
  EXPECT_EQ(add({2}, {{{5, 3}, {"S(1)"}}, {{3}, {"S(0)"}}}), (Outcome{"[S(1)]", 0}));
  EXPECT_EQ(add({2}, {{{5, 3}, {"S(0)"}}, {{3}, {"R"}}}), (Outcome{"[S(0)]", 0}));
  EXPECT_EQ(add({2}, {{{5, 1}, {"R"}}, {{1, 3}, {"S(1)"}}}), (Outcome{"[S(1)]", 0}));
  EXPECT_EQ(add({2}, {{{1, 3}, {"S(0)"}}, {{5, 3}, {"S(0)"}}}).output, "[S(0)]");
  EXPECT_EQ(add({2}, {{{1, 3}, {"S(0)"}}, {{5, 3}, {"S(0)"}}}).collectives, 1);
  EXPECT_EQ(mul({2}, {{{1, 3}, {"S(0)"}}, {{3}, {"R"}}}), (Outcome{"[S(0)]", 0}));
}

TEST(ChoiceTest, SumsOfPartialsStayPartialAndAWholeTensorJoinsThem) {
  EXPECT_EQ(add({2}, {{{4}, {"P(sum)"}}, {{4}, {"R"}}}), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(add({2, 2}, {{{4}, {"P(sum)", "R"}}, {{4}, {"R", "P(sum)"}}}),
            (Outcome{"[P(sum), P(sum)]", 0}));
  EXPECT_EQ(add({2}, {{{4}, {"P(sum)"}}, {{4}, {"S(0)"}}}), (Outcome{"[S(0)]", 1}));
  EXPECT_EQ(add({2}, {{{4}, {"P(sum)"}}, {{4}, {"P(avg)"}}}).collectives, 1);
}

TEST(ChoiceTest, MaximaAreReducedBeforeSumsAndProducts) {
  EXPECT_EQ(add({2}, {{{4}, {"P(max)"}}, {{4}, {"R"}}}), (Outcome{"[R]", 1}));
  EXPECT_EQ(mul({2}, {{{4}, {"P(min)"}}}), (Outcome{"[R]", 1}));
  EXPECT_EQ(add({2}, {{{4}, {"P(max)"}}, {{4}, {"P(max)"}}}).collectives, 2);
}

TEST(ChoiceTest, AProductKeepsJustOnePartialSide) {
  EXPECT_EQ(mul({2}, {{{4}, {"P(sum)"}}, {{4}, {"R"}}}), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(mul({2}, {{{4}, {"R"}}, {{4}, {"P(avg)"}}}), (Outcome{"[P(avg)]", 0}));
  EXPECT_EQ(mul({2}, {{{4}, {"P(sum)"}}, {{4}, {"P(sum)"}}}), (Outcome{"[P(sum)]", 1}));
  EXPECT_EQ(mul({2}, {{{4}, {"P(sum)"}}}), (Outcome{"[P(sum)]", 0}));
}

TEST(ChoiceTest, IntegerPartialsAreReducedWhereTheResultWouldWrapOrTruncateOtherwise) {
  EXPECT_EQ(add({2}, {{{4}, {"P(sum)"}, DType::i32}, {{4}, {"P(sum)"}, DType::i32}}),
            (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(add({2}, {{{4}, {"P(sum)"}, DType::i32}, {{4}, {"R"}, DType::i64}}),
            (Outcome{"[R]", 1}));
  EXPECT_EQ(mul({2}, {{{4}, {"P(avg)"}, DType::i64}}), (Outcome{"[R]", 1}));
}

TEST(ChoiceTest, MatmulTakesTheRulesOfAnEinsum) {
  const Shape a = {6, 8};
  const Shape b = {8, 4};
  EXPECT_EQ(matmul({2}, {a, {"R"}}, {b, {"R"}}), (Outcome{"[R]", 0}));
  EXPECT_EQ(matmul({2}, {a, {"S(0)"}}, {b, {"R"}}), (Outcome{"[S(0)]", 0}));
  EXPECT_EQ(matmul({2}, {a, {"R"}}, {b, {"S(1)"}}), (Outcome{"[S(1)]", 0}));
  EXPECT_EQ(matmul({2}, {a, {"S(1)"}}, {b, {"S(0)"}}), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(matmul({2}, {a, {"P(sum)"}}, {b, {"R"}}), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(matmul({2}, {a, {"R"}}, {b, {"P(sum)"}}), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(matmul({2}, {a, {"P(sum)"}}, {b, {"P(sum)"}}), (Outcome{"[P(sum)]", 1}));
  EXPECT_EQ(matmul({2}, {a, {"S(1)"}}, {b, {"R"}}), (Outcome{"[P(sum)]", 0}));
}

TEST(ChoiceTest, MatmulUsesBothAxesOfAMesh) {
  const Shape a = {6, 8};
  const Shape b = {8, 4};
  EXPECT_EQ(matmul({2, 2}, {a, {"S(0)", "R"}}, {b, {"R", "S(1)"}}), (Outcome{"[S(0), S(1)]", 0}));
  EXPECT_EQ(matmul({2, 2}, {a, {"S(0)", "S(1)"}}, {b, {"R", "S(0)"}}),
            (Outcome{"[S(0), P(sum)]", 0}));
}

TEST(ChoiceTest, ACutOfTheResultIsPreferredToAPartialOneThatMovesMoreInTheEnd) {
  // One all_gather of b, rather than one all_to_all of a and a reduction of the large result.
  EXPECT_EQ(matmul({2}, {{64, 8}, {"S(0)"}}, {{8, 64}, {"S(0)"}}), (Outcome{"[S(0)]", 1}));
}

TEST(ChoiceTest, AnOrderOfAxesThatBothHaveIsKept) {
  const ShardOrder swapped = {{0, {1, 0}}};
  const Input input = {{8, 4}, {"S(0)", "S(0)"}, DType::f32, swapped};
  EXPECT_EQ(add({2, 2}, {input, input}), (Outcome{"[S(0), S(0)] order {0: [1, 0]}", 0}));
  EXPECT_EQ(matmul({2, 2}, input, {{4, 4}, {"R", "R"}}),
            (Outcome{"[S(0), S(0)] order {0: [1, 0]}", 0}));
}

TEST(ChoiceTest, EightAxesAreChosenFor) {
  const std::vector<int> mesh(8, 2);
  const std::vector<std::string> cuts = {"S(0)", "S(1)", "S(2)", "S(3)",
                                         "S(0)", "S(1)", "S(2)", "S(3)"};
  std::vector<std::string> others = cuts;
  std::ranges::rotate(others, others.begin() + 1);
  const Shape shape = {16, 16, 16, 16};
  EXPECT_EQ(add(mesh, {{shape, cuts}, {shape, cuts}}).collectives, 0);
  // All combinations are 6 to the power of 8. One operand comes to the other.
  EXPECT_LE(add(mesh, {{shape, cuts}, {shape, others}}).collectives, 16);
}

TEST(ChoiceTest, BytesDecideWhereThereAreMany) {
  // The small operand comes to the large one, whichever is first.
  const Input large = {{4096, 4096}, {"S(0)"}}, small = {{4096, 1}, {"S(1)"}};
  EXPECT_EQ(add({4}, {large, small}).output, "[S(0)]");
  EXPECT_EQ(add({4}, {small, large}).output, "[S(0)]");
}

TEST(ChoiceTest, ASumIsNotPutOffUntilItIsFarLarger) {
  const Input large = {{4096, 4096}, {"R"}}, row = {{4096}, {"P(sum)"}};
  EXPECT_EQ(add({4}, {large, row}), (Outcome{"[R]", 1}));
  EXPECT_EQ(add({4}, {row, large}), (Outcome{"[R]", 1}));
  EXPECT_EQ(mul({4}, {large, row}), (Outcome{"[R]", 1}));
  EXPECT_EQ(matmul({4}, {{4096, 1}, {"P(sum)"}}, {{1, 4096}, {"R"}}), (Outcome{"[R]", 1}));
  // A reduction's latency is more than the bytes of a few elements, and of one operand as large as
  // the result no more are reduced later.
  EXPECT_EQ(add({4}, {{{4, 4}, {"R"}}, {{4}, {"P(sum)"}}}), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(add({4}, {{{4096, 4096}, {"P(sum)"}}, row}), (Outcome{"[P(sum)]", 0}));
}

TEST(ChoiceTest, ShapesThatDoNotFitAreRefused) {
  EXPECT_THROW(rules_for({{{5}, {"R"}}, {{4}, {"R"}}}).pointwise(), base::Error);
  EXPECT_THROW(matmul({1}, {{2, 3}, {"R"}}, {{2, 3}, {"R"}}), base::Error);
  EXPECT_THROW(matmul({1}, {{}, {"R"}}, {{2}, {"R"}}), base::Error);
}

TEST(ChoiceTest, NoMoreCollectivesThanPyTorchTookOnTheVectors) {
  std::size_t compared = 0;
  for (const test::VectorCase& item : test::read_vector_file("ops")) {
    if (!item.at("torch").as_object().contains("comm")) continue;
    SCOPED_TRACE(test::text_of(item.at("id")));
    std::vector<Input> inputs;
    for (const boost::json::value& value : item.at("inputs").as_array()) {
      const boost::json::object& input = value.as_object();
      inputs.push_back({test::sizes_of(input.at("shape")), test::texts_of(input.at("placements")),
                        tensors::parse_dtype(test::text_of(input.at("dtype"))),
                        order_of(input.if_contains("shard_order"))});
    }
    const std::string op = test::text_of(item.at("op"));
    const std::vector<int> mesh = test::ints_of(item.at("mesh"));
    const Outcome outcome = op == "add"                    ? add(mesh, inputs)
                            : op == "mm" || op == "matmul" ? matmul(mesh, inputs[0], inputs[1])
                                                           : mul(mesh, inputs);
    std::int64_t count = 0;
    for (const auto& [kind, times] : item.at("torch").at("comm").as_object()) {
      count += times.as_int64();
    }
    EXPECT_LE(outcome.collectives, count) << outcome;
    ++compared;
  }
  test::expect_cases(compared, 401);
}

// 1024 rows of 64, a weight of 64 x 64: gathering the weight and exchanging rows sends fewer bytes
// there than the sum of the result, but not there and back.
TEST(ChoiceTest, AProductThatIsWeighedBothWaysCountsGradientsAndTheWayOfItsResult) {
  const Input columns{{1024, 64}, {"S(1)"}}, whole{{1024, 64}, {"R"}};
  EXPECT_EQ(matmul({2}, columns, {{64, 64}, {"S(0)"}}), (Outcome{"[S(0)]", 2}));
  EXPECT_EQ(layer(columns, {{64, 64}, {"S(0)"}}, "R"), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(layer(whole, {{64, 64}, {"S(1)"}}, "S(1)"), (Outcome{"[S(1)]", 0}));
  // Rows that shall stay cut: there the exchange is less, both ways.
  EXPECT_EQ(layer(columns, {{64, 64}, {"S(0)"}}, "S(0)"), (Outcome{"[S(0)]", 2}));
  // A weight that would cost more than the sum, and work that two ranks would do twice.
  EXPECT_EQ(layer({{64, 64}, {"S(1)"}}, {{64, 1024}, {"S(0)"}}, "S(0)"), (Outcome{"[P(sum)]", 0}));
  EXPECT_EQ(layer({{4096, 4096}, {"S(1)"}}, {{4096, 64}, {"S(0)"}}, "R"), (Outcome{"[P(sum)]", 0}));
}

}  // namespace
}  // namespace dtrun::dtensor::sharding
