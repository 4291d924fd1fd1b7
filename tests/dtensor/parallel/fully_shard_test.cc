// fully_shard: losses, gradients and weights of one rank on all samples, what travels, what is
// recomputed, and what is refused.
#include "dtrun/dtensor/parallel/fully_shard.h"

#include <gtest/gtest.h>

#include "dtensor/parallel/trained_reader.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/function.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/layout/chunk.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "dtrun/tensor/host_memory.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using Counts = std::map<std::string, std::int64_t>;

TEST(FullyShardTest, AnyNumberOfRanksTrainsAsOneRankOnAllSamples) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& units : std::vector<std::vector<std::string>>{{}, {"blocks.*"}, {"**"}}) {
      for (const Reshard reshard : {Reshard::after_forward, Reshard::after_backward}) {
        test::run_ranks(ranks, [&](const ProcessGroup& group) {
          const DeviceMesh mesh(group, {ranks}, {"dp"});
          const auto model = made_reader(group.rank() == 0 ? 21 : 99);
          const Tensors before = model->parameters();
          fully_shard(*model, mesh, {.units = units, .reshard = reshard, .prefetch = ranks - 1});
          expect_trains_as_one_rank(*model, group);
          for (std::size_t i = 0; i < before.size(); ++i) {
            EXPECT_TRUE(same(before[i], model->parameters()[i]));
            EXPECT_EQ(before[i].placements(), Placements{Shard(0)});
          }
        });
      }
    }
  }
}

TEST(FullyShardTest, WithColumnsAndRowsOnAnotherAxisItTrainsAsOneRank) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const auto model = made_reader();
    parallelize(*model, mesh["tp"],
                {{"blocks.*.up", Colwise()},
                 {"blocks.*.down", Rowwise()},
                 {"head", Colwise({.output = Replicate()})}});
    fully_shard(*model, mesh["dp"], {.units = {"blocks.*"}});
    EXPECT_EQ(model->get_parameter("blocks.0.up.weight").placements(),
              (Placements{Shard(0), Shard(0)}));
    EXPECT_EQ(model->get_parameter("blocks.0.down.weight").placements(),
              (Placements{Shard(0), Shard(1)}));
    expect_near(model->head->weight, made_reader()->head->weight, "head");
    expect_trains_as_one_rank(*model, mesh.group("dp"));
  });
}

TEST(FullyShardTest, HybridTrainsAsOneRankAndGathersWithinALine) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"replicate", "shard"});
    const auto model = made_reader();
    fully_shard(*model, mesh, {.units = {"blocks.*"}});
    EXPECT_EQ(model->head->weight.placements(), (Placements{Replicate(), Shard(0)}));
    expect_trains_as_one_rank(*model, group);
  });
}

TEST(FullyShardTest, StorageSaysWhichDimIsCut) {
  const auto storage = [](const std::string& name,
                          const Tensor& parameter) -> std::optional<Placement> {
    if (name == "table.weight") return Shard(1);
    if (parameter.dim() == 2) return Shard(-1);
    return std::nullopt;
  };
  for (const int ranks : {1, 2, 3, 4}) {
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"dp"});
      const auto model = made_reader(group.rank() == 0 ? 21 : 99);
      fully_shard(*model, mesh, {.units = {"blocks.*"}, .storage = storage});
      for (const Tensor& parameter : model->parameters()) {
        const int dim = parameter.dim() == 2 ? 1 : 0;
        EXPECT_EQ(parameter.placements(), Placements{Shard(dim)});
        EXPECT_EQ(parameter.local().size(dim),
                  chunk_of(parameter.size(dim), ranks, group.rank()).size);
      }
      expect_trains_as_one_rank(*model, group);
    });
  }
}

