// Wrong results that others have shipped, one test each, with its number in PyTorch's tracker (or
// the project's name); further reports of the same fault stand before it. Expected is the
// mathematics: the same operation on the global tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "dtensor/gradient_check.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/local_map.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

constexpr Tolerance kExact{0, 0};
constexpr Tolerance kRounded{1e-12, 1e-12};

Tensor counted(const Shape& shape) {
  return arange(0, static_cast<double>(tensors::numel(shape)), 1, kDoubles).view(shape);
}
/// Some negative, some fractional, none twice.
Tensor varied(const Shape& shape) {
  return counted(shape).mul(0.75).sub(static_cast<double>(tensors::numel(shape)) / 3);
}
Tensor laid(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements,
            const ShardOrder& order = {}) {
  return distribute_tensor(whole, mesh, placements, {.source_rank = -1, .shard_order = order});
}
/// Terms that add up to `whole`, unequal, of both signs, none of them the whole.
Tensor sum_of_terms(const Tensor& whole, const DeviceMesh& mesh) {
  const int size = static_cast<int>(mesh.shape()[0]), rank = mesh.rank();
  const double share = (rank + 1) * 2.0 / (size * (size + 1));
  const double offset = rank == 0 ? size - 1 : -1;
  return Tensor::from_local(whole.mul(share).add(offset), mesh, {Partial()});
}
void expect_equal(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance) {
  EXPECT_EQ(difference(actual.full_tensor(), expected, tolerance), "") << actual.to_string();
}
bool is_refused(const std::function<void()>& call) {
  try {
    call();
    return false;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument) << error.what();
    return true;
  }
}
void on_line(int ranks, const std::function<void(const DeviceMesh&)>& body) {
  test::run_ranks(ranks, [&](const ProcessGroup& group) { body(DeviceMesh(group, {ranks})); });
}
void on_grid(int rows, int columns, const std::function<void(const DeviceMesh&)>& body) {
  test::run_ranks(rows * columns, [&](const ProcessGroup& group) {
    body(DeviceMesh(group, {rows, columns}));
  });
}

// Layouts.

// 129229, too.
TEST(KnownWrongResults, I129206_TensorParallelThenFullyShardedIsTheWholeAgain) {
  on_grid(2, 2, [](const DeviceMesh& mesh) {  // axes dp, tp
    const Tensor weight = counted({4, 1});
    // Rowwise over tp first, then each part over dp.
    const ShardOrder order = {{0, {1, 0}}};
    const Tensor sharded = laid(weight, mesh, {Shard(0), Shard(0)}, order);
    const int dp = mesh.coordinate()[0], tp = mesh.coordinate()[1];
    EXPECT_EQ(sharded.to_local().item(), tp * 2 + dp);
    expect_equal(sharded, weight, kExact);
    expect_equal(sharded.redistribute({Replicate(), Shard(0)}), weight, kExact);
  });
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const nn::Sequential model{nn::Embedding(4, 1)};
    const Tensor weight = model->get_parameter("0.weight");
    weight.set_data(counted({4, 1}).to(DType::f32));
    parallelize(*model, mesh["tp"], {{"0", Rowwise()}});
    fully_shard(*model, mesh["dp"]);
    const Tensor sharded = model->get_parameter("0.weight");
    const int dp = mesh.local_rank("dp"), tp = mesh.local_rank("tp");
    EXPECT_EQ(sharded.to_local().to_vector(), Values{2.0 * tp + dp});
    EXPECT_EQ(sharded.full_tensor().to_vector(), (Values{0, 1, 2, 3}));
    EXPECT_EQ(model->state_dict().at("0.weight").full_tensor().to_vector(), (Values{0, 1, 2, 3}));
  });
}

/// Where the part of a rank of a 2 x 2 mesh begins, and how long it is.
struct NestedPart {
  std::int64_t offset, size;
};

