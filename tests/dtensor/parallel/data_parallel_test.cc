// data_parallel: gradients of one rank on all samples, how often and when ranks talk, and what it
// refuses.
#include "dtrun/dtensor/parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <atomic>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/base/log.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::LocalTensor;

void step(const nn::Module& model) {
  const NoGrad no_grad;
  for (const Tensor& parameter : model.parameters()) parameter.sub_(parameter.grad() * 0.1);
}

std::shared_ptr<Reader> one_rank_gradients() {
  const auto model = made_reader();
  loss_of(*model, 0, 12).backward();
  return model;
}

TEST(DataParallelTest, EveryRankTrainsAsOneRankOnAllSamples) {
  const auto whole = made_reader();
  for (int i = 0; i < 3; ++i) {
    whole->zero_grad();
    loss_of(*whole, 0, 12).backward();
    step(*whole);
  }
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::int64_t bytes : {8, 600, 1 << 20}) {
      test::run_ranks(ranks, [&](const ProcessGroup& group) {
        const DeviceMesh mesh(group, {ranks}, {"dp"});
        const auto model = made_reader(group.rank() == 0 ? 21 : 99);
        data_parallel(*model, mesh, {.bucket_bytes = bytes, .first_bucket_bytes = bytes / 2});
        for (int i = 0; i < 3; ++i) {
          model->zero_grad();
          part_of_loss(*model, group).backward();
          step(*model);
        }
        expect_gradients(*model, *whole);
        expect_near(model->head->weight, whole->head->weight, "weight");
      });
    }
  }
}

// The gradients are the same, and no rank copies the others' into place and out of it.
TEST(DataParallelTest, BucketsInSharedMemoryAreSummedInPlace) {
  static std::atomic<int> in_place;
  std::vector<Tensors> gradients(2);
  for (const bool shared_memory : {false, true}) {
    in_place = 0;
    base::log::set_levels("+collectives");
    base::log::set_writer([](const base::log::Line& line) {
      if (line.message.find("goes on in place") != std::string::npos) ++in_place;
    });
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2}, {"dp"});
      manual_seed(3);
      const nn::Linear model(64, 512);
      data_parallel(*model, mesh, {.shared_memory = shared_memory});
      for (int i = 0; i < 2; ++i) {
        model->zero_grad();
        model(full({4, 64}, group.rank() + 1)).sum().backward();
      }
      if (group.rank() != 0) return;
      for (const Tensor& parameter : model->parameters())
        gradients[shared_memory ? 1 : 0].push_back(parameter.grad());
    });
    base::log::set_writer(nullptr);
    base::log::set_levels("");
    // One bucket of 133 KB in each of two steps, on both ranks.
    EXPECT_EQ(in_place, shared_memory ? 4 : 0);
  }
  ASSERT_EQ(gradients[0].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(tensors::equal(gradients[0][i].local(), gradients[1][i].local()));
}

// The first bucket has 1 MiB, the others an eighth of all.
TEST(DataParallelTest, BucketsAreAnEighthOfTheGradientsUnlessTold) {
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    nn::Sequential model;
    constexpr std::int64_t kLayers = 24;  // of 1 MiB, so an eighth has 3
    for (std::int64_t i = 0; i < kLayers; ++i)
      model->push_back(nn::Linear(512, 512, {.bias = false}));
    data_parallel(*model, mesh);
    const Tensor x = ones({1, 512});
    model(x).sum().backward();  // learns the order
    CommCounter counter;
    model(x).sum().backward();
    EXPECT_EQ(counter.by_collective().at("all_reduce").calls, 1 + (kLayers - 1 + 2) / 3);
  });
}

