#include "dtrun/dtensor/ops/creation.h"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/layout/sharding_spec.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/convolution.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/visualize_sharding.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

using tensors::DType;
using tensors::Shape;

LocalTensor counting(const Shape& shape) {
  return tensors::arange(tensors::numel(shape), {.dtype = DType::f32}).view(shape);
}

TEST(DTensorTest, ReprIsThatOfPyTorch) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh line(group, {4});
    const LocalTensor two = tensors::tensor_from(std::vector<double>{0, 1}, {2}, DType::f32);
    const DTensor vector = DTensor::from_local(two, line, {Shard(0)});
    EXPECT_EQ(vector.to_string(),
              "DTensor(local_tensor=tensor([0., 1.]), device_mesh=DeviceMesh((4,), 'cpu', "
              "stride=(1,)), placements=(Shard(dim=0),))");
    const DeviceMesh grid(group, {2, 2}, {"dp", "tp"});
    std::ostringstream stream;
    stream << DTensor::from_local(tensors::zeros({2, 3}), grid, {Shard(0), Partial()});
    EXPECT_EQ(stream.str(),
              "DTensor(local_tensor=tensor([[0., 0., 0.],\n        [0., 0., 0.]]), "
              "device_mesh=DeviceMesh((dp=2, tp=2), 'cpu', stride=(2, 1)), "
              "placements=(Shard(dim=0), Partial(sum)))");
    // Which axis cuts first is said where it is not the first one.
    const DTensor ordered = zeros({4}, grid, {Shard(0), Shard(0)}, DType::f32, {{0, {1, 0}}});
    EXPECT_EQ(ordered.to_string(),
              "DTensor(local_tensor=tensor([0.]), device_mesh=DeviceMesh((dp=2, tp=2), 'cpu', "
              "stride=(2, 1)), placements=(Shard(dim=0), Shard(dim=0)), shard_order={0: [1, 0]})");
    EXPECT_EQ(ordered.redistribute({Shard(0), Shard(0)}).to_string().find("shard_order"),
              std::string::npos);
  });
}

TEST(DTensorTest, DataPtrIsWhereTheFirstElementLies) {
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  const Tensor x = from_blob(numbers.data(), {2, 3});
  EXPECT_EQ(x.data_ptr(), numbers.data());
  EXPECT_EQ(x.data_ptr<float>(), numbers.data());
  EXPECT_EQ(x[1].data_ptr<float>(), numbers.data() + 3);
  EXPECT_EQ(x.t().slice(0, 2, 3).data_ptr(), numbers.data() + 2);
  x.data_ptr<float>()[4] = 50;
  EXPECT_EQ(x.select(1, 1).to_vector(), (std::vector<double>{2, 50}));
  EXPECT_EQ(x.to(DType::i64).data_ptr<std::int64_t>()[5], 6);
  expect_refused([&] { x.data_ptr<double>(); },
                 {"data_ptr of float64 elements of a tensor of float32", "to()"});
  expect_refused([&] { x.data_ptr<std::int32_t>(); }, "data_ptr of int32 elements");
  test::run_ranks(2, [](const ProcessGroup& group) {
    const Tensor cut = zeros({4}, DeviceMesh(group, {2}), {Shard(0)});
    expect_refused([&] { cut.data_ptr(); },
                   {"the elements of a distributed tensor were asked for", "S(0)", "to_local()"});
    expect_refused([&] { cut.data_ptr<float>(); }, "of a distributed tensor");
    EXPECT_EQ(cut.to_local().data_ptr<float>()[1], 0);
  });
}

TEST(DTensorTest, FromLocalWithoutAShapeGrowsTheShardedDims) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const LocalTensor local = tensors::zeros({2, 3});
    EXPECT_EQ(DTensor::from_local(local, mesh, {Shard(0), Shard(-1)}).shape(), (Shape{4, 6}));
    EXPECT_EQ(DTensor::from_local(local, mesh, {Shard(0), Shard(0)}).shape(), (Shape{8, 3}));
    EXPECT_EQ(DTensor::from_local(local, mesh, {Replicate(), Partial()}).shape(), (Shape{2, 3}));
    const DTensor tensor = DTensor::from_local(local, mesh, {Shard(0), Replicate()});
    EXPECT_EQ(tensor.local().storage(), local.storage());
    EXPECT_EQ(tensor.spec().to_string(), "f32[4, 3] on (2, 2): [S(0), R]");
    EXPECT_EQ(tensor.dtype(), DType::f32);
    EXPECT_EQ(tensor.device_mesh(), mesh);
  });
}