// 163843 and 150490, too.
TEST(KnownWrongResults, I168134_UnevenPartsInBothOrdersAreThoseOfTheNestedRule) {
  struct NestedCut {
    std::int64_t rows;
    ShardOrder order;
    NestedPart parts[4];  ///< by rank
  };
  // 5 is cut into 3 and 2, then 3 into 2 and 1; four parts at once would be 2, 2, 1 and none.
  const NestedCut cuts[] = {{5, {{0, {0, 1}}}, {{0, 2}, {2, 1}, {3, 1}, {4, 1}}},
                            {5, {{0, {1, 0}}}, {{0, 2}, {3, 1}, {2, 1}, {4, 1}}},
                            {6, {{0, {0, 1}}}, {{0, 2}, {2, 1}, {3, 2}, {5, 1}}},
                            {6, {{0, {1, 0}}}, {{0, 2}, {3, 2}, {2, 1}, {5, 1}}}};
  on_grid(2, 2, [&](const DeviceMesh& mesh) {
    for (const NestedCut& nested : cuts) {
      const Tensor whole = counted({nested.rows});
      const Tensor cut_twice = laid(whole, mesh, {Shard(0), Shard(0)}, nested.order);
      const NestedPart& part = nested.parts[mesh.rank()];
      EXPECT_EQ(difference(cut_twice.to_local(), whole.narrow(0, part.offset, part.size), kExact),
                "")
          << cut_twice.spec().to_string();
      EXPECT_EQ(cut_twice.spec().local_box().offsets, Shape{part.offset});
      expect_equal(cut_twice, whole, kExact);
      expect_equal(cut_twice.redistribute({Replicate(), Shard(0)}), whole, kExact);
      expect_equal(cut_twice.redistribute({Shard(0), Replicate()}), whole, kExact);
    }
  });
}

TEST(KnownWrongResults, I194457_NoRowIsLostWhereTwoAxesGatherAnUnevenDim) {
  on_grid(2, 2, [](const DeviceMesh& mesh) {
    const Tensor whole = counted({5, 3});
    const Tensor x = laid(whole, mesh, {Shard(0), Shard(0)});
    const Tensor gathered = x.redistribute({Replicate(), Replicate()});
    EXPECT_EQ(difference(gathered.to_local(), whole, kExact), "");
  });
}

// 110762 and 191472, too.
TEST(KnownWrongResults, I144109_PartsOfAnyOtherSizesAreNotTakenForChunks) {
  on_line(4, [](const DeviceMesh& mesh) {
    const Tensor columns = ones({2, 2 + mesh.rank()});
    const bool refused = is_refused([&] {
      Tensor::from_local(columns, mesh, {Shard(1)}, {.shape = {2, 14}, .has_shape = true});
    });
    // 14 over 4 is 4, 4, 4, 2: rank 2 alone holds its chunk.
    EXPECT_EQ(refused, mesh.rank() != 2);
  });
}

// 188947 and 150862, too.
TEST(KnownWrongResults, I161368_OffsetsTileTheTensorForEverySize) {
  const std::vector<int> mesh_shape = {2, 3};
  for (const bool swapped : {false, true}) {
    for (std::int64_t n = 0; n <= 13; ++n) {
      const ShardOrder order = swapped ? ShardOrder{{0, {1, 0}}} : ShardOrder{};
      const Layout layout = make_layout({n}, mesh_shape, {Shard(0), Shard(0)}, order);
      std::vector<int> owners(static_cast<std::size_t>(n));
      for (int row = 0; row < 2; ++row) {
        for (int column = 0; column < 3; ++column) {
          const Box box = local_box({n}, mesh_shape, {row, column}, layout);
          ASSERT_LE(box.offsets[0] + box.shape[0], n);
          EXPECT_TRUE(box.shape[0] != 0 || box.offsets[0] == n) << n;
          for (std::int64_t i = 0; i < box.shape[0]; ++i) ++owners[box.offsets[0] + i];
        }
      }
      EXPECT_EQ(owners, std::vector<int>(static_cast<std::size_t>(n), 1)) << n;
    }
  }
}

// 107661, too.
TEST(KnownWrongResults, I118836_StridesAreThoseOfTheLocalPart) {
  on_line(3, [](const DeviceMesh& mesh) {
    const Tensor local = laid(counted({2, 7}), mesh, {Shard(1)}).to_local();
    EXPECT_EQ(local.plain_local().strides()[0], local.size(1));
  });
}