TEST(DataParallelTest, EachGradientIsReducedOnceInAsManyCallsAsThereAreBuckets) {
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    std::int64_t elements = 0;
    for (const Tensor& parameter : model->parameters()) elements += parameter.numel() + 1;
    data_parallel(*model, mesh, {.bucket_bytes = 1500, .first_bucket_bytes = 400});
    part_of_loss(*model, group).backward();
    CommCounter counter;
    part_of_loss(*model, group).backward();
    const CommCounts counts = counter.by_collective();
    ASSERT_EQ(counts.size(), 1U);
    // Backward from the head on: 1,088 bytes, then 1,824, then 1,760.
    EXPECT_EQ(counts.at("all_reduce").calls, 3);
    EXPECT_EQ(counts.at("all_reduce").bytes, elements * 8);
  });
}

TEST(DataParallelTest, FromTheSecondStepOnBucketsTravelWhileBackwardGoesOn) {
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    std::string events;
    data_parallel(
        *model, mesh,
        {.bucket_bytes = 1, .first_bucket_bytes = 1, .comm_hook = [&](const auto& bucket) {
           events += "b";
           return all_reduce_hook()(bucket);
         }});
    model->blocks->at(0).register_forward_pre_hook([&](nn::Module&, const Tensors& inputs) {
      inputs[0].register_hook([&](const Tensor&) {
        events += "|";
        return Tensor();
      });
      return Tensors();
    });
    part_of_loss(*model, group).backward();
    EXPECT_EQ(events, "|" + std::string(14, 'b'));
    events.clear();
    part_of_loss(*model, group).backward();
    EXPECT_EQ(events, std::string(13, 'b') + "|b");
  });
}

/// Each rank may use another branch.
struct Branches : nn::Module {
  nn::Linear left = register_module("left", nn::Linear(2, 1, {.bias = false}));
  nn::Linear right = register_module("right", nn::Linear(2, 1, {.bias = false}));
  nn::Linear never = register_module("never", nn::Linear(2, 1));
  bool goes_left = true;
  Tensor forward(const Tensor& x) override { return goes_left ? left(x) : right(x); }
};

TEST(DataParallelTest, WhatOneRankUsesHasAGradientOnAllAndWhatNobodyUsesHasNone) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {4}, {"dp"});
    const auto model = std::make_shared<Branches>();
    data_parallel(*model, mesh, {.bucket_bytes = 1, .first_bucket_bytes = 1});
    for (int i = 0; i < 3; ++i) {
      model->zero_grad();
      model->goes_left = group.rank() != i;
      sum((*model)(ones(1, 2))).backward();
      EXPECT_EQ(model->left->weight.grad().to_vector(), (std::vector<double>{0.75, 0.75}));
      EXPECT_EQ(model->right->weight.grad().to_vector(), (std::vector<double>{0.25, 0.25}));
      EXPECT_FALSE(model->never->weight.grad().defined());
      EXPECT_FALSE(model->never->bias.grad().defined());
    }
  });
}

TEST(DataParallelTest, AStaticGraphThatChangesNamesTheParameter) {
  struct Choosing : nn::Module {
    nn::Linear always = register_module("always", nn::Linear(3, 3));
    nn::Linear sometimes = register_module("sometimes", nn::Linear(3, 3));
    int uses = 1;
    Tensor forward(const Tensor& x) override {
      Tensor y = always(x);
      for (int i = 0; i < uses; ++i)
        y = checkpoint([this](const Tensor& a) { return sometimes(a); }, y);
      return y;
    }
  };
  test::run_ranks(2, [](const ProcessGroup& group) {
    Choosing model;
    data_parallel(model, DeviceMesh(group, {2}),
                  {.launch = BucketLaunch::at_end, .static_graph = true});
    const auto backward = [&](int uses) {
      model.uses = uses;
      model.zero_grad();
      model(ones({2, 3})).sum().backward();
    };
    for (int i = 0; i < 3; ++i) backward(1);
    const auto told = [&](int uses) {
      try {
        backward(uses);
        return std::string("nothing");
      } catch (const base::Error& error) {
        return error.summary() + ", " + error.why();
      }
    };
    // Each rank tells of itself, after the other one has got its mean.
    const int own = group.rank() == 0 ? 0 : 1;
    EXPECT_EQ(told(own), own == 1
                             ? "nothing"
                             : "data_parallel: backward brought \"sometimes.weight\" 0 gradients "
                               "on this rank, static_graph: the first one brought 1");
    EXPECT_EQ(told(2),
              "data_parallel: backward brought \"sometimes.weight\" 2 gradients on this "
              "rank, static_graph: the first one brought 1");
    EXPECT_EQ(told(1), "nothing");
  });
}

