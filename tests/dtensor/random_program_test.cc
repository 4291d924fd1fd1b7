// Random programs: operators in any order on tensors in any layout, beside the same on local
// tensors; values after each step, gradients at the end. DTRUN_RANDOM_PROGRAMS says how many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "dtensor/gradient_check.h"
#include "dtensor/rank_world.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

constexpr int kSteps = 25;

/// The same tensor twice.
struct Pair {
  Tensor local;
  Tensor placed;
};

class Program {
 public:
  Program(unsigned seed, const DeviceMesh& mesh) : random_(seed), mesh_(mesh) {}

  void run() {
    for (int i = 0; i < 3; ++i) add_leaf();
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) take_step();
    if (!testing::Test::HasFailure()) compare_gradients();
    if (testing::Test::HasFailure() && mesh_.rank() == 0) ADD_FAILURE() << told_;
  }

 private:
  using Operator = std::function<Tensor(const Tensor&)>;

  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool sometimes() { return below(3) == 0; }
  double number() { return below(1000) / 500.0 - 1; }

  /// Of n elements over the ranks of an axis, anyhow.
  Placement some_ragged(int dim, std::int64_t n, int ranks) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks), 0);
    for (std::int64_t i = 0; i < n; ++i) ++sizes[static_cast<std::size_t>(below(ranks))];
    return Shard(dim, sizes);
  }
  /// At most one axis of a dim is ragged.
  Placement some_shard(const Placements& before, const Shape& shape, int ranks) {
    const int dim = below(static_cast<int>(shape.size()));
    const bool has_ragged = std::ranges::any_of(
        before, [dim](const Placement& p) { return p.is_shard(dim) && p.is_ragged(); });
    if (has_ragged || !sometimes()) return Shard(dim);
    return some_ragged(dim, shape[static_cast<std::size_t>(dim)], ranks);
  }
  Placements some_placements(const Shape& shape) {
    Placements placements;
    for (int axis = 0; axis < mesh_.ndim(); ++axis) {
      const int kind = below(4);
      if (kind == 0) placements.push_back(Replicate());
      if (kind == 1) placements.push_back(Partial());
      if (kind < 2) continue;
      placements.push_back(shape.empty() ? Replicate()
                                         : some_shard(placements, shape, mesh_.size(axis)));
    }
    return placements;
  }
  ShardOrder some_order(const Placements& placements) {
    ShardOrder order = Layout(placements).order();
    for (auto& [dim, axes] : order) {
      if (sometimes()) std::shuffle(axes.begin(), axes.end(), random_);
      std::ranges::stable_partition(
          axes, [&](int axis) { return placements[static_cast<std::size_t>(axis)].is_ragged(); });
    }
    return order;
  }
  Shape some_shape() {
    Shape shape;
    for (int dims = below(4); dims > 0; --dims) shape.push_back(below(15) == 0 ? 0 : 1 + below(5));
    return shape;
  }

  Pair made(const Shape& shape) {
    const Tensor local = randn(shape, {random_()}, kDoubles);
    const Placements placements = some_placements(shape);
    return {local.requires_grad_(),
            distribute_tensor(local.detach(), mesh_, placements,
                              {.source_rank = -1, .shard_order = some_order(placements)})
                .requires_grad_()};
  }
  void add_leaf() {
    leaves_.push_back(made(some_shape()));
    pool_.push_back(leaves_.back());
    told_ += "leaf " + leaves_.back().placed.spec().to_string() + "\n";
  }

  const Pair& pick() {
    return pool_[static_cast<std::size_t>(below(static_cast<int>(pool_.size())))];
  }

  /// Runs it on both; where the local one is refused, the other must be as well.
  void apply(const std::string& what, const std::function<Tensor(bool placed)>& run) {
    told_ += what;
    Tensor local;
    try {
      local = run(false);
    } catch (const base::Error&) {
      told_ += ": refused\n";
      EXPECT_THROW(run(true), base::Error);
      return;
    }
    const Tensor placed = run(true);
    told_ += " -> " + placed.spec().to_string() + "\n";
    const std::string wrong = difference(placed.full_tensor(), local, {1e-9, 1e-9});
    EXPECT_EQ(wrong, "");
    if (local.numel() > 2000) return;
    double greatest = 0;
    for (const double value : local.detach().to_vector())
      greatest = std::max(greatest, std::abs(value));
    if (!(greatest < 100)) return;
    pool_.push_back({local, placed});
  }
  void apply(const std::string& what, const Pair& to, const Operator& op) {
    apply(what + " of " + to.placed.spec().to_string(),
          [&](bool placed) { return op(placed ? to.placed : to.local); });
  }

  void take_step() {
    const Pair x = pick();
    const int dims = x.local.dim();
    switch (below(9)) {
      case 0:
        return elementwise(x);
      case 1:
        return two_operands(x);
      case 2:
        return product(x);
      case 3:
        return dims == 0 ? elementwise(x) : reduction(x, below(dims));
      case 4:
        return dims == 0 ? elementwise(x) : along(x, below(dims));
      case 5:
        return view(x);
      case 6:
        return dims == 0 ? elementwise(x) : join(x, below(dims));
      case 7:
        return dims == 0 ? elementwise(x) : pick_elements(x, below(dims));
      case 8:
        return redistribute(x);
    }
  }

  void elementwise(const Pair& x) {
    static const std::pair<const char*, Tensor (*)(const Tensor&)> kAll[] = {
        {"tanh", [](const Tensor& a) { return tanh(a); }},
        {"sin", [](const Tensor& a) { return sin(a); }},
        {"sigmoid", [](const Tensor& a) { return sigmoid(a); }},
        {"relu", [](const Tensor& a) { return relu(a); }},
        {"neg", [](const Tensor& a) { return -a; }},
        {"square", [](const Tensor& a) { return square(a); }},
        {"exp of tanh", [](const Tensor& a) { return exp(tanh(a)); }},
        {"gelu", [](const Tensor& a) { return gelu(a); }},
        {"abs", [](const Tensor& a) { return abs(a); }},
        {"clamp", [](const Tensor& a) { return clamp(a, -0.5, 0.7); }},
        {"times 0.5", [](const Tensor& a) { return a * 0.5; }},
        {"less 1", [](const Tensor& a) { return a - 1; }},
        {"1 less", [](const Tensor& a) { return 1 - a; }},
        {"where positive", [](const Tensor& a) { return where(gt(a, 0), a, a * 0.1); }},
        {"masked_fill", [](const Tensor& a) { return masked_fill(a, gt(a, 0.5), 0.25); }},
        {"clone, add_",
         [](const Tensor& a) {
           const Tensor copy = a.clone();
           copy.mul_(0.5);
           copy += a;
           return copy;
         }},
    };
    const auto& [name, op] = kAll[static_cast<std::size_t>(below(std::size(kAll)))];
    apply(name, x, op);
  }

  void two_operands(const Pair& x) {
    static const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> kAll[] = {
        {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
        {"sub", [](const Tensor& a, const Tensor& b) { return a - b; }},
        {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
        {"div", [](const Tensor& a, const Tensor& b) { return a / (square(b) + 1); }},
        {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
        {"where", [](const Tensor& a, const Tensor& b) { return where(lt(a, b), a, b * 2); }},
        {"lerp", [](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.3); }},
        {"addcmul", [](const Tensor& a, const Tensor& b) { return addcmul(a, b, a, 0.5); }},
    };
    const auto& [name, op] = kAll[static_cast<std::size_t>(below(std::size(kAll)))];
    const Pair y = sometimes() ? pick() : made(broadcasting_to(x.local.shape()));
    apply(std::string(name) + " of " + x.placed.spec().to_string() + " and " +
              y.placed.spec().to_string(),
          [&, run = op](bool placed) {
            return placed ? run(x.placed, y.placed) : run(x.local, y.local);
          });
  }
  Shape broadcasting_to(Shape shape) {
    for (std::int64_t& size : shape) {
      if (sometimes()) size = 1;
    }
    if (!shape.empty() && sometimes()) shape = Shape(shape.begin() + 1, shape.end());
    return shape;
  }

  void product(const Pair& x) {
    if (x.local.dim() == 0) return elementwise(x);
    const Pair matrix = made({x.local.size(-1), 1 + below(4)});
    const bool turned = sometimes();
    apply("matmul of " + x.placed.spec().to_string() + " and " + matrix.placed.spec().to_string(),
          [&](bool placed) {
            const Tensor &a = placed ? x.placed : x.local,
                         &b = placed ? matrix.placed : matrix.local;
            return turned && a.dim() == 2 ? matmul(b.t(), a.t()) : matmul(a, b);
          });
  }

  void reduction(const Pair& x, int dim) {
    const bool keep = sometimes();
    const int kind = below(9);
    apply("reduction " + std::to_string(kind) + " along " + std::to_string(dim), x,
          [=](const Tensor& a) -> Tensor {
            switch (kind) {
              case 0:
                return sum(a, {dim}, keep);
              case 1:
                return mean(a, {dim}, keep);
              case 2:
                return amax(a, {dim}, keep);
              case 3:
                return prod(tanh(a), dim, keep);
              case 4:
                return norm(a + 3, 2, {dim}, keep);
              case 5:
                return logsumexp(a, {dim}, keep);
              case 6:
                return var(a, {dim}, 0, keep);
              case 7:
                return max(a, dim, keep).values;
              default:
                return sum(a);
            }
          });
  }

  void along(const Pair& x, int dim) {
    const int kind = below(10);
    apply("along " + std::to_string(dim) + " " + std::to_string(kind), x,
          [=](const Tensor& a) -> Tensor {
            switch (kind) {
              case 0:
                return softmax(a, dim);
              case 1:
                return log_softmax(a, dim);
              case 2:
                return cumsum(a, dim);
              case 3:
                return sort(a, dim).values;
              case 4:
                return flip(a, {dim});
              case 5:
                return roll(a, {2}, {dim});
              case 6:
                return layer_norm(a, {a.size(-1)});
              case 7:
                return rms_norm(a, {a.size(-1)});
              case 8:
                return tril(a.dim() < 2 ? a.unsqueeze(0) : a);
              default:
                return topk(a, std::min<std::int64_t>(2, a.size(dim)), dim).values;
            }
          });
  }

  void view(const Pair& x) {
    const int dims = x.local.dim(), kind = below(9);
    const int a = dims == 0 ? 0 : below(dims), b = dims == 0 ? 0 : below(dims);
    const std::int64_t size = dims == 0 ? 0 : x.local.size(a);
    apply(
        "view " + std::to_string(kind) + " of dims " + std::to_string(a) + ", " + std::to_string(b),
        x, [=](const Tensor& t) -> Tensor {
          switch (kind) {
            case 0:
              return t.transpose(a, b);
            case 1:
              return t.unsqueeze(a);
            case 2:
              return t.reshape({-1});
            case 3:
              return t.slice(a, size / 3, size, 2);
            case 4:
              return t.select(a, size / 2);
            case 5:
              return t.squeeze(a);
            case 6:
              return flatten(t, std::min(a, b), std::max(a, b));
            case 7:
              return t.unsqueeze(a).transpose(a, -1).contiguous();
            default:
              return t.narrow(a, size / 4, size - size / 4);
          }
        });
  }

  void join(const Pair& x, int dim) {
    const int kind = below(4);
    apply("join " + std::to_string(kind) + " along " + std::to_string(dim), x,
          [=](const Tensor& a) -> Tensor {
            switch (kind) {
              case 0:
                return cat({a, a * 2}, dim);
              case 1:
                return stack({a, -a}, dim);
              case 2:
                return chunk(a, 2, dim)[0];
              default:
                return pad(a, {1, 2}, 0.5);
            }
          });
  }

  void pick_elements(const Pair& x, int dim) {
    const std::int64_t size = x.local.size(dim);
    if (size == 0) return elementwise(x);
    std::vector<std::int64_t> at;
    for (int i = 1 + below(5); i > 0; --i) at.push_back(below(static_cast<int>(size)));
    const Tensor index = tensor_from(at, {static_cast<std::int64_t>(at.size())}, DType::i64);
    const Placement placement = sometimes() ? Shard(0) : Replicate();
    const Tensor placed_index = distribute_tensor(
        index, mesh_, Placements(static_cast<std::size_t>(mesh_.ndim()), placement),
        {.source_rank = -1});
    const int kind = below(5);
    apply("pick " + std::to_string(kind) + " along " + std::to_string(dim) + " of " +
              x.placed.spec().to_string() + " by " + placed_index.spec().to_string(),
          [&](bool placed) -> Tensor {
            const Tensor &a = placed ? x.placed : x.local, &i = placed ? placed_index : index;
            if (kind == 0) return index_select(a, dim, i);
            if (kind == 1) return index_add(a, dim, i, index_select(a, dim, i) * 0.5);
            if (kind == 2 && a.dim() == 2) return embedding(i, a.transpose(0, dim));
            if (kind == 3 && a.dim() == 1) return scatter_add(a, 0, i, index_select(a, 0, i));
            if (kind == 4 && a.dim() == 2) {
              const Tensor rows = index_select(a.transpose(0, dim), 0, i);
              if (rows.size(1) >= size) return cross_entropy(rows, i);
            }
            return dtensor::index(a.transpose(0, dim), i);
          });
  }

  void redistribute(const Pair& x) {
    const Placements placements = some_placements(x.local.shape());
    const ShardOrder order = some_order(placements);
    apply("redistribute to " + placements_to_string(placements) + " of " +
              x.placed.spec().to_string(),
          [&](bool placed) { return placed ? x.placed.redistribute(placements, order) : x.local; });
  }

  void compare_gradients() {
    Tensor local = tensor_from(std::vector<double>{0}, {}, DType::f64);
    Tensor placed =
        full({}, 0.0, mesh_, Placements(static_cast<std::size_t>(mesh_.ndim()), Replicate()),
             DType::f64);
    for (std::size_t i = leaves_.size(); i < pool_.size(); ++i) {
      const double weight = number();
      local = local + sum(pool_[i].local) * weight;
      placed = placed + sum(pool_[i].placed) * weight;
    }
    if (!local.requires_grad()) return;
    local.backward();
    placed.backward();
    for (const Pair& leaf : leaves_) {
      ASSERT_EQ(leaf.local.grad().defined(), leaf.placed.grad().defined())
          << leaf.placed.spec().to_string();
      if (!leaf.local.grad().defined()) continue;
      EXPECT_EQ(leaf.placed.grad().placements(), without_partials(leaf.placed.placements()));
      const std::string wrong =
          difference(leaf.placed.grad().full_tensor(), leaf.local.grad(), {1e-8, 1e-8});
      EXPECT_EQ(wrong, "") << "gradient of " << leaf.placed.spec().to_string();
    }
  }

  std::mt19937 random_;
  const DeviceMesh mesh_;
  std::vector<Pair> leaves_;
  std::vector<Pair> pool_;
  std::string told_;
};

unsigned programs() {
  const char* const asked = std::getenv("DTRUN_RANDOM_PROGRAMS");
  return asked == nullptr ? 40U / testing_support::one_in(4)
                          : static_cast<unsigned>(std::atoi(asked));
}

/// On the ranks of a grid, which stand there in any order.
void run_programs(const RankGrid& grid) {
  run_world(static_cast<int>(grid.ranks().size()), [&](int) {
    const DeviceMesh mesh("cpu", grid);
    for (unsigned seed = 0; seed < programs() && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE("program " + std::to_string(seed));
      Program(seed, mesh).run();
      mesh.group().barrier();
    }
  });
}
TEST(RandomProgramTest, GivesOnALineWhatItGivesLocally) {
  run_programs({0, 1, 2});
}

TEST(RandomProgramTest, GivesOnASquareWhatItGivesLocally) {
  run_programs({{0, 1}, {2, 3}});
}

// The values do not depend on where in the mesh a rank stands.
TEST(RandomProgramTest, GivesOnASquareOfRanksInAnotherOrderWhatItGivesLocally) {
  run_programs({{3, 1}, {0, 2}});
}

TEST(RandomProgramTest, GivesOnThreeAxesWhatItGivesLocally) {
  run_programs(arange(6).view({2, 1, 3}));
}

TEST(RandomProgramTest, GivesOnFourAxesWhatItGivesLocally) {
  run_programs(arange(16).view({2, 2, 2, 2}));
}

}  // namespace
}  // namespace dtrun::dtensor