TEST(FullyShardTest, StorageCutsOnceMoreWhatAnotherAxisHasCut) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const auto model = made_reader();
    parallelize(*model, mesh["tp"], {{"blocks.*.up", Colwise()}, {"blocks.*.down", Rowwise()}});
    const auto storage = [](const std::string& name, const Tensor&) -> std::optional<Placement> {
      return name.ends_with("up.weight") || name.ends_with("down.weight") ? Shard(1) : Shard(0);
    };
    fully_shard(*model, mesh["dp"], {.units = {"blocks.*"}, .storage = storage});
    // Rows along tp, columns along dp; columns along both.
    EXPECT_EQ(model->get_parameter("blocks.0.up.weight").placements(),
              (Placements{Shard(1), Shard(0)}));
    EXPECT_EQ(model->get_parameter("blocks.0.down.weight").placements(),
              (Placements{Shard(1), Shard(1)}));
    expect_trains_as_one_rank(*model, mesh.group("dp"));
  });
}

TEST(FullyShardTest, StorageThatIsNoDimOrDiffersIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    const auto shard = [&](const Placement& placement) {
      fully_shard(*model, mesh, {.storage = [&](const std::string& name, const Tensor&) {
        return name == "head.weight" ? std::optional(placement) : std::nullopt;
      }});
    };
    expect_refused([&] { shard(Shard(2)); },
                   "storage of \"head.weight\", of shape [5, 8], as S(2)");
    expect_refused([&] { shard(Partial()); }, "as P");
    try {
      shard(Shard(group.rank()));
      ADD_FAILURE() << "not refused";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ErrorCode::kDisagreement);
      EXPECT_NE(error.why().find("the storage of \"head.weight\""), std::string::npos)
          << error.what();
    }
    EXPECT_FALSE(model->head->weight.is_distributed());
  });
}

TEST(FullyShardTest, EachUnitIsGatheredAndAveragedAsOftenAsItSays) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    for (const bool again : {true, false}) {
      const auto model = made_reader();
      fully_shard(*model, mesh,
                  {.units = {"blocks.*"},
                   .reshard = again ? Reshard::after_forward : Reshard::after_backward});
      for (int i = 0; i < 3; ++i) {
        const CommCounter counter;
        part_of_loss(*model, group).backward();
        // Three units; which block is the last, and stays whole, is known after the first step.
        const std::int64_t once_more = !again ? 0 : i == 0 ? 2 : 1;
        EXPECT_EQ(counter.get_comm_counts(),
                  (Counts{{"all_gather", 3 + once_more}, {"reduce_scatter", 3}}));
      }
      const NoGrad no_grad;
      const CommCounter counter;
      part_of_loss(*model, group);
      EXPECT_EQ(counter.get_comm_counts(), (Counts{{"all_gather", 3}}));
    }
  });
}

TEST(FullyShardTest, GradientsAddUpOverBackwards) {
  expect_gradients_add_up({.units = {"blocks.*"}});
}

TEST(FullyShardTest, ABackwardOfNumbersThatHaveChangedIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    fully_shard(*model, mesh, {.units = {"blocks.*"}});
    optim::AdamW optimizer = made_optimizer(*model);
    const Tensor old = part_of_loss(*model, group);
    part_of_loss(*model, group).backward();
    optimizer.step();
    expect_refused([&] { old.backward(); }, "in place");
    model->zero_grad();
    part_of_loss(*model, group).backward();
    EXPECT_TRUE(model->head->weight.grad().defined());
  });
}

/// Its blocks are recomputed, or a layer within each.
struct Recomputing : nn::Module {
  nn::ModuleList blocks = register_module(
      "blocks", nn::ModuleList(std::make_shared<Block>(), std::make_shared<Block>()));
  bool whole_blocks = true;
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (nn::Module& block : *blocks) {
      const Tensor z = y;
      y = whole_blocks ? checkpoint([&](const Tensor& t) { return block(t); }, z)
                       : z + checkpoint(
                                 [&](const Tensor& t) {
                                   return block.as<Block>()->down(gelu(block.as<Block>()->up(t)));
                                 },
                                 block.as<Block>()->norm(z));
    }
    return y;
  }
};