TEST(DataParallelTest, NoSyncAddsUpAndTheNextBackwardSendsTheSum) {
  const auto whole = one_rank_gradients();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    const DataParallel parallel = data_parallel(*model, mesh);
    for (int i = 0; i < 2; ++i) {
      model->zero_grad();
      {
        const auto paused = parallel.no_sync();
        const CommCounter counter;
        (loss_of(*model, group.rank() * 3, 3) * 0.5).backward();
        EXPECT_EQ(counter.get_total_counts(), 0);
      }
      (loss_of(*model, 6 + group.rank() * 3, 3) * 0.5).backward();
      expect_gradients(*model, *whole);
    }
  });
}

TEST(DataParallelTest, AGradientThatIsThereIsAddedToAsOnOneRank) {
  const auto whole = one_rank_gradients();
  loss_of(*whole, 0, 12).backward();
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3}, {"dp"});
    const auto model = made_reader();
    data_parallel(*model, mesh);
    for (int i = 0; i < 2; ++i) part_of_loss(*model, group).backward();
    expect_gradients(*model, *whole);
  });
}

TEST(DataParallelTest, PartsThatAreRecomputedBringTheirGradientsMoreThanOnce) {
  struct Twice : nn::Module {
    nn::Linear layer = register_module("layer", nn::Linear(3, 3));
    int times = 2;
    Tensor forward(const Tensor& x) override {
      Tensor y = x;
      for (int i = 0; i < times; ++i) y = checkpoint([&](const Tensor& z) { return layer(z); }, y);
      return y;
    }
  };
  const auto made = [] {
    manual_seed(5);
    const auto model = std::make_shared<Twice>();
    model->to(DType::f64);
    return model;
  };
  const auto loss = [](nn::Module& model, int first, int count) {
    const Tensor x = arange(12).to(DType::f64).reshape({4, 3}).narrow(0, first, count);
    return mean(square(model(x * 0.1)));
  };
  const auto whole = made();
  loss(*whole, 0, 4).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made();
    data_parallel(*model, mesh, {.bucket_bytes = 1, .first_bucket_bytes = 1});
    for (int i = 0; i < 3; ++i) {
      model->zero_grad();
      loss(*model, group.rank() * 2, 2).backward();
      expect_gradients(*model, *whole);
    }
    model->times = 3;
    const Tensor last = loss(*model, 0, 2);
    expect_refused([&] { last.backward(); }, "gradient 3 of \"layer.", base::ErrorCode::kUsage);
  });
}

TEST(DataParallelTest, AfterABackwardThatFailedTheNextOneIsWhole) {
  const auto whole = one_rank_gradients();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    data_parallel(*model, mesh);
    for (int i = 0; i < 2; ++i) {
      const Tensor loss = part_of_loss(*model, group);
      model->table->weight.register_hook([fails = std::make_shared<int>(1)](const Tensor&) {
        if ((*fails)-- > 0) throw std::runtime_error("the hook's own");
        return Tensor();
      });
      EXPECT_THROW(loss.backward(), std::runtime_error);
      model->zero_grad();
      part_of_loss(*model, group).backward();
      expect_gradients(*model, *whole);
    }
  });
}

TEST(DataParallelTest, AParameterThatWasFrozenForAWhileIsReducedAgain) {
  const auto whole = one_rank_gradients();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    data_parallel(*model, mesh);
    part_of_loss(*model, group).backward();
    model->table->requires_grad_(false);
    part_of_loss(*model, group).backward();
    EXPECT_FALSE(model->table->weight.grad().defined());
    model->table->requires_grad_(true);
    model->zero_grad();
    part_of_loss(*model, group).backward();
    expect_gradients(*model, *whole);
  });
}