TEST(DTensorTest, FromLocalRefusesWhatIsNotTheRanksBox) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto from_local = [&](const LocalTensor& local, const Placement& placement, Shape shape) {
      DTensor::FromLocal options;
      options.has_shape = true;
      options.shape = std::move(shape);
      return DTensor::from_local(local, mesh, {placement}, options);
    };
    EXPECT_EQ(from_local(tensors::zeros({group.rank() == 0 ? 3 : 2}), Shard(0), {5}).shape(),
              Shape{5});
    expect_refused([&] { from_local(tensors::zeros({4}), Shard(0), {5}); },
                   "f32[5] on (2): [S(0)] gives it");
    expect_refused([&] { from_local(tensors::zeros({5}), Replicate(), {5, 1}); }, "[5]");
    expect_refused([&] { from_local(LocalTensor(), Replicate(), {}); }, "undefined tensor");
    expect_refused([&] { from_local(tensors::zeros({}), Shard(0), {}); }, "0-dim");
    expect_refused([&] { from_local(tensors::zeros({2}), Partial(ReduceOp::band), {2}); },
                   "f32 cannot be P(band)");
    const DeviceMesh gpus(group, {2}, {}, tensors::DeviceType::cuda);
    expect_refused([&] { DTensor::from_local(tensors::zeros({2}), gpus, {Replicate()}); },
                   "a tensor on cpu does not fit");
  });
}

TEST(DTensorTest, OnlyTheSourceRanksDataCounts) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (int source = 0; source < 2; ++source) {
      const bool is_source = group.rank() == 3 * source;
      const LocalTensor mine = is_source ? counting({5, 3}) : tensors::full({5, 3}, -7);
      for (const Placements& placements :
           std::vector<Placements>{{Shard(0), Shard(1)},
                                   {Shard(1), Shard(1)},
                                   {Replicate(), Shard(0)},
                                   {Replicate(), Replicate()},
                                   {Partial(), Shard(0)},
                                   {Replicate(), Partial(ReduceOp::max)}}) {
        const DTensor tensor = distribute_tensor(mine, mesh, placements, {.source_rank = source});
        EXPECT_TRUE(tensors::equal(tensor.full_tensor(), counting({5, 3})))
            << placements_to_string(placements);
      }
      const DTensor ordered = distribute_tensor(
          mine, mesh, {Shard(0), Shard(0)}, {.source_rank = source, .shard_order = {{0, {1, 0}}}});
      EXPECT_TRUE(tensors::equal(ordered.full_tensor(), counting({5, 3})));
    }
  });
}

TEST(DTensorTest, WithoutASourceEveryRankCutsItsOwnTensor) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const LocalTensor mine = tensors::full({3}, group.rank());
    const DTensor tensor = distribute_tensor(mine, mesh, {Shard(0)}, {.source_rank = -1});
    EXPECT_EQ(tensor.full_tensor().to_vector(), (std::vector<double>{0, 0, 1}));
  });
}

TEST(DTensorTest, ADistributedTensorIsItsOwnCopy) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const int source : {-1, 0}) {
      const LocalTensor mine = counting({4});
      const DTensor tensor = distribute_tensor(mine, mesh, {Replicate()}, {.source_rank = source});
      mine.fill_(9);
      EXPECT_TRUE(tensors::equal(tensor.to_local(), counting({4})));
    }
  });
}