TEST(FullyShardTest, WhatIsRecomputedGivesTheSameGradients) {
  const auto made = [](bool whole_blocks) {
    manual_seed(3);
    const auto model = std::make_shared<Recomputing>();
    model->to(DType::f64);
    model->whole_blocks = whole_blocks;
    return model;
  };
  const Tensor x = randn({4, 8}, tensors::RandomKey{.seed = 8}).to(DType::f64);
  for (const bool whole_blocks : {true, false}) {
    const auto whole = made(whole_blocks);
    const Tensor input = x.clone();
    input.requires_grad_();
    mean(square((*whole)(input))).backward();
    // Recomputed parts of a unit need it shown in backward: here the module itself is the unit.
    const std::vector<std::string> units =
        whole_blocks ? std::vector<std::string>{"blocks.*"} : std::vector<std::string>{};
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2}, {"dp"});
      for (const bool keeps : {false, true}) {
        const auto model = made(whole_blocks);
        const auto storage = [&](const std::string& name, const Tensor&) {
          return keeps && name.find("down") == std::string::npos ? std::optional(Replicate())
                                                                 : std::nullopt;
        };
        fully_shard(*model, mesh, {.units = units, .storage = storage});
        for (int i = 0; i < 2; ++i) {
          model->zero_grad();
          const Tensor part = x.narrow(0, group.rank() * 2, 2).clone();
          part.requires_grad_();
          mean(square((*model)(part))).backward();
          expect_gradients(*model, *whole);
        }
      }
    });
  }
}

TEST(FullyShardTest, AForwardThatThrowsLeavesTheParts) {
  struct Failing : Reader {
    bool fails = false;
    Tensor forward(const Tensor& tokens) override {
      if (fails) throw std::runtime_error("the forward's own");
      return Reader::forward(tokens);
    }
  };
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    manual_seed(21);
    const auto model = std::make_shared<Failing>();
    model->to(DType::f64);
    fully_shard(*model, mesh, {.units = {"blocks.*"}});
    model->fails = true;
    EXPECT_THROW(part_of_loss(*model, group), std::runtime_error);
    for (const Tensor& parameter : model->parameters()) EXPECT_TRUE(parameter.is_distributed());
    model->fails = false;
    expect_trains_as_one_rank(*model, group);
  });
}

TEST(FullyShardTest, HalvesAreComputedAndTheMastersStay) {
  const auto whole = made_reader();
  loss_of(*whole, 0, 12).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    fully_shard(
        *model, mesh,
        {.units = {"blocks.*"},
         .mixed_precision = {.param = DType::bf16, .reduce = DType::f32, .output = DType::f64}});
    std::vector<DType> seen;
    model->blocks->at(0).register_forward_pre_hook([&](nn::Module& block, const Tensors& inputs) {
      seen = {inputs[0].dtype(), block.get_parameter("up.weight").dtype()};
      return Tensors();
    });
    part_of_loss(*model, group).backward();
    EXPECT_EQ(seen, (std::vector<DType>{DType::bf16, DType::bf16}));
    EXPECT_EQ(model->head->weight.dtype(), DType::f64);
    EXPECT_EQ(model->head->weight.grad().dtype(), DType::f64);
    expect_gradients(*model, *whole, 2e-2);
  });
}

struct Tied : nn::Module {
  nn::Embedding table = register_module("table", nn::Embedding(8, 4));
  nn::Linear unused = register_module("unused", nn::Linear(3, 3));
  nn::Linear head = register_module("head", nn::Linear(table->weight));
  Tensor forward(const Tensor& tokens) override { return head(table(tokens)); }
};

TEST(FullyShardTest, ATensorOfTwoUnitsIsTheOutermostOnesAndWhatIsUnusedHasNoGradient) {
  const auto made = [] {
    manual_seed(6);
    const auto model = std::make_shared<Tied>();
    model->to(DType::f64);
    return model;
  };
  const Tensor tokens = randint(0, 8, {6}, tensors::RandomKey{.seed = 4});
  const auto whole = made();
  mean(square((*whole)(tokens))).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made();
    fully_shard(*model, mesh, {.units = {"table", "head"}});
    mean(square((*model)(tokens.narrow(0, group.rank() * 3, 3)))).backward();
    expect_gradients(*model, *whole);
    EXPECT_FALSE(model->unused->weight.grad().defined());
  });
}

/// A block, and a layer that another one has, too.
struct Sharing : nn::Module {
  explicit Sharing(const nn::Linear& with) : shared(register_module("shared", with)) {}
  nn::Linear shared;
  nn::Linear own = register_module("own", nn::Linear(4, 4));
  Tensor forward(const Tensor& x) override { return own(gelu(shared(x))); }
};