TEST(DataParallelTest, BuffersAreTheFirstRanksInEachForwardOfTraining) {
  struct Scaled : nn::Module {
    nn::Linear layer = register_module("layer", nn::Linear(2, 2));
    Tensor scale = register_buffer("scale", ones(2));
    Tensor forward(const Tensor& x) override { return layer(x) * scale; }
  };
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = std::make_shared<Scaled>();
    data_parallel(*model, mesh);
    model->scale.fill_(group.rank() + 5);
    model->eval();
    (*model)(ones(1, 2));
    EXPECT_EQ(model->scale.to_vector()[0], group.rank() + 5);
    model->train();
    (*model)(ones(1, 2));
    EXPECT_EQ(model->scale.to_vector()[0], 5);
  });
}

TEST(DataParallelTest, ParametersThatAreCutAlongAnotherAxisAreAveragedInParts) {
  const auto whole = one_rank_gradients();
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const auto model = made_reader();
    parallelize(*model, mesh["tp"], {{"blocks.*.up", Colwise()}, {"blocks.*.down", Rowwise()}});
    data_parallel(*model, mesh["dp"], {.bucket_bytes = 500, .first_bucket_bytes = 100});
    for (int i = 0; i < 2; ++i) {
      model->zero_grad();
      part_of_loss(*model, mesh.group("dp")).backward();
      expect_gradients(*model, *whole);
    }
    EXPECT_EQ(model->get_parameter("blocks.0.up.weight").grad().placements(), Placements{Shard(0)});
  });
}

TEST(DataParallelTest, ParametersThatFullyShardCutsAlongAnotherAxisAreAveragedInParts) {
  const auto whole = one_rank_gradients();
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "fsdp"});
    const auto model = made_reader();
    fully_shard(*model, mesh["fsdp"], {.units = {"blocks.*"}});
    data_parallel(*model, mesh["dp"], {.bucket_bytes = 500, .first_bucket_bytes = 100});
    for (int i = 0; i < 3; ++i) {
      model->zero_grad();
      part_of_loss(*model, group).backward();
      expect_gradients(*model, *whole);
    }
  });
}

TEST(DataParallelTest, HalfTheBytesGiveNearlyTheSame) {
  const auto whole = one_rank_gradients();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    data_parallel(*model, mesh, {.comm_hook = bf16_compress_hook()});
    part_of_loss(*model, group).backward();
    expect_gradients(*model, *whole, 2e-3);
    EXPECT_EQ(model->head->weight.grad().dtype(), DType::f64);
  });
}

TEST(DataParallelTest, AParameterThatIsFrozenAndThawedBetweenForwardsIsReduced) {
  const auto whole = one_rank_gradients();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    data_parallel(*model, mesh);
    for (int i = 0; i < 2; ++i) {
      model->zero_grad();
      // Each place in the graph is freed, and the next one is made where it was.
      for (const Tensor& parameter : model->parameters()) {
        parameter.requires_grad_(false);
        parameter.requires_grad_(true);
      }
      part_of_loss(*model, group).backward();
      expect_gradients(*model, *whole);
    }
  });
}

TEST(DataParallelTest, AGraphThatOutlivesItsModuleIsAveraged) {
  const auto whole = one_rank_gradients();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    auto model = made_reader();
    data_parallel(*model, mesh);
    const Tensor weight = model->head->weight;
    const Tensor loss = part_of_loss(*model, group);
    model.reset();
    loss.backward();
    expect_near(weight.grad(), whole->head->weight.grad(), "head");
  });
}

