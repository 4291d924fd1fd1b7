// The planner against a search of the whole graph: every layout of a tensor is a node, every step
// that a plan may take an edge, and from each target the least cost of all other layouts is
// computed backwards. The planner looks only where it expects the way; here no node is left out.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <vector>

#include "dtensor/layout_catalogue.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"
#include "plan/exchange.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// What one axis does between two placements. None: no step does it.
std::optional<StepKind> kind_of_change(const Placement& before, const Placement& after) {
  if (before.is_replicate()) return after.is_shard() ? StepKind::local_chunk : StepKind::to_partial;
  if (before.is_shard()) {
    if (after.is_replicate()) return StepKind::all_gather;
    if (after.is_shard()) return StepKind::all_to_all;
    // An average of chunks beside nothing would have to be multiplied.
    if (after.reduce_op() == ReduceOp::avg) return std::nullopt;
    return StepKind::to_partial;
  }
  if (after.is_partial()) return std::nullopt;
  return after.is_shard() ? StepKind::reduce_scatter : StepKind::all_reduce;
}

/// Which exchanges are edges.
enum class Exchanges {
  planned,  ///< the planner's
  any,      ///< of any axes that cut, to any order, over Replicate too
};

class LayoutGraph {
 public:
  LayoutGraph(const Shape& shape, const std::vector<int>& mesh, const std::vector<ReduceOp>& ops,
              const CostModel& costs)
      : shape_(shape), mesh_(mesh), costs_(costs), layouts_(all_layouts(shape, mesh, ops)) {
    for (const Layout& layout : layouts_) {
      placements_.push_back(layout.placements());
      orders_.push_back(layout.order());
    }
    steps_into_.resize(layouts_.size());
    exchanges_into_.resize(layouts_.size());
    for (std::size_t from = 0; from < layouts_.size(); ++from) {
      for (std::size_t to = 0; to < layouts_.size(); ++to) {
        if (from == to) continue;
        add_step_along_one_axis(from, to);
        add_exchange(from, to);
      }
    }
    for (std::size_t i = 0; i < layouts_.size(); ++i) numbers_[layouts_[i].packed()] = i;
  }

  const std::vector<Layout>& layouts() const { return layouts_; }

  /// Seconds from every layout to that one.
  std::vector<double> least_seconds_to(std::size_t target, Exchanges exchanges) const {
    std::vector<std::vector<Edge>> planned(layouts_.size());
    if (exchanges == Exchanges::planned) planned = planned_exchanges(target);
    std::vector<double> least(layouts_.size(), std::numeric_limits<double>::infinity());
    using Due = std::pair<double, std::size_t>;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> queue;
    least[target] = 0;
    queue.push({0, target});
    while (!queue.empty()) {
      const auto [seconds, at] = queue.top();
      queue.pop();
      if (seconds > least[at]) continue;
      const auto improve = [&](const Edge& edge) {
        if (least[edge.from] <= seconds + edge.seconds) return;
        least[edge.from] = seconds + edge.seconds;
        queue.push({least[edge.from], edge.from});
      };
      for (const Edge& edge : steps_into_[at])
        if (leads_to(target, edge.from, at)) improve(edge);
      for (const Edge& edge : planned[at]) improve(edge);
      if (exchanges == Exchanges::planned) continue;
      for (const Edge& edge : exchanges_into_[at])
        if (leads_to(target, edge.from, at)) improve(edge);
    }
    return least;
  }

 private:
  struct Edge {
    std::size_t from;
    double seconds;
  };

  /// By the layout that they lead to.
  std::vector<std::vector<Edge>> planned_exchanges(std::size_t target) const {
    std::vector<std::vector<Edge>> into(layouts_.size());
    std::vector<Exchange> exchanges;
    for (std::size_t from = 0; from < layouts_.size(); ++from) {
      list_exchanges(layouts_[from], layouts_[target], links_of(costs_), exchanges);
      for (const Exchange& exchange : exchanges)
        into[numbers_.at(exchange.after.packed())].push_back(
            edge(from, {StepKind::exchange, 0, layouts_[from], exchange.after}));
    }
    return into;
  }
  Edge edge(std::size_t from, const Step& step) const {
    return {from, plan_cost(shape_, mesh_, {step}, costs_).seconds};
  }