TEST(FullyShardTest, AModuleThatStandsInTwoPlacesIsWholeInBoth) {
  // Two units share a layer, or one unit stands in two places.
  for (const bool one_unit : {false, true}) {
    const auto made = [&] {
      manual_seed(6);
      const nn::Linear layer(4, 4);
      const auto block = std::make_shared<Sharing>(layer);
      const nn::Sequential model{block, one_unit ? block : std::make_shared<Sharing>(layer)};
      model->to(DType::f64);
      return model;
    };
    const Tensor x = randn({4, 4}, tensors::RandomKey{.seed = 8}).to(DType::f64);
    const auto whole = made();
    mean(square(whole(x))).backward();
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2}, {"dp"});
      const auto model = made();
      fully_shard(*model, mesh, {.units = {"*"}});
      for (int i = 0; i < 2; ++i) {
        model->zero_grad();
        mean(square(model(x.narrow(0, group.rank() * 2, 2)))).backward();
        expect_gradients(*model, *whole);
      }
    });
  }
}

TEST(FullyShardTest, HooksOfAParameterSeeAndChangeItsMean) {
  const auto whole = made_reader();
  loss_of(*whole, 0, 12).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    fully_shard(*model, mesh, {.units = {"blocks.*"}});
    const Tensor weight = model->head->weight;
    int before = 0, after = 0;
    weight.register_hook([&](const Tensor& gradient) {
      EXPECT_EQ(gradient.placements(), Placements{Shard(0)});
      ++before;
      return gradient * 2;
    });
    weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++after; });
    part_of_loss(*model, group).backward();
    EXPECT_EQ(before, 1);
    EXPECT_EQ(after, 1);
    expect_near(weight.grad(), whole->head->weight.grad() * 2, "head");
  });
}

/// Parameters of integers and truth values among others.
struct Picking : nn::Module {
  nn::Linear layer = register_module("layer", nn::Linear(4, 4));
  Tensor order = register_parameter("order", arange(4), {.requires_grad = false});
  Tensor mask = register_parameter("mask", lt(arange(4), 2), {.requires_grad = false});
  Tensor forward(const Tensor& x) override {
    EXPECT_EQ(order.dtype(), DType::i64);
    EXPECT_EQ(mask.dtype(), DType::boolean);
    return where(mask, index_select(layer(x), -1, order), layer(x) * 2);
  }
};

TEST(FullyShardTest, IntegersAreNeitherHalvedNorAveraged) {
  const auto made = [] {
    manual_seed(3);
    return std::make_shared<Picking>();
  };
  const Tensor x = randn({4, 4}, tensors::RandomKey{.seed = 8});
  const auto whole = made();
  mean((*whole)(x)).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    for (const bool halves : {false, true}) {
      const auto model = made();
      MixedPrecision precision;
      if (halves) precision.param = DType::bf16;
      fully_shard(*model, mesh, {.mixed_precision = precision});
      mean((*model)(x.narrow(0, group.rank() * 2, 2))).backward();
      expect_near(model->layer->weight.grad(), whole->layer->weight.grad(), "weight",
                  halves ? 0.01 : 1e-6);
    }
  });
}

/// Fewer rows than ranks, no rows, and rows without elements.
struct Sparse : nn::Module {
  Tensor one = register_parameter("one", randn({1, 3}));
  Tensor none = register_parameter("none", randn({0, 3}));
  Tensor vector = register_parameter("vector", randn({3}));
  Tensor rows = register_parameter("rows", randn({7, 3}));
  Tensor empty_rows = register_parameter("empty_rows", randn({2, 0}));
  Tensor forward(const Tensor& x) override {
    return mean(x * one) + sum(none) + mean(x * vector) + mean(square(matmul(x, rows.t()))) +
           sum(empty_rows);
  }
};