TEST(DataParallelTest, AfterACommHookThatFailedTheNextBackwardIsWhole) {
  const auto whole = one_rank_gradients();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    enum class Fault : std::uint8_t { none, throws, no_function, no_tensor, short_tensor } fault;
    const CommHook hook = [&](const GradientBucket& bucket) -> std::function<LocalTensor()> {
      if (fault == Fault::no_function) return nullptr;
      return [&fault, numbers = bucket.numbers, finish = all_reduce_hook()(bucket)] {
        const LocalTensor mean = finish();
        if (fault == Fault::throws) throw std::runtime_error("the hook's own");
        if (fault == Fault::no_tensor) return LocalTensor();
        return fault == Fault::short_tensor ? mean.narrow(0, 1, mean.numel() - 1) : mean;
      };
    };
    data_parallel(*model, mesh, {.comm_hook = hook});
    const auto fails_with = [&](Fault its_fault, const char* words) {
      fault = its_fault;
      const Tensor loss = part_of_loss(*model, group);
      if (fault == Fault::throws) {
        EXPECT_THROW(loss.backward(), std::runtime_error);
      } else {
        expect_refused([&] { loss.backward(); }, words);
      }
      fault = Fault::none;
      model->zero_grad();
      part_of_loss(*model, group).backward();
      expect_gradients(*model, *whole);
    };
    for (int i = 0; i < 2; ++i) {
      fails_with(Fault::throws, "");
      fails_with(Fault::no_function, "the comm_hook gave no function");
      fails_with(Fault::no_tensor, "the comm_hook gave no tensor");
      fails_with(Fault::short_tensor, "for a bucket of f64[");
    }
  });
}

TEST(DataParallelTest, GradientsOfMeansAreRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    const DataParallel parallel = data_parallel(*model, mesh);
    const auto twice = [&] { part_of_loss(*model, group).backward({.create_graph = true}); };
    expect_refused(twice, "create_graph through data_parallel()", base::ErrorCode::kUnavailable);
    const auto paused = parallel.no_sync();
    twice();
    EXPECT_TRUE(model->head->weight.grad().requires_grad());
    model->zero_grad();  // their graph holds the parameters that hold them
  });
}

TEST(DataParallelTest, ModulesThatDifferAreNamed) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3}, {"dp"});
    nn::Sequential layers{nn::Linear(2, 2), nn::Linear(2, group.rank() == 2 ? 4 : 3)};
    expect_refused([&] { data_parallel(*layers, mesh); },
                   "rank 0 has parameter \"1.weight\", f32[3, 2]; rank 2 has parameter "
                   "\"1.weight\", f32[4, 2]",
                   base::ErrorCode::kDisagreement);
  });
}

TEST(DataParallelTest, LayoutsThatDifferAreNamedByAllThatComparesModels) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const auto model = made_reader();
    // The ranks of a row agree, those of a column do not.
    const bool is_first = group.rank() < 2;
    parallelize(*model, mesh["tp"], {{"**.up", is_first ? Colwise() : Rowwise()}});
    const auto has = [](int rank) {
      return "rank " + std::to_string(rank) + " has parameter \"blocks.0.up.weight\", f64[12, 8], ";
    };
    const int column = group.rank() % 2;
    const auto refused = [&](const std::function<void()>& call) {
      for (const std::string& words :
           {has(column), has(column + 2), std::string("[S(0)]"), std::string("[S(1)]")})
        expect_refused(call, words, base::ErrorCode::kDisagreement);
    };
    refused([&] { data_parallel(*model, mesh["dp"]); });
    refused([&] { fully_shard(*model, mesh["dp"]); });
    EXPECT_FALSE(model->head->weight.is_distributed());
  });
}

TEST(DataParallelTest, WhatCannotBeDoneIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"}), box(group, {1, 2}, {"tp", "dp"});
    const auto model = made_reader();
    expect_refused([&] { data_parallel(*model, box); }, "mesh[\"tp\"], a slice of one axis");
    expect_refused([&] { data_parallel(*model, mesh, {.bucket_bytes = 0}); }, "sizes from 1");
    parallelize(*model, mesh, {{"head", Colwise()}});
    expect_refused([&] { data_parallel(*model, mesh); }, "\"head.weight\" is distributed already");
    nn::Linear frozen(2, 2);
    frozen->requires_grad_(false);
    expect_refused([&] { data_parallel(*frozen, mesh); }, "no parameter wants a gradient");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