  /// Axes go to their targets or to Replicate, and nowhere else.
  bool leads_to(std::size_t target, std::size_t from, std::size_t to) const {
    const Placements &before = placements_[from], &after = placements_[to],
                     &wanted = placements_[target];
    for (std::size_t axis = 0; axis < mesh_.size(); ++axis) {
      if (before[axis] == after[axis]) continue;
      const bool is_whole = after[axis].is_replicate();
      if (!is_whole && after[axis] != wanted[axis]) return false;
      if (before[axis].is_partial() && before[axis] == wanted[axis]) return false;
      if (before[axis].is_partial() && before[axis].reduce_op() == ReduceOp::avg &&
          has_sum_to_reduce(before, wanted)) {
        return false;
      }
    }
    return true;
  }
  /// Sums come before averages, which round.
  static bool has_sum_to_reduce(const Placements& now, const Placements& wanted) {
    for (std::size_t axis = 0; axis < now.size(); ++axis) {
      if (now[axis] == Partial() && now[axis] != wanted[axis]) return true;
    }
    return false;
  }

  /// The axes that cut each dim without `axis`, which has to be the innermost one where it cuts.
  std::optional<ShardOrder> others(std::size_t layout, std::size_t axis) const {
    ShardOrder order = orders_[layout];
    if (placements_[layout][axis].is_shard()) {
      std::vector<int>& axes = order[placements_[layout][axis].dim()];
      if (axes.back() != static_cast<int>(axis)) return std::nullopt;
      axes.pop_back();
    }
    std::erase_if(order, [](const auto& item) { return item.second.empty(); });
    return order;
  }

  void add_step_along_one_axis(std::size_t from, std::size_t to) {
    std::optional<std::size_t> changed;
    for (std::size_t axis = 0; axis < mesh_.size(); ++axis) {
      if (placements_[from][axis] == placements_[to][axis]) continue;
      if (changed) return;
      changed = axis;
    }
    if (!changed) return;
    const auto before = others(from, *changed), after = others(to, *changed);
    if (!before || !after || *before != *after) return;
    const auto kind = kind_of_change(placements_[from][*changed], placements_[to][*changed]);
    if (!kind) return;
    steps_into_[to].push_back(
        edge(from, {*kind, static_cast<int>(*changed), layouts_[from], layouts_[to]}));
  }

  /// Any axes that cut may change their dims and their order, or end, at once.
  void add_exchange(std::size_t from, std::size_t to) {
    for (std::size_t axis = 0; axis < mesh_.size(); ++axis) {
      const Placement &before = placements_[from][axis], &after = placements_[to][axis];
      if (before.is_shard() ? after.is_partial() : before != after) return;
    }
    const Step step{StepKind::exchange, 0, layouts_[from], layouts_[to]};
    if (step.axes().size() > 1) exchanges_into_[to].push_back(edge(from, step));
  }

  const Shape shape_;
  const std::vector<int> mesh_;
  const CostModel costs_;
  const std::vector<Layout> layouts_;
  std::vector<Placements> placements_;  ///< of each layout
  std::vector<ShardOrder> orders_;
  std::map<std::array<std::int64_t, 4>, std::size_t> numbers_;
  std::vector<std::vector<Edge>> steps_into_, exchanges_into_;  ///< by where they lead to
};

struct Compared {
  std::size_t pairs = 0;
  std::size_t gains = 0;  ///< of any exchange against the planner's
  double most = 1;        ///< how many times as much the plan costs
  Compared& operator+=(const Compared& other) {
    pairs += other.pairs;
    gains += other.gains;
    most = std::max(most, other.most);
    return *this;
  }
};

Compared expect_no_cheaper_way(const Shape& shape, const std::vector<int>& mesh,
                               const std::vector<ReduceOp>& ops, const CostModel& costs) {
  const LayoutGraph graph(shape, mesh, ops, costs);
  Compared compared;
  for (std::size_t to = 0; to < graph.layouts().size(); to += testing_support::one_in(7)) {
    const std::vector<double> least = graph.least_seconds_to(to, Exchanges::planned);
    const std::vector<double> of_any = graph.least_seconds_to(to, Exchanges::any);
    for (std::size_t from = 0; from < graph.layouts().size(); ++from) {
      const std::vector<Step> plan =
          plan_redistribute(shape, mesh, graph.layouts()[from], graph.layouts()[to], costs);
      const double seconds = plan_cost(shape, mesh, plan, costs).seconds;
      EXPECT_NEAR(seconds, least[from], 1e-9 * seconds)
          << graph.layouts()[from].to_string() << " to " << graph.layouts()[to].to_string()
          << " of " << tensors::shape_to_string(shape) << "\n"
          << plan_to_string(plan);
      if (testing::Test::HasFailure()) return compared;
      const bool gains = of_any[from] * (1 + 1e-9) < seconds;
      compared += {1, gains ? 1U : 0U, gains ? seconds / of_any[from] : 1};
    }
  }
  return compared;
}