// 115310, too.
TEST(KnownWrongResults, I103306_FiveRowsOnFourRanksStayFive) {
  on_line(4, [](const DeviceMesh& mesh) {
    const Tensor whole = counted({5, 2});
    const Tensor x = laid(whole, mesh, {Shard(0)});
    EXPECT_EQ(x.to_local().size(0), std::vector<std::int64_t>({2, 2, 1, 0})[mesh.rank()]);
    EXPECT_EQ(x.full_tensor().shape(), (Shape{5, 2}));
    expect_equal(x.redistribute({Shard(1)}), whole, kExact);
  });
}

// Sums that are still to be added.

// 167813 and 170030, too.
TEST(KnownWrongResults, I163193_ANumberIsAddedOnceToASumOfTerms) {
  on_line(3, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({4, 3});
    const Tensor x = sum_of_terms(whole, mesh);
    expect_equal(x.add(2.5), whole.add(2.5), kRounded);
    expect_equal(x.sub(1), whole.sub(1), kRounded);
    expect_equal(x.add(ones({1}, kDoubles)), whole.add(1), kRounded);
    const Tensor written = sum_of_terms(whole, mesh);
    written.add_(2.5);
    expect_equal(written, whole.add(2.5), kRounded);
  });
}

TEST(KnownWrongResults, I149768_ClippingByATotalNormOfASumOfTermsUsesTheWholeNorm) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({4, 3});
    const Tensor gradient = sum_of_terms(whole, mesh);
    const Tensor coefficient = clamp(gradient.norm().add(1e-6).reciprocal(), {}, Scalar(1.0));
    expect_equal(gradient.mul(coefficient),
                 whole.mul(clamp(whole.norm().add(1e-6).reciprocal(), {}, Scalar(1.0))), kRounded);
  });
}

// 163241, too, which gathers.
TEST(KnownWrongResults, I162692_AMeanOfUnevenPartsIsTheMeanOfAll) {
  on_line(2, [](const DeviceMesh& mesh) {
    for (const Shape& shape : {Shape{3, 4}, Shape{1, 4}}) {
      const Tensor whole = varied(shape);
      const Tensor x = laid(whole, mesh, {Shard(0)});
      const CommCounter counter;
      const Tensor of_all = x.mean(), of_columns = x.mean({0});
      EXPECT_EQ(counter.get_total_counts(), 0) << counter;  // each rank has its share of the sum
      expect_equal(of_all, whole.mean(), kRounded);
      expect_equal(of_columns, whole.mean({0}), kRounded);
    }
  });
}

// 165962, too.
TEST(KnownWrongResults, I159856_NormsAndExtremesOfASumOfTermsAreOfTheSum) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({4, 3});
    const Tensor x = sum_of_terms(whole, mesh);
    expect_equal(x.norm(), whole.norm(), kRounded);
    expect_equal(x.max(), whole.max(), kRounded);
    expect_equal(x.min(), whole.min(), kRounded);
    expect_equal(x.amax({1}), whole.amax({1}), kRounded);
  });
}

// 144054 and radixark/miles_diffusion 35, too.
TEST(KnownWrongResults, I162312_ItemIsTheWholeValueOnEveryRank) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = counted({4, 3});
    const Tensor sum = laid(whole, mesh, {Shard(0)}).sum();
    ASSERT_TRUE(sum.placements()[0].is_partial());
    EXPECT_EQ(sum.item(), 66);
    EXPECT_NEAR(laid(whole, mesh, {Shard(0)}).norm().item(), std::sqrt(506.0), 1e-12);
  });
}

// 147180, too.
TEST(KnownWrongResults, I153603_TheSameOperationWithAnotherNumberIsComputedAnew) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({4, 3});
    const Tensor x = laid(whole, mesh, {Shard(0)});
    for (const double factor : {1.0, 2.0, 3.0}) {
      expect_equal(x.mean().mul(factor), whole.mean().mul(factor), kRounded);
    }
    const Tensor terms = sum_of_terms(whole, mesh);
    for (const double factor : {-5.0, 2.0}) {
      expect_equal(terms.mul(factor), whole.mul(factor), kRounded);
      expect_equal(terms.pow(factor), whole.pow(factor), Tolerance{1e-9, 1e-9});
    }
  });
}

