// fully_shard with parameters whose `storage` is Replicate(): they train as on one rank beside
// others that are cut, nothing of them is gathered, and each gradient is averaged once.
#include <gtest/gtest.h>

#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/parallel/trained_reader.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/state.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/nn/meta_scope.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using Counts = std::map<std::string, std::int64_t>;
using KeptAs = std::optional<Placement>;

bool is_kept(const std::string& name) {
  return name.ends_with("bias") || name.find("norm") != std::string::npos || name == "table.weight";
}
KeptAs small_ones_are_kept(const std::string& name, const Tensor&) {
  return is_kept(name) ? KeptAs(Replicate()) : std::nullopt;
}
KeptAs all_are_kept(const std::string&, const Tensor&) {
  return Replicate();
}

TEST(FullyShardKeptTest, AnyNumberOfRanksTrainsAsOneRankOnAllSamples) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& units : std::vector<std::vector<std::string>>{{}, {"blocks.*"}, {"**"}}) {
      for (const auto storage : {small_ones_are_kept, all_are_kept}) {
        test::run_ranks(ranks, [&](const ProcessGroup& group) {
          const DeviceMesh mesh(group, {ranks}, {"dp"});
          const auto model = made_reader(group.rank() == 0 ? 21 : 99);
          const Reshard reshard = ranks == 3 ? Reshard::after_backward : Reshard::after_forward;
          fully_shard(
              *model, mesh,
              {.units = units, .reshard = reshard, .prefetch = ranks - 1, .storage = storage});
          for (const auto& [name, parameter] : model->named_parameters()) {
            const bool is_whole = storage(name, parameter).has_value();
            EXPECT_EQ(parameter.placements(), Placements{is_whole ? Replicate() : Shard(0)});
            if (is_whole) {
              EXPECT_EQ(parameter.local().shape(), parameter.shape()) << name;
            }
          }
          expect_trains_as_one_rank(*model, group);
        });
      }
    }
  }
}

TEST(FullyShardKeptTest, NothingOfThemIsGatheredAndEachGradientIsAveragedOnce) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto mixed = made_reader(), kept = made_reader();
    fully_shard(*mixed, mesh, {.units = {"blocks.*"}, .storage = small_ones_are_kept});
    fully_shard(*kept, mesh, {.units = {"blocks.*"}, .storage = all_are_kept});
    for (int i = 0; i < 3; ++i) {
      const std::int64_t once_more = i == 0 ? 2 : 1;  // as of units that are cut only
      const CommCounter counter;
      part_of_loss(*mixed, group).backward();
      // Three units, each with parameters of both kinds.
      EXPECT_EQ(counter.get_comm_counts(),
                (Counts{{"all_gather", 3 + once_more}, {"all_reduce", 3}, {"reduce_scatter", 3}}));
      const CommCounter other;
      part_of_loss(*kept, group).backward();
      EXPECT_EQ(other.get_comm_counts(), (Counts{{"all_reduce", 3}}));
    }
    // All of them have one of the same mean on all ranks.
    expect_gradients(*kept, *mixed);
  });
}

TEST(FullyShardKeptTest, HybridAveragesThemOnceOverBothAxes) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"replicate", "shard"});
    const auto model = made_reader();
    fully_shard(*model, mesh, {.units = {"blocks.*"}, .storage = small_ones_are_kept});
    EXPECT_EQ(model->table->weight.placements(), (Placements{Replicate(), Replicate()}));
    EXPECT_EQ(model->head->weight.placements(), (Placements{Replicate(), Shard(0)}));
    expect_trains_as_one_rank(*model, group);
    const CommCounter counter;
    part_of_loss(*model, group).backward();
    EXPECT_EQ(counter.get_comm_counts(),
              (Counts{{"all_gather", 4}, {"all_reduce", 3 + 3}, {"reduce_scatter", 3}}));
    const auto kept = made_reader();
    fully_shard(*kept, mesh, {.units = {"blocks.*"}, .storage = all_are_kept});
    const CommCounter other;
    part_of_loss(*kept, group).backward();
    EXPECT_EQ(other.get_comm_counts(), (Counts{{"all_reduce", 3}}));
  });
}