TEST(FullyShardTest, RanksMayHaveNothingOfAParameter) {
  const auto made = [] {
    manual_seed(5);
    const auto model = std::make_shared<Sparse>();
    model->to(DType::f64);
    return model;
  };
  const Tensor x = randn({4, 3}, tensors::RandomKey{.seed = 8}).to(DType::f64);
  const auto whole = made();
  (*whole)(x).backward();
  for (const int ranks : {2, 4}) {
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"dp"});
      const auto model = made();
      fully_shard(*model, mesh);
      for (int i = 0; i < 2; ++i) {
        model->zero_grad();
        (*model)(x.narrow(0, group.rank() * 4 / ranks, 4 / ranks)).backward();
        expect_gradients(*model, *whole);
      }
    });
  }
}

TEST(FullyShardTest, StateIsSavedWholeAndLoadedIntoTheParts) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader(99);
    fully_shard(*model, mesh, {.units = {"blocks.*"}});
    model->load_state_dict(trained().state_dict());
    expect_weights(*model, trained(), 0);
    const double loss = loss_of(*model, 0, 12).item();
    EXPECT_NEAR(loss, loss_of(const_cast<Reader&>(trained()), 0, 12).item(), 1e-12);
    // Numbers that were put elsewhere are found.
    const NoGrad no_grad;
    model->head->weight.set_data(model->head->weight.detach() * 0);
    EXPECT_NEAR(loss_of(*model, 0, 12).item(), std::log(5.0), 1e-12);
  });
}

TEST(FullyShardTest, ARankHoldsItsPartsAndFewUnitsThatAreWhole) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer has its own allocator";
#endif
  // Units of 2 MiB, in parts of 1 MiB: only blocks from 1 MiB on are counted.
  constexpr std::size_t kUnit = std::size_t{2} << 20, kRanks = 2;
  // Of few units those that are gathered ahead are a larger share.
  for (const auto& of : std::vector<std::pair<std::size_t, int>>{{20, 0}, {20, 1}, {6, 0}}) {
    const std::size_t units = of.first;
    const int prefetch = of.second;
    std::size_t before = 0, parts = 0, peak = 0;
    test::run_ranks(kRanks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {kRanks}, {"dp"});
      group.barrier();
      if (group.rank() == 0) before = tensors::host_memory().now;
      group.barrier();
      nn::Sequential model;
      for (std::size_t i = 0; i < units; ++i)
        model->push_back(
            nn::Linear(i % 2 == 0 ? 1024 : 512, i % 2 == 0 ? 512 : 1024, {.bias = false}));
      fully_shard(*model, mesh, {.units = {"*"}, .prefetch = prefetch});
      optim::AdamW optimizer(model->parameters());
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        group.barrier();
        if (group.rank() == 0) {
          parts = tensors::host_memory().now - before;
          tensors::reset_host_memory_peak();
        }
        group.barrier();
        sum(square(model(ones(1, 1024)))).backward();
        optimizer.step();
        group.barrier();
      }
      if (group.rank() == 0) peak = tensors::host_memory().peak - before;
      group.barrier();
    });
    // Weights and AdamW's two states, then gradients. Of one unit weights and gradients are whole,
    // or gradients and the buffer that is sent. With prefetch also the weights of the unit that is
    // gathered ahead, and the buffer of the one before, which travels.
    const std::size_t part = units * kUnit / kRanks;
    EXPECT_NEAR(static_cast<double>(parts) / (kRanks * 3 * part), 1, 1e-3);
    const std::size_t whole = (prefetch == 0 ? 2 : 4) * kUnit;
    EXPECT_LE(static_cast<double>(peak) / (kRanks * (4 * part + whole)), 1.001)
        << units << " units, " << prefetch;
    // The parts and the largest unit's whole weights and gradients, by default, too.
    EXPECT_LE(static_cast<double>(peak) / (kRanks * (4 * part + 2 * kUnit)), 1.05)
        << units << " units, " << prefetch;
    EXPECT_GE(peak, kRanks * (4 * part));
  }
}