/// At any cost: of shared memory; where bytes, latencies or nothing but copies count; and of axes
/// that differ.
Compared expect_no_cheaper_way_at_any_cost(const Shape& shape, const std::vector<int>& mesh,
                                           const std::vector<ReduceOp>& ops) {
  Compared compared;
  const std::vector<LinkRate> bytes(mesh.size(), {1e-9, 1}), latencies(mesh.size(), {1, 1e300});
  std::vector<LinkRate> uneven(mesh.size(), kSharedMemoryLink);
  uneven.back() = kNetworkLink;
  std::vector<LinkRate> turned(mesh.size(), {2e-6, 1e8});
  turned.front() = {1e-3, 1e10};
  for (const std::vector<LinkRate>& links : {{}, bytes, latencies, uneven, turned}) {
    compared += expect_no_cheaper_way(shape, mesh, ops, {4, links});
    if (testing::Test::HasFailure()) break;
  }
  return compared;
}

const std::vector<ReduceOp> kOfAllKinds = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max};

// What moves one axis alone is a collective along it already.
TEST(ExchangeTest, OneAxisThatIsCutIntoOtherSizesIsOneToo) {
  const Layout from = make_layout({8}, {2}, {Shard(0, {3, 5})});
  const Layout target = make_layout({8}, {2}, {Shard(0, {6, 2})});
  std::vector<Exchange> list;
  list_exchanges(from, target, Links::different, list);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].axes, 1U);
  EXPECT_EQ(list[0].after, target);
}

TEST(ExchangeTest, EveryOneOnTheWayMovesSeveralAxes) {
  std::size_t exchanges = 0;
  std::vector<Exchange> list;
  for (const std::vector<int>& mesh :
       std::vector<std::vector<int>>{{2, 2}, {2, 2, 2}, {2, 2, 2, 2}}) {
    const Shape shape = mesh.size() == 4 ? Shape{8} : Shape{8, 8};
    const std::vector<Layout> layouts = all_layouts(shape, mesh, {ReduceOp::sum});
    for (const Layout& from : layouts) {
      for (const Layout& target : layouts) {
        list_exchanges(from, target, Links::different, list);
        for (std::size_t i = 0; i < list.size(); ++i) {
          const auto& [next, axes] = list[i];
          ++exchanges;
          for (std::size_t other = 0; other < i; ++other) ASSERT_NE(list[other].after, next);
          ASSERT_EQ(axes, axes_of_exchange(from, next));
          ASSERT_GE(std::popcount(axes), 2)
              << from.to_string() << " -> " << next.to_string() << " for " << target.to_string();
        }
      }
    }
  }
  EXPECT_GT(exchanges, 1000U);
}

TEST(CheapestPlanTest, NoWayCostsLessOnOneAxis) {
  for (const int size : {2, 3, 8}) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{1, 64}, Shape{7, 3, 4}, Shape{0, 6}})
      expect_no_cheaper_way_at_any_cost(shape, {size}, kOfAllKinds);
  }
}

/// @param pairs at the least
void expect_no_gains(const Compared& compared, std::size_t pairs) {
  EXPECT_GT(compared.pairs, pairs / testing_support::one_in(7));
  EXPECT_EQ(compared.gains, 0U) << "at most " << compared.most << " times";
}

// On up to four axes the planner is exact: no exchange would gain.
TEST(CheapestPlanTest, NoWayCostsLessOnTwoAxesInAnyOrder) {
  Compared compared;
  for (const std::vector<int>& mesh : std::vector<std::vector<int>>{{2, 2}, {4, 2}, {2, 3}}) {
    for (const Shape& shape : {Shape{5}, Shape{1, 64}, Shape{7, 3, 4}, Shape{4096, 512}})
      compared += expect_no_cheaper_way_at_any_cost(shape, mesh, kOfAllKinds);
  }
  expect_no_gains(compared, 30'000);
}

TEST(CheapestPlanTest, NoWayCostsLessOnThreeAxesInAnyOrder) {
  Compared compared;
  for (const std::vector<int>& mesh : std::vector<std::vector<int>>{{2, 2, 2}, {2, 4, 3}}) {
    for (const Shape& shape : {Shape{7, 3}, Shape{2048, 1024}})
      compared += expect_no_cheaper_way_at_any_cost(shape, mesh, {ReduceOp::sum});
    compared += expect_no_cheaper_way_at_any_cost({64, 48, 5}, mesh, {});
  }
  expect_no_gains(compared, 200'000);
}

TEST(CheapestPlanTest, NoWayCostsLessOnFourAxes) {
  expect_no_gains(expect_no_cheaper_way_at_any_cost({5}, {2, 2, 2, 2}, {ReduceOp::sum}), 100'000);
}

}  // namespace
}  // namespace dtrun::dtensor