TEST(FullyShardKeptTest, WithColumnsAndRowsOnAnotherAxisTheyAreWholeAlongThisOne) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const auto model = made_reader();
    parallelize(*model, mesh["tp"], {{"blocks.*.up", Colwise()}, {"blocks.*.down", Rowwise()}});
    const auto storage = [](const std::string& name, const Tensor&) {
      return is_kept(name) || name.ends_with("up.weight") ? KeptAs(Replicate()) : std::nullopt;
    };
    fully_shard(*model, mesh["dp"], {.units = {"blocks.*"}, .storage = storage});
    EXPECT_EQ(model->get_parameter("blocks.0.up.weight").placements(),
              (Placements{Replicate(), Shard(0)}));
    EXPECT_EQ(model->get_parameter("blocks.0.down.weight").placements(),
              (Placements{Shard(0), Shard(1)}));
    expect_trains_as_one_rank(*model, mesh.group("dp"));
  });
}

TEST(FullyShardKeptTest, InForwardTheyAreTheSameMemoryOrTheirHalves) {
  const auto whole = made_reader();
  loss_of(*whole, 0, 12).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    for (const bool halves : {false, true}) {
      const auto model = made_reader();
      MixedPrecision precision;
      if (halves) precision = {.param = DType::bf16, .reduce = DType::f32, .output = DType::f64};
      fully_shard(
          *model, mesh,
          {.units = {"blocks.*"}, .mixed_precision = precision, .storage = small_ones_are_kept});
      const void* const kept = model->blocks->at(0).get_parameter("norm.weight").local().data();
      int seen = 0;
      model->blocks->at(0).register_forward_pre_hook([&](nn::Module& block, const Tensors&) {
        const Tensor shown = block.get_parameter("norm.weight");
        EXPECT_FALSE(shown.is_distributed());
        EXPECT_EQ(shown.dtype(), halves ? DType::bf16 : DType::f64);
        EXPECT_EQ(shown.local().data() == kept, !halves);
        ++seen;
        return Tensors();
      });
      part_of_loss(*model, group).backward();
      EXPECT_EQ(seen, 1);
      EXPECT_EQ(model->table->weight.dtype(), DType::f64);
      EXPECT_EQ(model->table->weight.grad().dtype(), DType::f64);
      EXPECT_EQ(model->table->weight.grad().placements(), Placements{Replicate()});
      expect_gradients(*model, *whole, halves ? 2e-2 : 1e-12);
      // The halves are those of the numbers after a step.
      optim::AdamW optimizer = made_optimizer(*model);
      take_step(*model, optimizer);
      const auto stepped = made_reader();
      stepped->load_state_dict(model->state_dict());
      EXPECT_NEAR(loss_of(*model, 0, 12).item(), loss_of(*stepped, 0, 12).item(),
                  halves ? 2e-2 : 1e-12);
    }
  });
}

TEST(FullyShardKeptTest, GradientsAddUpOverBackwards) {
  expect_gradients_add_up({.units = {"blocks.*"}, .storage = small_ones_are_kept});
}

TEST(FullyShardKeptTest, ABackwardOfNumbersThatHaveChangedIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    // In the outermost unit alone, which stays whole after its forward.
    fully_shard(*model, mesh, {.storage = all_are_kept});
    optim::AdamW optimizer = made_optimizer(*model);
    part_of_loss(*model, group).backward();
    const Tensor old = part_of_loss(*model, group);
    optimizer.step();
    expect_refused([&] { old.backward(); }, "in place");
    model->zero_grad();
    part_of_loss(*model, group).backward();
    EXPECT_TRUE(model->head->weight.grad().defined());
  });
}

