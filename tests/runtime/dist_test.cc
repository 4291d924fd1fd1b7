// torch.distributed's names: what each call means, among ranks that are threads.
#include "dtrun/runtime/dist.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/runtime/dist_coalesce.h"
#include "dtrun/tensor/cuda.h"
#include "runtime/dist_ranks.h"
#include "support/store_backend.h"
#include "support/thrown_error.h"

namespace dtrun::dist {
namespace {

using base::ErrorCode;
using tensors::tensor_from;
using testing::HasSubstr;
using testing_support::error_of;
using Values = std::vector<double>;

Tensor vector_of(const Values& values) {
  return tensor_from(values, {static_cast<std::int64_t>(values.size())}, tensors::DType::f32);
}
Values values_of(const Tensor& tensor) {
  return tensor.to_vector();
}

TEST(DistTest, RanksAndGroupsHaveTorchsNumbers) {
  run_dist_ranks(4, [](int rank) {
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(get_rank(), rank);
    EXPECT_EQ(get_world_size(), 4);
    EXPECT_EQ(get_backend(), "cpu");
    EXPECT_EQ(device(), tensors::kCpu);
    // Group ranks follow the global ranks, whatever the order of the list.
    const ProcessGroup odd = new_group({3, 1});
    EXPECT_EQ(get_rank(odd), rank % 2 == 1 ? rank / 2 : -1);
    EXPECT_EQ(get_world_size(odd), rank % 2 == 1 ? 2 : -1);
    if (rank % 2 == 0) return;
    EXPECT_EQ(get_process_group_ranks(odd), (std::vector<int>{1, 3}));
    EXPECT_EQ(get_group_rank(odd, 3), 1);
    EXPECT_EQ(get_global_rank(odd, 0), 1);
    EXPECT_EQ(odd.to_string(),
              rank == 1 ? "ProcessGroup(name=group-0, backend=cpu, rank=0, ranks=[1, 3])"
                        : "ProcessGroup(name=group-0, backend=cpu, rank=1, ranks=[1, 3])");
    EXPECT_EQ(error_of([&] { get_group_rank(odd, 2); })->code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of([&] { get_global_rank(odd, 2); })->code(), ErrorCode::kInvalidArgument);
  });
}

TEST(DistTest, SubgroupsDivideTheWorld) {
  run_dist_ranks(4, [](int rank) {
    const Subgroups pairs = new_subgroups(2);
    EXPECT_EQ(pairs.ranks, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
    EXPECT_EQ(get_process_group_ranks(pairs.current),
              pairs.ranks[static_cast<std::size_t>(rank / 2)]);
    const Subgroups some = new_subgroups_by_enumeration({{3, 0}, {1}}, {.name = "some"});
    EXPECT_EQ(some.current.valid(), rank != 2);
    if (rank == 3) {
      EXPECT_EQ(get_process_group_ranks(some.current), (std::vector<int>{0, 3}));
    }
    EXPECT_EQ(get_world_size(new_subgroups().current), current_worker().local_world_size());
    EXPECT_EQ(error_of([] { new_subgroups(3); })->code(), ErrorCode::kInvalidArgument);
    // Lists of the parent's group ranks.
    const ProcessGroup later = new_group({1, 2, 3});
    if (rank != 0) {
      const ProcessGroup part = split_group({{0, 2}, {1}}, later);
      EXPECT_EQ(get_process_group_ranks(part),
                rank == 2 ? std::vector<int>{2} : (std::vector<int>{1, 3}));
    }
    // Rank 0 has made a group less than the others.
    barrier({.group = new_group({0, 1, 2, 3})});
  });
}

TEST(DistTest, ListsOfTensorsTravelTogether) {
  run_dist_ranks(2, [](int rank) {
    const double mine = rank + 1;
    const std::vector<Tensor> terms{vector_of({mine}), vector_of({mine, 2 * mine})};
    all_reduce_coalesced(terms);
    EXPECT_EQ(values_of(terms[0]), Values{3});
    EXPECT_EQ(values_of(terms[1]), (Values{3, 6}));
    std::vector<std::vector<Tensor>> lists(2);
    for (auto& list : lists) list = {vector_of({0}), vector_of({0})};
    const Work work =
        all_gather_coalesced(lists, {vector_of({mine}), vector_of({-mine})}, {.async_op = true});
    Values seen;
    const Work next = work.then([&](const std::exception_ptr& error) {
      EXPECT_EQ(error, nullptr);
      seen = values_of(lists[1][1]);
    });
    work.wait();
    EXPECT_TRUE(work.is_success());
    next.wait();
    EXPECT_EQ(seen, Values{-2});
    EXPECT_TRUE(work.elapsed().has_value());
    EXPECT_EQ(values_of(lists[0][1]), Values{2});
    EXPECT_EQ(values_of(lists[1][0]), Values{-1});
    const std::vector<Tensor> wholes{vector_of({0, 0}), vector_of({0, 0, 0, 0})};
    all_gather_into_tensor_coalesced(wholes, {vector_of({mine}), vector_of({mine, mine})});
    EXPECT_EQ(values_of(wholes[1]), (Values{1, 1, 2, 2}));
    const std::vector<Tensor> parts{vector_of({0}), vector_of({0, 0})};
    reduce_scatter_tensor_coalesced(parts, wholes);
    EXPECT_EQ(values_of(parts[0]), Values{2 * mine});
    EXPECT_EQ(values_of(parts[1]), (Values{2 * mine, 2 * mine}));
    EXPECT_EQ(error_of([&] { reduce_scatter_tensor_coalesced({}, wholes); })->code(),
              ErrorCode::kInvalidArgument);
    EXPECT_TRUE(all_reduce_coalesced({}).elapsed().has_value());
    const Tensor scaled = vector_of({mine});
    all_reduce(scaled, ReduceOp::premul_sum, {.factor = 0.5 * mine});
    EXPECT_EQ(values_of(scaled), Values{2.5});
  });
}

TEST(DistTest, CollectivesNameGlobalRanksAlsoInAGroup) {
  run_dist_ranks(4, [](int rank) {
    const double mine = rank;
    const ProcessGroup odd = new_group({1, 3}, {.name = "odd"});
    if (rank % 2 == 0) return;
    const OpOptions in_odd = {.group = odd};
    Tensor tensor = vector_of({mine});
    broadcast(tensor, 3, in_odd);
    EXPECT_EQ(values_of(tensor), Values{3});
    tensor = vector_of({mine});
    reduce(tensor, 3, ReduceOp::sum, in_odd);
    EXPECT_EQ(values_of(tensor), Values{rank == 3 ? 4.0 : 1.0});
    const std::vector<Tensor> two = {vector_of({10}), vector_of({30})};
    const std::vector<Tensor> none;
    scatter(tensor, rank == 3 ? two : none, 3, in_odd);
    EXPECT_EQ(values_of(tensor), Values{10 * mine});
    gather(tensor, rank == 1 ? std::vector<Tensor>{dtensor::zeros({1}), vector_of({0})} : none, 1,
           in_odd);
    if (rank == 1) {
      isend(tensor, 3, {.group = odd, .tag = 7}).wait();
    } else {
      EXPECT_EQ(recv(tensor, -1, {.group = odd, .tag = 7}), 1);
      EXPECT_EQ(values_of(tensor), Values{10});
    }
  });
}

TEST(DistTest, CollectivesOfTheWorldTakeWhatTheirNamesakesTake) {
  run_dist_ranks(2, [](int rank) {
    const double mine = rank;
    Tensor tensor = vector_of({mine, 1});
    all_reduce(tensor, ReduceOp::max);
    EXPECT_EQ(values_of(tensor), (Values{1, 1}));
    const Work work = all_reduce(tensor, ReduceOp::sum, {.async_op = true});
    work.wait();
    EXPECT_EQ(values_of(tensor), (Values{2, 2}));
    const std::vector<Tensor> all = {vector_of({0}), vector_of({0})};
    all_gather(all, vector_of({mine}));
    EXPECT_EQ(values_of(all[1]), Values{1});
    Tensor output = vector_of({0});
    reduce_scatter(output, {vector_of({mine}), vector_of({mine + 10})});
    EXPECT_EQ(values_of(output), Values{rank == 0 ? 1.0 : 21.0});
    const std::vector<Tensor> from = {vector_of({mine}), vector_of({mine + 10})};
    all_to_all(all, from);
    EXPECT_EQ(values_of(all[1]), Values{rank == 0 ? 1.0 : 11.0});
    barrier();
    if (rank == 0) {
      send(tensor, 1);
    } else {
      const Work received = irecv(tensor, 0);
      received.wait();
    }
  });
}

TEST(DistTest, TheFlatCallsTakeOneTensorForAllRanks) {
  run_dist_ranks(2, [](int rank) {
    const double mine = rank;
    Tensor output = vector_of({0, 0});
    all_gather_into_tensor(output, vector_of({mine}));
    EXPECT_EQ(values_of(output), (Values{0, 1}));
    Tensor one = vector_of({0});
    reduce_scatter_tensor(one, vector_of({mine, mine + 10}));
    EXPECT_EQ(values_of(one), Values{rank == 0 ? 1.0 : 21.0});
    all_to_all_single(output, vector_of({mine, mine + 10}));
    EXPECT_EQ(values_of(output), (rank == 0 ? Values{0, 1} : Values{10, 11}));
    monitored_barrier({.timeout = std::chrono::seconds(30), .wait_all_ranks = true});
  });
}

TEST(DistTest, CallsAreCountedByGroup) {
  run_dist_ranks(2, [](int) {
    set_call_timing(CallTiming::all_calls);
    const collectives::CallCounters before = call_counters();
    all_reduce(vector_of({1, 2}));
    const ProcessGroup pair = new_group({0, 1});
    all_reduce(vector_of({1}), ReduceOp::sum, {.group = pair});
    const collectives::CallCount count =
        call_counters().since(before).of(collectives::OpKind::all_reduce);
    EXPECT_EQ(count.calls, 1U);
    EXPECT_EQ(count.timed, 1U);
    EXPECT_EQ(call_counters(pair).of(collectives::OpKind::all_reduce).timed, 1U);
    EXPECT_NE(call_counters().to_string().find("all_reduce"), std::string::npos);
  });
}

TEST(DistTest, ABatchOfMessagesNamesGlobalRanks) {
  run_dist_ranks(3, [](int rank) {
    const ProcessGroup pair = new_group({1, 2}, {.timeout = std::chrono::seconds(30)});
    if (rank == 0) return;
    EXPECT_EQ(pair.timeout(), std::chrono::seconds(30));
    set_timeout(std::chrono::seconds(40), pair);
    EXPECT_EQ(pair.timeout(), std::chrono::seconds(40));
    const double mine = rank;
    const int peer = 3 - rank;
    const Tensor incoming = vector_of({0});
    const std::vector<P2POp> batch = {{P2POp::Kind::receive, incoming, peer},
                                      {P2POp::Kind::send, vector_of({mine}), peer}};
    for (const Work& work : batch_isend_irecv(batch, pair)) work.wait();
    EXPECT_EQ(values_of(incoming), Values{static_cast<double>(peer)});
    const std::vector<P2POp> foreign = {{P2POp::Kind::send, incoming, 0}};
    EXPECT_THAT(error_of([&] { batch_isend_irecv(foreign, pair); })->what(),
                HasSubstr("rank 0 is not in ProcessGroup(name=group-0"));
  });
}

TEST(DistTest, AThreadMayInitAgainAfterDestroyAtTheSameFile) {
  run_uninitialized_ranks(3, [&](const InitProcessGroup& mine) {
    for (int world_number = 0; world_number < 5; ++world_number) {
      init_process_group(mine);
      const Tensor tensor = vector_of({1});
      all_reduce(tensor);
      EXPECT_EQ(values_of(tensor), Values{3});
      destroy_process_group();
    }
  });
}

TEST(DistTest, ABackendOfTheProgramsOwnIsUsedByItsName) {
  const auto make = [](const collectives::GroupOptions& options) {
    return std::make_unique<test::StoreBackend>(options);
  };
  if (!is_backend_available("store")) register_backend("store", make);
  EXPECT_TRUE(is_backend_available("store"));
  run_uninitialized_ranks(2, [](InitProcessGroup mine) {
    mine.backend = "store";
    init_process_group(mine);
    EXPECT_EQ(get_backend(), "store");
    const Tensor sum = vector_of({1, 2});
    all_reduce(sum);
    EXPECT_EQ(values_of(sum), (Values{2, 4}));
    EXPECT_EQ(get_backend(new_group({0, 1}, {.backend = "cpu"})), "cpu");
    barrier();
    destroy_process_group();
  });
  run_dist_ranks(2, [](int) {
    const ProcessGroup group = new_group({0, 1}, {.backend = "cpu:store"});
    EXPECT_EQ(get_backend(group), "store");
    const Tensor sum = vector_of({1});
    all_reduce(sum, ReduceOp::sum, {.group = group});
    EXPECT_EQ(values_of(sum), Values{2});
    barrier();
  });
}

/// A backend whose operations are between the two halves of their end: callbacks are told of the
/// error, and exception() is not there yet.
class HalfToldBackend : public test::StoreBackend {
 public:
  using StoreBackend::start;
  using StoreBackend::StoreBackend;
  Work start(collectives::Collective given) override {
    if (given.kind() != collectives::OpKind::all_reduce)
      return StoreBackend::start(std::move(given));
    return Work(std::make_shared<HalfTold>());
  }

 private:
  class HalfTold : public Work::State {
   public:
    HalfTold() {
      const base::Error error(ErrorCode::kPeerFailed, "rank 1 has gone");
      // Nobody can have put a callback behind it yet.
      static_cast<void>(settle(std::make_exception_ptr(error), nullptr));
    }
    void wait(base::Deadline) override {}
    bool is_completed() override { return false; }
    std::exception_ptr exception() override { return nullptr; }
  };
};

TEST(DistTest, ACallbackBehindCoalescedCallsGetsTheErrorThatTheyGaveTheirCallbacks) {
  register_backend("half_told", [](const collectives::GroupOptions& options) {
    return std::make_unique<HalfToldBackend>(options);
  });
  run_dist_ranks(2, [](int) {
    const ProcessGroup group = new_group({0, 1}, {.backend = "half_told"});
    std::exception_ptr told;
    all_reduce_coalesced({vector_of({1}), vector_of({2})}, ReduceOp::sum,
                         {.group = group, .async_op = true})
        .then([&](const std::exception_ptr& error) { told = error; });
    ASSERT_NE(told, nullptr);
    EXPECT_EQ(error_of([&] { std::rethrow_exception(told); })->summary(), "rank 1 has gone");
    barrier();
  });
}

TEST(DistTest, OnlyWhatCanBeUsedHereIsAvailable) {
  EXPECT_TRUE(is_backend_available("cpu"));
  EXPECT_FALSE(is_backend_available("smoke"));
  EXPECT_EQ(is_nccl_available(), is_backend_available("nccl"));
  EXPECT_EQ(is_gloo_available(), is_backend_available("gloo"));
  EXPECT_EQ(is_mpi_available(), is_backend_available("mpi"));
}

TEST(DistTest, InitMakesTheLocalRanksGpuCurrentAndRefusesARankWithoutOne) {
  const int gpus = tensors::cuda::device_count();
  if (gpus == 0 || !is_nccl_available()) GTEST_SKIP() << "no GPU here";
  for (const char* backend : {"nccl", "cpu:cpu,cuda:nccl"})
    run_uninitialized_ranks(1, [&](InitProcessGroup mine) {
      mine.backend = backend;
      init_process_group(mine);
      EXPECT_EQ(device(), (tensors::Device{tensors::DeviceType::cuda, 0}));
      EXPECT_EQ(tensors::cuda::current_device(), 0);
      const Tensor tensor = tensors::ones({4}, {.device = device()});
      all_reduce(tensor);
      EXPECT_EQ(values_of(tensor.to(tensors::kCpu)), (Values{1, 1, 1, 1}));
      destroy_process_group();
    });
  InitProcessGroup beyond;
  beyond.backend = "nccl";
  beyond.init_method = "tcp://127.0.0.1:1";
  beyond.rank = gpus;
  beyond.world_size = gpus + 1;
  const auto error = error_of([&] { init_process_group(beyond); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr(fmt::format("has LOCAL_RANK {}", gpus)));
}

TEST(DistTest, ABackendThatDoesNotExistIsRefusedWithTheListOfWhatThereIs) {
  InitProcessGroup options;
  options.backend = "smoke";
  options.init_method = "tcp://127.0.0.1:1";
  options.rank = 0;
  options.world_size = 1;
  const auto error = error_of([&] { init_process_group(options); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error->what(), HasSubstr("smoke"));
  EXPECT_THAT(error->remedy(), HasSubstr("cpu"));
  EXPECT_FALSE(is_initialized());
}

TEST(DistTest, ARootOutsideTheGroupFailsTheCallOnAllItsRanksAndIsNamedByItsGlobalNumber) {
  const std::vector<Ended> ended = run_failing_dist_ranks(3, [](int rank) {
    const ProcessGroup pair = new_group({1, 2}, {.name = "pair"});
    if (rank == 0) return;
    broadcast(dtensor::zeros({1}), rank == 1 ? 0 : 1, {.group = pair});
  });
  EXPECT_FALSE(ended[0].error);
  ASSERT_TRUE(ended[1].error && ended[2].error);
  EXPECT_EQ(ended[1].error->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(ended[1].error->what(), HasSubstr("rank 0 is not in ProcessGroup(name=pair"));
  EXPECT_THAT(ended[1].error->what(), HasSubstr("ranks=[1, 2]"));
  EXPECT_EQ(ended[2].error->code(), ErrorCode::kPeerFailed);
  EXPECT_THAT(ended[2].error->what(), HasSubstr("rank 0 is not in ProcessGroup(name=pair"));
  EXPECT_THAT(ended[2].error->what(), HasSubstr("dist_test.cc:"));
}

using G = const ProcessGroup&;
using CallsByName = std::vector<std::pair<std::string, std::function<void(G)>>>;

/// Each refuses its distributed tensor, in the words of the call and the argument.
void expect_refused_by_name(const CallsByName& calls) {
  for (const auto& [text, call] : calls) {
    // A group is failed by the first of its calls that fails.
    const ProcessGroup group = new_group({0, 1});
    const auto error = error_of([&, &run = call] { run(group); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(error->what(), HasSubstr(text + ":"));
    EXPECT_THAT(error->what(), HasSubstr("S(0)"));
    EXPECT_THAT(error->remedy(), HasSubstr("to_local()"));
  }
}

TEST(DistTest, ADistributedTensorIsRefusedByCallAndArgument) {
  run_dist_ranks(2, [](int rank) {
    const Tensor local = dtensor::zeros({2}), both = dtensor::zeros({4});
    const Tensor cut = dtensor::zeros({4}, init_device_mesh("cpu", {2}), {dtensor::Shard(0)});
    const int other = 1 - rank;
    const std::vector<Tensor> list = {local, cut};
    constexpr ReduceOp kSum = ReduceOp::sum;
    const CallsByName calls = {
        {"broadcast of a distributed tensor", [&](G g) { broadcast(cut, 0, {.group = g}); }},
        {"all_reduce of a distributed tensor", [&](G g) { all_reduce(cut, kSum, {.group = g}); }},
        {"reduce of a distributed tensor", [&](G g) { reduce(cut, 0, kSum, {.group = g}); }},
        {"all_gather of a distributed tensor_list[1]",
         [&](G g) { all_gather(list, local, {.group = g}); }},
        {"all_gather of a distributed tensor",
         [&](G g) {
           all_gather({local, local}, cut, {.group = g});
         }},
        {"all_gather_into_tensor of a distributed output",
         [&](G g) { all_gather_into_tensor(cut, local, {.group = g}); }},
        {"gather of a distributed tensor", [&](G g) { gather(cut, {}, 0, {.group = g}); }},
        {"gather of a distributed gather_list[1]",
         [&](G g) { gather(local, list, 0, {.group = g}); }},
        {"scatter of a distributed tensor", [&](G g) { scatter(cut, {}, 0, {.group = g}); }},
        {"scatter of a distributed scatter_list[1]",
         [&](G g) { scatter(local, list, 0, {.group = g}); }},
        {"reduce_scatter of a distributed input_list[1]",
         [&](G g) { reduce_scatter(local, list, kSum, {.group = g}); }},
        {"reduce_scatter_tensor of a distributed input",
         [&](G g) { reduce_scatter_tensor(local, cut, kSum, {.group = g}); }},
        {"all_to_all of a distributed output_list[1]",
         [&](G g) {
           all_to_all(list, {local, local}, {.group = g});
         }},
        {"all_to_all_single of a distributed input",
         [&](G g) { all_to_all_single(both, cut, {}, {}, {.group = g}); }},
        {"send of a distributed tensor", [&](G g) { send(cut, other, {.group = g}); }},
        {"recv of a distributed tensor", [&](G g) { recv(cut, other, {.group = g}); }},
        {"isend of a distributed tensor", [&](G g) { isend(cut, other, {.group = g}); }},
        {"irecv of a distributed tensor", [&](G g) { irecv(cut, other, {.group = g}); }},
        {"batch_isend_irecv of a distributed operation[1]",
         [&](G g) {
           using Kind = P2POp::Kind;
           batch_isend_irecv({{Kind::send, local, other}, {Kind::send, cut, other}}, g);
         }},
    };
    expect_refused_by_name(calls);
  });
}

TEST(DistTest, ADistributedTensorInACoalescedCallIsRefusedByCallAndPlace) {
  run_dist_ranks(2, [](int rank) {
    const Tensor local = dtensor::zeros({2});
    const Tensor cut = dtensor::zeros({4}, init_device_mesh("cpu", {2}), {dtensor::Shard(0)});
    const int other = 1 - rank;
    const std::vector<Tensor> list = {local, cut}, locals = {local, local};
    constexpr ReduceOp kSum = ReduceOp::sum;
    using Kind = P2POp::Kind;
    const CallsByName calls = {
        {"all_reduce_coalesced of a distributed tensors[1]",
         [&](G g) { all_reduce_coalesced(list, kSum, {.group = g}); }},
        {"all_gather_coalesced of a distributed output_tensor_lists[1][1]",
         [&](G g) {
           all_gather_coalesced({locals, list}, locals, {.group = g});
         }},
        {"all_gather_coalesced of a distributed input_tensor_list[1]",
         [&](G g) {
           all_gather_coalesced({locals, locals}, list, {.group = g});
         }},
        {"all_gather_into_tensor_coalesced of a distributed outputs[1]",
         [&](G g) { all_gather_into_tensor_coalesced(list, locals, {.group = g}); }},
        {"reduce_scatter_tensor_coalesced of a distributed inputs[1]",
         [&](G g) { reduce_scatter_tensor_coalesced(locals, list, kSum, {.group = g}); }},
        {"isend of a distributed tensor",
         [&](G g) {
           const Coalesce scope(g);
           isend(cut, other, {.group = g});
         }},
        {"irecv of a distributed tensor",
         [&](G g) {
           const Coalesce scope(g);
           irecv(cut, other, {.group = g});
         }},
        {"batch_isend_irecv of a distributed operation[1]",
         [&](G g) {
           const Coalesce scope(g);
           batch_isend_irecv({{Kind::send, local, other}, {Kind::send, cut, other}}, g);
         }},
    };
    expect_refused_by_name(calls);
  });
}

TEST(DistTest, ARefusedReceiveLeavesWhatAGradientSaved) {
  run_dist_ranks(2, [](int rank) {
    const Tensor cut = dtensor::zeros({4}, init_device_mesh("cpu", {2}), {dtensor::Shard(0)});
    const Tensor saved = vector_of({3, 4});
    using Kind = P2POp::Kind;
    const std::function<void()> calls[] = {
        [&] { recv(saved, 99); },
        [&] { irecv(saved, 99); },
        [&] {
          batch_isend_irecv({{Kind::receive, saved, 1 - rank}, {Kind::receive, saved, 99}});
        },
    };
    for (const auto& call : calls) {
      const Tensor weight = vector_of({1, 1}).requires_grad_();
      const Tensor product = saved.mul(weight);
      EXPECT_EQ(error_of(call)->code(), ErrorCode::kInvalidArgument);
      product.sum().backward();
      EXPECT_EQ(values_of(weight.grad()), (Values{3, 4}));
    }
    const Tensor weight = vector_of({1, 1}).requires_grad_();
    const Tensor product = saved.mul(weight);
    EXPECT_TRUE(error_of([&] { all_gather({saved, cut}, vector_of({1, 2})); }));
    product.sum().backward();
    EXPECT_EQ(values_of(weight.grad()), (Values{3, 4}));
  });
}

TEST(DistTest, ADistributedTensorOfOneRankFailsTheCallOnAll) {
  const std::vector<Ended> ended = run_failing_dist_ranks(2, [](int rank) {
    const Tensor cut = dtensor::zeros({4}, init_device_mesh("cpu", {2}), {dtensor::Shard(0)});
    all_reduce(rank == 0 ? cut : dtensor::zeros({2}));
  });
  ASSERT_TRUE(ended[0].error && ended[1].error);
  EXPECT_EQ(ended[0].error->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ended[1].error->code(), ErrorCode::kPeerFailed);
  EXPECT_THAT(ended[1].error->what(), HasSubstr("all_reduce of a distributed tensor"));
}

TEST(DistTest, AGroupThatThisRankIsNoMemberOfIsRefusedByNameAndIsNotTheWorld) {
  run_dist_ranks(2, [](int rank) {
    const ProcessGroup first = new_group({0}, {.name = "first"});
    if (rank == 0) return all_reduce(dtensor::zeros({1}), ReduceOp::sum, {.group = first}).wait();
    EXPECT_EQ(first.to_string(), "ProcessGroup(name=first, this rank is no member)");
    const std::function<void()> calls[] = {
        [&] { all_reduce(dtensor::zeros({1}), ReduceOp::sum, {.group = first}); },
        [&] { broadcast(dtensor::zeros({1}), 0, {.group = first}); },
        [&] { barrier({.group = first}); },
        [&] { send(dtensor::zeros({1}), 0, {.group = first}); },
        [&] { get_backend(first); },
        [&] { get_process_group_ranks(first); },
    };
    for (const auto& call : calls) {
      const auto error = error_of(call);
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::kUsage);
      EXPECT_THAT(error->what(), HasSubstr("this rank is no member of group 'first'"));
    }
  });
}

TEST(DistTest, AnAbortedGroupIsShrunkToTheRanksThatStay) {
  run_dist_ranks(4, [](int rank) {
    const ProcessGroup group = new_group({1, 2, 3}, {.name = "late"});
    if (rank == 0) return;
    // From a thread that has no world, too.
    if (rank == 3) std::thread([&] { abort(group, "no more"); }).join();
    const auto error = error_of([&] { barrier({.group = group}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->summary(), "rank 3 has aborted group 'late': no more");
    if (rank == 2) return;
    const ProcessGroup rest = shrink_group({2}, group, {.timeout = std::chrono::seconds(40)});
    EXPECT_EQ(rest.name(), "late-shrink-0");
    EXPECT_EQ(get_process_group_ranks(rest), (std::vector<int>{1, 3}));
    const Tensor sum = vector_of({1});
    all_reduce(sum, ReduceOp::sum, {.group = rest});
    EXPECT_EQ(values_of(sum), Values{2});
    EXPECT_EQ(error_of([&] { shrink_group({0}, rest); })->code(), ErrorCode::kInvalidArgument);
  });
}

TEST(DistTest, CallsBeforeInitAndAfterDestroyAndASecondInitAreNamed) {
  const auto text_of = [](const std::function<void()>& call) {
    const auto error = error_of(call);
    EXPECT_TRUE(error && error->code() == ErrorCode::kUsage);
    return error ? error->summary() : "";
  };
  EXPECT_FALSE(is_initialized());
  EXPECT_EQ(text_of([] { barrier(); }), "the default process group has not been initialized");
  EXPECT_EQ(text_of([] { destroy_process_group(); }),
            "the default process group has not been initialized");
  run_uninitialized_ranks(2, [&](const InitProcessGroup& mine) {
    init_process_group(mine);
    EXPECT_EQ(text_of([&] { init_process_group(mine); }),
              "trying to initialize the default process group twice");
    const ProcessGroup group = new_group();
    const ProcessGroup all = world();
    barrier({.group = group});
    destroy_process_group(group);
    EXPECT_EQ(error_of([&] { barrier({.group = group}); })->code(), ErrorCode::kAborted);
    barrier();
    destroy_process_group(all);
    EXPECT_FALSE(is_initialized());
    for (const auto& call : std::vector<std::function<void()>>{
             [] { barrier(); }, [&] { barrier({.group = group}); },
             [&] { all_reduce(dtensor::zeros({1}), ReduceOp::sum, {.group = all}); },
             [] { destroy_process_group(); }, [] { get_rank(); }})
      EXPECT_EQ(text_of(call), "the default process group has been destroyed");
    EXPECT_EQ(error_of([&] { all.barrier(); })->code(), ErrorCode::kAborted);
  });
}

}  // namespace
}  // namespace dtrun::dist