/// How many gathers have been started when each unit's forward begins, then when its backward does.
std::vector<std::int64_t> gathers_at(const ProcessGroup& group, int prefetch) {
  const DeviceMesh mesh(group, {2}, {"dp"});
  nn::Sequential model;
  for (int i = 0; i < 4; ++i) model->push_back(nn::Linear(8, 8));
  fully_shard(*model, mesh, {.units = {"*"}, .prefetch = prefetch});
  std::optional<CommCounter> counter;
  std::vector<std::int64_t> started;
  const auto note = [&] {
    if (counter) started.push_back(counter->get_comm_counts()["all_gather"]);
  };
  // After fully_shard's own hooks: what a unit needs, and what it asks for ahead, has been started.
  for (nn::Module& unit : *model) {
    unit.register_forward_pre_hook([&](nn::Module&, const Tensors&) { return note(), Tensors(); });
    unit.register_forward_hook([&](nn::Module&, const Tensors&, const Tensors& outputs) {
      outputs[0].register_hook([&](const Tensor&) { return note(), Tensor(); });
      return outputs;
    });
  }
  const auto step = [&] { sum(square(model(ones({2, 8})))).backward(); };
  step();  // learns the order
  counter.emplace();
  step();
  return started;
}

TEST(FullyShardTest, UnitsAreGatheredAsFarAheadAsIsAskedFor) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    // The last unit stays whole for its backward: seven gathers for four units on two ways.
    using Started = std::vector<std::int64_t>;
    EXPECT_EQ(gathers_at(group, 0), (Started{1, 2, 3, 4, 4, 5, 6, 7}));
    EXPECT_EQ(gathers_at(group, 1), (Started{2, 3, 4, 4, 5, 6, 7, 7}));
    EXPECT_EQ(gathers_at(group, 2), (Started{3, 4, 4, 4, 6, 7, 7, 7}));
  });
}

/// Its gradient is the parameter itself, in the same memory.
struct HalfOfSquares : autograd::Function<HalfOfSquares> {
  static Tensor forward(autograd::FunctionContext& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return sum(square(x)) / 2;
  }
  static Tensor backward(autograd::FunctionContext& ctx, const Tensor&) {
    return ctx.saved_tensors()[0];
  }
};

struct Penalty : nn::Module {
  Tensor weight = register_parameter("weight", arange(12).to(tensors::DType::f64).reshape({4, 3}));
  Tensor forward(const Tensor& x) override { return x + HalfOfSquares::apply(weight); }
};

TEST(FullyShardTest, AGradientThatIsTheWholeParameterOutlivesIt) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    for (const int prefetch : {0, 1}) {
      const auto model = std::make_shared<Penalty>();
      fully_shard(*model, mesh, {.prefetch = prefetch});
      (*model)(zeros({1}).to(tensors::DType::f64)).backward();
      expect_near(model->weight.grad().full_tensor(), Penalty().weight, "weight");
    }
  });
}

TEST(FullyShardTest, WhatCannotBeDoneIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"}), box(group, {1, 1, 2}, {"a", "b", "c"});
    const auto model = made_reader();
    expect_refused([&] { fully_shard(*model, box); }, "which has 3 axes");
    expect_refused([&] { fully_shard(*model, mesh, {.units = {"block"}}); },
                   "no module matches \"block\"", base::ErrorCode::kNotFound);
    struct Scalar : nn::Module {
      Tensor number = register_parameter("number", full({}, 1));
    } scalar;
    expect_refused([&] { fully_shard(scalar, mesh); }, "\"number\" is a single number");
    expect_refused([&] { fully_shard(*nn::ReLU(), mesh); }, "which has no parameters");
    nn::Linear layer(2, 2 + group.rank());
    expect_refused([&] { fully_shard(*layer, mesh); }, "f32[2, 2]; rank 1 has",
                   base::ErrorCode::kDisagreement);
    nn::Sequential one_or_two{nn::Linear(2, 2)};
    if (group.rank() == 0) one_or_two->push_back(nn::Linear(2, 2));
    expect_refused([&] { fully_shard(*one_or_two, mesh, {.units = {"1"}}); }, "rank 1 has no more",
                   base::ErrorCode::kDisagreement);
    for (const Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.is_distributed());
    fully_shard(*model, mesh);
    expect_refused([&] { fully_shard(*model, mesh); }, "is distributed already");
    const Tensor loss = part_of_loss(*model, group);
    expect_refused([&] { grad({loss}, {model->head->weight}); }, "grad() through fully_shard");
    expect_refused([&] { loss.backward({.create_graph = true}); }, "create_graph",
                   base::ErrorCode::kUnavailable);
  });
}

}  // namespace
}  // namespace dtrun::dtensor