/// A factor without dims, beside a layer.
struct Scaled : nn::Module {
  nn::Linear layer = register_module("layer", nn::Linear(4, 4));
  Tensor factor = register_parameter("factor", full({}, 3));
  Tensor forward(const Tensor& x) override { return layer(x) * factor; }
};

TEST(FullyShardKeptTest, ASingleNumberMayBeKept) {
  const auto made = [] {
    manual_seed(3);
    return std::make_shared<Scaled>();
  };
  const Tensor x = randn({4, 4}, tensors::RandomKey{.seed = 8});
  const auto whole = made();
  mean(square((*whole)(x))).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made();
    expect_refused([&] { fully_shard(*model, mesh); }, "`storage` that gives Replicate()");
    fully_shard(*model, mesh, {.storage = [](const std::string& name, const Tensor&) {
      return name == "factor" ? KeptAs(Replicate()) : std::nullopt;
    }});
    EXPECT_EQ(model->factor.shape(), Shape{});
    mean(square((*model)(x.narrow(0, group.rank() * 2, 2)))).backward();
    expect_gradients(*model, *whole, 1e-6);
  });
}

TEST(FullyShardKeptTest, OneThatSomeRanksUseHasAGradientOnAllAndOneOfNoRankHasNone) {
  struct Choosing : nn::Module {
    Tensor some = register_parameter("some", ones({2}));
    Tensor none = register_parameter("none", ones({2}));
    Tensor all = register_parameter("all", ones({2}));
    bool uses = false;
    Tensor forward(const Tensor& x) override {
      const Tensor y = sum(x * all);
      return uses ? y + sum(x * some) : y;
    }
  };
  test::run_ranks(2, [](const ProcessGroup& group) {
    Choosing model;
    fully_shard(model, DeviceMesh(group, {2}, {"dp"}), {.storage = all_are_kept});
    model.uses = group.rank() == 1;
    model(full({2}, 3)).backward();
    EXPECT_EQ(model.all.grad().to_vector(), (std::vector<double>{3, 3}));
    EXPECT_EQ(model.some.grad().to_vector(), (std::vector<double>{1.5, 1.5}));
    EXPECT_FALSE(model.none.grad().defined());
  });
}

TEST(FullyShardKeptTest, ACheckpointIsReadByOtherRanksAndOtherStorage) {
  const dcp::OwnFolder own;
  const auto run = [&](int ranks, const auto& storage, const std::string& from,
                       const std::string& to) {
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"dp"});
      const auto model = made_reader(from.empty() ? 21 : 99);
      fully_shard(*model, mesh, {.units = {"blocks.*"}, .storage = storage});
      optim::AdamW optimizer = made_optimizer(*model);
      const dcp::State state = {{"model", *model}, {"optimizer", optimizer}};
      if (!from.empty()) dcp::load(from, state, {.group = group});
      optimizer.zero_grad();
      part_of_loss(*model, group).backward();
      take_step(*model, optimizer);
      if (!to.empty()) dcp::save(to, state, {.group = group});
      if (to.empty()) expect_weights(*model, trained());
    });
  };
  const auto cut = [](const std::string&, const Tensor&) { return KeptAs(); };
  run(2, small_ones_are_kept, "", own / "1");
  run(3, all_are_kept, own / "1", own / "2");
  run(4, cut, own / "2", "");
}

TEST(FullyShardKeptTest, AModelMadeWithoutMemoryHasTheFirstNumbers) {
  manual_seed(21);
  const auto whole = std::make_shared<Reader>();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    manual_seed(21);
    const auto model = nn::make_meta<Reader>();
    fully_shard(*model, mesh, {.units = {"blocks.*"}, .storage = small_ones_are_kept});
    EXPECT_EQ(model->table->weight.placements(), Placements{Replicate()});
    expect_weights(*model, *whole, 0);
  });
}

}  // namespace
}  // namespace dtrun::dtensor