TEST(DTensorTest, DistributeTensorRefusesWhatItCannotPlace) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const LocalTensor tensor = counting({4});
    expect_refused([&] { distribute_tensor(tensor, mesh, {Shard(0)}, {.source_rank = 2}); },
                   "from -1 to 1");
    expect_refused([&] { distribute_tensor(LocalTensor(), mesh, {Shard(0)}); }, "undefined");
    expect_refused([&] { distribute_tensor(tensor, mesh, {Shard(1)}); }, "its dims are -1 to 0");
    expect_refused([&] { distribute_tensor(tensor, mesh, {}); }, "0 placements and 1 axes");
    const DeviceMesh gpus(group, {2}, {}, tensors::DeviceType::cuda);
    expect_refused([&] { distribute_tensor(tensor, gpus, {Shard(0)}); }, "this one is on cpu");
  });
}

TEST(DTensorTest, FactoriesFillTheGlobalTensorWhateverThePlacements) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const Placements& placements :
         std::vector<Placements>{{Shard(0), Shard(1)},
                                 {Partial(), Shard(0)},
                                 {Replicate(), Partial(ReduceOp::avg)},
                                 {Partial(ReduceOp::min), Partial(ReduceOp::min)}}) {
      const Shape shape = {3, 5};
      EXPECT_TRUE(tensors::equal(full(shape, 2.5, mesh, placements).full_tensor(),
                                 tensors::full(shape, 2.5)));
      EXPECT_TRUE(tensors::equal(zeros(shape, mesh, placements, DType::i64).full_tensor(),
                                 tensors::zeros(shape, {.dtype = DType::i64})));
      EXPECT_TRUE(
          tensors::equal(ones(shape, mesh, placements).full_tensor(), tensors::ones(shape)));
    }
  });
}

TEST(DTensorTest, SequencesAreTheLocalOnesWhateverThePlacements) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const Placements& placements : std::vector<Placements>{{Shard(0), Shard(0)},
                                                                {Shard(0), Replicate()},
                                                                {Partial(), Shard(0)},
                                                                {Replicate(), Partial()}}) {
      const auto expect_whole = [](const Tensor& made, const LocalTensor& expected) {
        EXPECT_EQ(made.dtype(), expected.dtype());
        EXPECT_TRUE(tensors::equal(made.full_tensor(), expected)) << made.to_string();
      };
      for (const std::int64_t n : {0, 1, 5, 9}) {
        expect_whole(arange(n, mesh, placements), tensors::arange(n));
        expect_whole(arange(n, mesh, placements, DType::f32),
                     tensors::arange(n, {.dtype = DType::f32}));
        expect_whole(arange(0.1, 0.1 + 0.3 * n, 0.3, mesh, placements),
                     tensors::arange(0.1, 0.1 + 0.3 * n, 0.3, {}));
        expect_whole(linspace(-1, 2, n, mesh, placements), tensors::linspace(-1, 2, n));
      }
      const Placements of_matrix = {placements[0],
                                    placements[1].is_shard() ? Shard(1) : placements[1]};
      for (const Shape& shape : {Shape{5, 5}, Shape{3, 7}, Shape{7, 2}, Shape{0, 4}}) {
        expect_whole(eye(shape[0], shape[1], mesh, of_matrix), tensors::eye(shape[0], shape[1]));
        EXPECT_EQ(empty(shape, mesh, of_matrix, DType::i32).shape(), shape);
      }
    }
    expect_refused([&] { arange(0, 5, -1, mesh, {Shard(0), Shard(0)}); }, "does not get there");
  });
}

TEST(DTensorTest, FactoriesOfADeviceMeshMakeTheirPartsThere) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices devices;
  test::run_ranks(1, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {1}, {}, tensors::DeviceType::cuda);
    tensors::cuda::set_device(1);
    const Tensor made[] = {zeros({3}, mesh, {Shard(0)}), arange(3, mesh, {Shard(0)}),
                           linspace(0, 1, 3, mesh, {Shard(0)}), eye(3, 3, mesh, {Shard(1)}),
                           randn({3}, RandomKey{5}, mesh, {Shard(0)})};
    const LocalTensor expected[] = {tensors::zeros({3}), tensors::arange(3),
                                    tensors::linspace(0, 1, 3), tensors::eye(3, 3),
                                    tensors::randn({3}, {5})};
    for (std::size_t i = 0; i < std::size(made); ++i) {
      EXPECT_EQ(made[i].device(), (tensors::Device{tensors::DeviceType::cuda, 1}));
      EXPECT_TRUE(tensors::equal(made[i].local().to(tensors::kCpu), expected[i])) << i;
    }
  });
}