// 183363, too.
TEST(KnownWrongResults, I174536_AbsOfASumOfTermsIsOfTheSum) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({4, 3});
    const Tensor x = sum_of_terms(whole, mesh);
    expect_equal(x.abs(), whole.abs(), kRounded);
    expect_equal(x.sign(), whole.sign(), kExact);
    expect_equal(x.sqrt(), whole.sqrt(), kRounded);
    // A narrower type would round each term, so only a wider one leaves them apart.
    EXPECT_TRUE(x.to(DType::f32).to(DType::f64).placements()[0].is_replicate());
    EXPECT_TRUE(
        sum_of_terms(whole.to(DType::f32), mesh).to(DType::f64).placements()[0].is_partial());
  });
}

// Gradients.

// 180511, too.
TEST(KnownWrongResults, I180486_TheGradientOfATransposedLeafIsReducedOnceAndRight) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor weight = varied({3, 2}), samples = varied({4, 2});
    const Tensor w = laid(weight, mesh, {Replicate()}), x = laid(samples, mesh, {Shard(0)});
    w.requires_grad_();
    const Tensor loss = matmul(x, w.t()).sum();
    const CommCounter counter;
    loss.backward();
    EXPECT_EQ(counter.get_comm_counts(), (std::map<std::string, std::int64_t>{{"all_reduce", 1}}));
    EXPECT_EQ(w.grad().placements(), Placements{Replicate()});
    expect_equal(w.grad(), samples.sum({0}, true).expand({3, 2}), kRounded);
  });
}

// 175867 and TorchTitan 2532, too.
TEST(KnownWrongResults, I172932_ToLocalAndFromLocalKeepTheGradient) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({4, 3});
    for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
      const Tensor x = laid(whole, mesh, {placement});
      x.requires_grad_();
      const Tensor again = Tensor::from_local(x.to_local(), mesh, {placement});
      (again * again).sum().backward();
      expect_equal(x.grad(), whole.mul(2), kRounded);
    }
  });
}

// What each rank does by itself with a replicated tensor gives gradients that differ: local_map
// says that they are to be added.
TEST(KnownWrongResults, I172932_GradientsThatDifferByRankAreAdded) {
  on_line(3, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({4, 3});
    const double factor = mesh.rank() + 1;
    const auto scaled = local_map([factor](const Tensor& x) { return x * x * factor; },
                                  {.out_placements = {{Partial()}},
                                   .in_placements = {{Replicate()}},
                                   .in_grad_placements = {{Partial()}}});
    const Tensor x = laid(whole, mesh, {Replicate()});
    x.requires_grad_();
    const Tensor y = scaled(x);
    expect_equal(y, whole.mul(whole).mul(1 + 2 + 3), kRounded);
    y.sum().backward();
    expect_equal(x.grad(), whole.mul(2).mul(1 + 2 + 3), kRounded);
  });
}

// Views and indices.

// 179509 and 179632, too.
TEST(KnownWrongResults, I179502_AViewAcrossACutDimIsRight) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = counted({4, 4, 4});
    for (const int dim : {0, 1, 2}) {
      const Tensor x = laid(whole, mesh, {Shard(dim)});
      expect_equal(x.view({8, 8}), whole.view({8, 8}), kExact);
    }
  });
}

// 170934 and 172894, too.
TEST(KnownWrongResults, I172350_PositionsAreGlobalWhereTheIndexedDimIsCut) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor whole = varied({5, 3}), values = counted({2, 3}).add(100);
    const Tensor positions = tensor_from(std::vector<std::int64_t>{4, 1}, {2}, DType::i64);
    const Tensor expected = index_put(whole, positions, values);
    for (const Placement& of_x :
         {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
      for (const Placement& of_values : {Placement(Shard(0)), Placement(Replicate())}) {
        const Tensor put = index_put(laid(whole, mesh, {of_x}), laid(positions, mesh, {of_values}),
                                     laid(values, mesh, {of_values}));
        expect_equal(put, expected, kExact);
      }
    }
  });
}