TEST(DTensorTest, RedistributeRefusesPlacementsThatDoNotFit) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const DTensor tensor = zeros({4}, mesh, {Shard(0)});
    expect_refused([&] { tensor.redistribute({Shard(1)}); }, "S(1)");
    expect_refused([&] { tensor.redistribute({Shard(0), Shard(0)}); }, "2 placements");
    expect_refused([&] { tensor.redistribute({Partial(ReduceOp::bor)}); }, "P(bor)");
    expect_refused([&] { tensor.redistribute({Shard(0)}, {{0, {1}}}); }, "shard order");
  });
}

TEST(DTensorTest, TheSameLayoutIsReachedWithoutACopy) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const DTensor tensor = zeros({4}, mesh, {Shard(0)});
    EXPECT_EQ(tensor.redistribute({Shard(-1)}).local().storage(), tensor.local().storage());
  });
}

TEST(DTensorTest, AnUndefinedTensorIsRefusedWhateverIsAskedOfIt) {
  const Tensor leaf = ones(2).requires_grad_(), none = leaf.grad();
  ASSERT_FALSE(none.defined());
  const Tensor one = ones(2);
  const std::function<void()> uses[] = {[&] { none.shape(); },
                                        [&] { none.dtype(); },
                                        [&] { none.sum(); },
                                        [&] { none.to_vector(); },
                                        [&] { none.to_string(); },
                                        [&] { none.requires_grad_(); },
                                        [&] { none.backward(); },
                                        [&] { none.detach(); },
                                        [&] { none.add_(1); },
                                        [&] { one.copy_(none); },
                                        [&] {
                                          stack({one, none});
                                        },
                                        [&] {
                                          cat({one, none});
                                        },
                                        [&] { layer_norm(none, {2}); },
                                        [&] { to_dlpack(none); },
                                        [&] { save_npy("none.npy", none); },
                                        [&] { none.data(); },
                                        [&] { none.is_contiguous(); },
                                        [&] { none.reshape({2}); },
                                        [&] { none[0]; },
                                        [&] { none.redistribute({}); },
                                        [&] { none.register_hook({}); },
                                        [&] { none.clone(); },
                                        [&] { none.contiguous(); },
                                        [&] { none.data_ptr<float>(); },
                                        [&] { softmax(none, 0); },
                                        [&] { cross_entropy(none, one); },
                                        [&] { none.full_tensor(); },
                                        [&] { flip(none, {0}); },
                                        [&] { sort(none); },
                                        [&] { none.retain_grad(); },
                                        [&] { embedding(none, ones(2, 2)); },
                                        [&] { max(none, 0); },
                                        [&] { equal(one, none); },
                                        [&] { none.max(); },
                                        [&] { none.fill_(1); },
                                        [&] { dropout(none); },
                                        [&] { mse_loss(one, none); },
                                        [&] { nll_loss(none, one); },
                                        [&] { conv2d(one, none); },
                                        [&] { zeros_like(none); },
                                        [&] { none.item(); },
                                        [&] { none.grad(); },
                                        [&] { grad({none}, {leaf}); },
                                        [&] { grad({one}, {none}); },
                                        [&] { one_hot(none); },
                                        [&] { einsum("i->i", {none}); }};
  for (const auto& use : uses) expect_refused(use, "an undefined tensor");
}

TEST(FromLocalTest, AskedToCheckItLooksAtEveryRanksPart) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const int rank = group.rank();
    const LocalTensor uneven = tensors::ones({3 - rank, 2});
    const std::string own = "rank 1 of the mesh has f32[2, 2]";
    expect_refused([&] { Tensor::from_local(uneven, mesh, {Shard(0)}, {.run_check = true}); }, own);
    expect_refused(
        [&] {
          Tensor::from_local(uneven, mesh, {Shard(0)},
                             {.shape = {6, 2}, .has_shape = true, .run_check = true});
        },
        own);
    const Tensor right = Tensor::from_local(
        uneven, mesh, {Shard(0)}, {.shape = {5, 2}, .has_shape = true, .run_check = true});
    EXPECT_EQ(sum(right).item(), 10);
    const LocalTensor other = rank == 0 ? tensors::ones({2}) : tensors::ones({2}).to(DType::f64);
    expect_refused([&] { Tensor::from_local(other, mesh, {Replicate()}, {.run_check = true}); },
                   "rank 1 of the mesh has f64[2]");
    // Whole elements are those of the first rank, and the caller's stay as they are.
    const LocalTensor mine = tensors::full({2}, rank + 1);
    const Tensor agreed = Tensor::from_local(mine, mesh, {Replicate()}, {.run_check = true});
    EXPECT_EQ(agreed.local().to_vector(), (std::vector<double>{1, 1}));
    EXPECT_EQ(mine.to_vector()[0], rank + 1);
  });
}

TEST(ShardsTextTest, EachRanksElementsStandWhereItStandsInTheMesh) {
  test::run_ranks(8, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2, 2}, {"pp", "dp", "tp"});
    const DTensor x(arange(6).reshape({3, 2}), mesh, ShardingSpec(2, {{0, {1}}, {1, {2}}}));
    EXPECT_EQ(shards_text(x),
              R"(i64[3, 2] on (2, 2, 2): [R, S(0), S(1)]
pp at 0
┌─ rank 0 ─┬─ rank 1 ─┐
│ [[0],    │ [[1],    │
│  [2]]    │  [3]]    │
├─ rank 2 ─┼─ rank 3 ─┤
│ [[4]]    │ [[5]]    │
└──────────┴──────────┘
pp at 1
┌─ rank 4 ─┬─ rank 5 ─┐
│ [[0],    │ [[1],    │
│  [2]]    │  [3]]    │
├─ rank 6 ─┼─ rank 7 ─┤
│ [[4]]    │ [[5]]    │
└──────────┴──────────┘
)");
    EXPECT_EQ(x.sharding_spec().to_string(), "[S1, S2]");
    expect_refused(
        [&] {
          shards_text(x.redistribute({Partial(), Shard(0), Shard(1)}));
        },
        "no elements of the tensor");
    expect_refused(
        [&] {
          DTensor(ones({2}), mesh, ShardingSpec(2, {{0, {0}}}));
        },
        "sharding dimension mismatch");
    expect_refused([&] { x.to_global().sharding_spec(); }, "no mesh and no placements");
    expect_refused([&] { shards_text(x.to_global()); }, "no mesh and no placements");
  });
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DTensor x(arange(2), DeviceMesh(group, {3}), ShardingSpec(1, {{0, {0}}}));
    EXPECT_EQ(shards_text(x), R"(i64[2] on (3): [S(0)]
┌─ rank 0 ─┬─ rank 1 ─┬─ rank 2 ─┐
│ [0]      │ [1]      │ []       │
└──────────┴──────────┴──────────┘
)");
  });
}

TEST(TensorTest, ItsPicturesAreThoseOfItsLayout) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const Tensor x = distribute_tensor(ones({7, 5}), mesh, {Shard(0), Shard(0)},
                                       {.source_rank = -1, .shard_order = {{0, {1, 0}}}});
    const ShardingSubject subject{{7, 5}, {2, 2}, x.spec().layout(), x.spec().to_string()};
    EXPECT_EQ(sharding_svg(x), sharding_svg(subject));
    EXPECT_EQ(sharding_text(x), sharding_text(subject));
    // tp cuts 7 rows into 4 and 3 first, then dp each of them.
    EXPECT_NE(sharding_svg(x).find("rank 1: rows 4:6"), std::string::npos) << sharding_svg(x);
    EXPECT_NE(sharding_svg(x).find("rank 2: rows 2:4"), std::string::npos) << sharding_svg(x);
    expect_refused([&] { sharding_svg(x.full_tensor()); }, "no mesh and no placements");
    expect_refused([&] { sharding_text(x.full_tensor()); }, "no mesh and no placements");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