// 149447, too.
TEST(KnownWrongResults, I139735_WritingToASliceWritesTheTensorOrIsRefused) {
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor x = laid(counted({4, 3}), mesh, {Shard(1)});
    x.narrow(0, 1, 2).fill_(7);
    const Tensor expected = counted({4, 3});
    expected.narrow(0, 1, 2).fill_(7);
    expect_equal(x, expected, kExact);

    // What another rank holds, too, is a copy: a write to it would be lost.
    const Tensor cut = laid(counted({4, 3}), mesh, {Shard(0)});
    EXPECT_TRUE(is_refused([&] { cut.narrow(0, 1, 2) = Scalar(7); }));
    EXPECT_TRUE(is_refused([&] { cut.narrow(0, 1, 2).fill_(7); }));
    EXPECT_TRUE(is_refused([&] { cut[0].mul_(2); }));
    EXPECT_TRUE(is_refused([&] { cut.chunk(2)[0].copy_(ones({})); }));
    EXPECT_TRUE(is_refused([&] { nn::init::zeros_(cut.t().select(1, 3)); }));
    EXPECT_TRUE(is_refused([&] { cut.view({12}).slice(0, 0, 5).unsqueeze(0).add_(1); }));
    const Tensor named = cut.slice(0, 0, 4, 2);
    EXPECT_TRUE(is_refused([&] { named.zero_(); }));
    EXPECT_TRUE(is_refused([&] { named.detach().zero_(); }));
    expect_equal(cut, counted({4, 3}), kExact);
    // A copy that the program asked for is its own.
    EXPECT_EQ(named.clone().fill_(7).to_vector(), std::vector<double>(6, 7));
    EXPECT_TRUE(is_refused([&] { named.unsqueeze(0).expand({2, 2, 3}).select(0, 1).fill_(1); }));
    // Gradients are nobody's views, whatever they are made of.
    const Tensor bias = distribute_tensor(ones({4}), mesh, {Replicate()}).requires_grad_();
    (bias.unsqueeze(0) + distribute_tensor(ones({1, 4}), mesh, {Shard(0)})).sum().backward();
    EXPECT_EQ(bias.grad().mul_(2).to_vector(), std::vector<double>(4, 2));
    cut.narrow(1, 1, 2).t().unsqueeze(0).fill_(7);
    const Tensor columns = counted({4, 3});
    columns.narrow(1, 1, 2).fill_(7);
    expect_equal(cut, columns, kExact);
  });
}

// Reductions, random numbers, losses.

// Short sums are made by each rank, long ones in shares.
TEST(KnownWrongResults, I171916_ReplicasHaveTheSameBits) {
  for (const auto transport : {collectives::Transport::automatic, collectives::Transport::tcp}) {
    test::run_ranks(6, {.transport = transport}, [](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2, 3});
      for (const std::int64_t elements : {257, 9000}) {
        const Tensor term = randn({elements}, {static_cast<std::uint64_t>(mesh.rank()) + 1});
        const Tensor sum = Tensor::from_local(term, mesh, {Partial(), Partial()}).full_tensor();
        const Tensor of_first = distribute_tensor(sum, mesh, {Replicate(), Replicate()}).to_local();
        EXPECT_EQ(difference(sum, of_first, kExact), "");
      }
    });
  }
}

TEST(KnownWrongResults, I168058_RandomNumbersDoNotDependOnTheLayout) {
  const Tensor alone = randn({6, 5}, {7});
  for (const int ranks : {2, 4, 8}) {
    on_line(ranks, [&](const DeviceMesh& mesh) {
      expect_equal(randn({6, 5}, {7}, mesh, {Shard(0)}), alone, kExact);
      expect_equal(randn({6, 5}, {7}, mesh, {Shard(1)}), alone, kExact);
      expect_equal(randn({6, 5}, {7}, mesh, {Replicate()}), alone, kExact);
    });
  }
}

TEST(KnownWrongResults, TorchTitan3204_ALossOverTwoAxesIsTheWholeMean) {
  on_grid(2, 2, [](const DeviceMesh& mesh) {
    const Tensor x = varied({6, 4}), y = counted({6, 4});
    const Tensor loss =
        mse_loss(laid(x, mesh, {Shard(0), Shard(1)}), laid(y, mesh, {Shard(0), Shard(1)}));
    expect_equal(loss, mse_loss(x, y), kRounded);
  });
  // Axes of one mesh, each as a mesh of its own: the mean is that of the axis that cuts the tensor.
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const Tensor x = varied({6, 4}), y = counted({6, 4});
    for (const char* const axis : {"dp", "tp"}) {
      for (const int dim : {0, 1}) {
        const auto on_axis = [&](const Tensor& whole) {
          return laid(whole, mesh[axis], {Shard(dim)});
        };
        const Tensor found = on_axis(x).requires_grad_(), alone = x.detach().requires_grad_();
        const Tensor loss = mse_loss(found, on_axis(y)), right = mse_loss(alone, y);
        EXPECT_NEAR(loss.item(), right.item(), 1e-12 * right.item()) << axis;
        loss.backward();
        right.backward();
        expect_equal(found.grad(), alone.grad(), kRounded);
      }
    }
    // The batch on one of them, the model on the other.
    const Tensor rows = laid(x, mesh["dp"], {Shard(0)}), weight = varied({4, 2}),
                 columns = laid(weight, mesh["tp"], {Shard(1)});
    const Tensor product =
        Tensor::from_local(matmul(rows.to_local(), columns.to_local()), mesh, {Shard(0), Shard(1)});
    EXPECT_NEAR(product.mean().item(), matmul(x, weight).mean().item(), 1e-12);
  });
}

/// What it communicates.
std::map<std::string, std::int64_t> collectives_of(const std::function<Tensor()>& call) {
  const CommCounter counter;
  call();
  return counter.get_comm_counts();
}

// A rule's flag that leaked into the next one made plans of costly all_to_alls.
TEST(KnownWrongResults, AutoParallel462_ACallPlansAlikeAfterOthers) {
  using Counts = std::map<std::string, std::int64_t>;
  on_line(2, [](const DeviceMesh& mesh) {
    const Tensor rows = laid(varied({64, 32}), mesh, {Shard(0)}),
                 columns = laid(varied({64, 32}), mesh, {Shard(1)}),
                 b = laid(varied({32, 2}), mesh, {Shard(0)});
    for (int time = 0; time < 2; ++time) {
      // Linear ones, which leave terms, take turns with some that cannot.
      EXPECT_EQ(collectives_of([&] { return rows.sum({0}); }), Counts());
      EXPECT_EQ(collectives_of([&] { return rows.amax({0}); }), Counts());
      EXPECT_EQ(collectives_of([&] { return rows.sum({1}); }), Counts());
      EXPECT_EQ(collectives_of([&] { return columns.amax({0}); }), Counts());
      EXPECT_EQ(collectives_of([&] { return columns.sum({1}); }), Counts());
      EXPECT_EQ(rows.sum({0}).placements(), Placements{Partial()});
      EXPECT_EQ(rows.amax({0}).placements(), Placements{Partial(ReduceOp::max)});
      EXPECT_EQ(rows.sum({1}).placements(), Placements{Shard(0)});
      EXPECT_EQ(collectives_of([&] { return matmul(columns, b); }), Counts());
      EXPECT_EQ(matmul(columns, b).placements(), Placements{Partial()});
      // b is gathered, of 32 numbers from each rank; an all_to_all of the rows would send 512.
      EXPECT_EQ(collectives_of([&] { return matmul(rows, b); }), (Counts{{"all_gather", 1}}));
      EXPECT_EQ(matmul(rows, b).placements(), Placements{Shard(0)});
    }
  });
}

// 7464 and 737, too.
TEST(KnownWrongResults, Megatron7452_LabelSmoothingCountsAllClasses) {
  on_line(3, [](const DeviceMesh& mesh) {
    const Tensor logits = varied({4, 7});
    const Tensor target = tensor_from(std::vector<std::int64_t>{0, 6, 3, 2}, {4}, DType::i64);
    const LossOptions smooth{.label_smoothing = 0.1};
    expect_equal(
        cross_entropy(laid(logits, mesh, {Shard(1)}), laid(target, mesh, {Replicate()}), smooth),
        cross_entropy(logits, target, smooth), Tolerance{1e-9, 1e-9});
  });
}

}  // namespace
}  // namespace dtrun::dtensor
