// A program of many ranks in this process.
#include "dtrun/runtime/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>

#include "dtrun/dtrun.h"
#include "support/thrown_error.h"

namespace dtrun {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

TEST(SimulateTest, SixtyFourRanksMultiplyOnAMeshOfThreeAxes) {
  std::atomic<int> ended = 0;
  simulate(64, [&] {
    dist::init_process_group();
    const DeviceMesh mesh = dist::init_device_mesh("cpu", {4, 4, 4}, {"pp", "dp", "tp"});
    const Tensor a = arange(64 * 32).to(DType::f64).reshape({64, 32});
    const Tensor b = arange(32 * 16).to(DType::f64).reshape({32, 16});
    const Tensor x = distribute_tensor(a, mesh, {Shard(0), Shard(0), Shard(1)});
    const Tensor y = distribute_tensor(b, mesh, {Replicate(), Replicate(), Shard(0)});
    EXPECT_TRUE(equal(matmul(x, y), matmul(a, b)));
    EXPECT_EQ(x.to_local().shape(), (Shape{4, 8}));
    ++ended;
    dist::destroy_process_group();
  });
  EXPECT_EQ(ended, 64);
}

TEST(SimulateTest, SixtyFourRanksRedistributeAndGoBackOnAMeshOfFourAxes) {
  std::atomic<int> ended = 0;
  simulate(64, [&] {
    dist::init_process_group();
    const DeviceMesh mesh = dist::init_device_mesh("cpu", {2, 4, 4, 2}, {"pp", "dp", "cp", "tp"});
    const Tensor a = arange(64 * 24).to(DType::f64).reshape({64, 24});
    const Tensor b = (arange(24 * 12).to(DType::f64).reshape({24, 12}) - 100);
    const Tensor x =
        distribute_tensor(a, mesh, {Shard(0), Shard(0), Shard(1), Shard(0)}).requires_grad_();
    const Tensor w =
        distribute_tensor(b, mesh, {Replicate(), Replicate(), Shard(0), Shard(1)}).requires_grad_();
    const Tensor moved = x.redistribute({Shard(1), Replicate(), Shard(0), Shard(0)});
    EXPECT_EQ(moved.to_local().shape(), (Shape{8, 12}));
    EXPECT_TRUE(equal(moved, a));
    const Tensor y = matmul(moved, w);
    EXPECT_TRUE(equal(y, matmul(a, b)));
    y.sum().backward();
    EXPECT_EQ(x.grad().placements(), x.placements());
    EXPECT_EQ(w.grad().placements(), w.placements());
    const Tensor of_y = ones({64, 12}, {.dtype = DType::f64});
    EXPECT_TRUE(equal(x.grad(), matmul(of_y, b.t())));
    EXPECT_TRUE(equal(w.grad(), matmul(a.t(), of_y)));
    ++ended;
    dist::destroy_process_group();
  });
  EXPECT_EQ(ended, 64);
}

TEST(SimulateTest, EachRankHasNumbersOfItsOwn) {
  std::atomic<int> sum = 0;
  simulate(5,
           [&] {
             const Worker worker = init();
             EXPECT_EQ(worker.world_size(), 5);
             EXPECT_EQ(worker.local_rank(), worker.rank() % 2);
             EXPECT_EQ(worker.local_world_size(), worker.rank() == 4 ? 1 : 2);
             EXPECT_EQ(worker.env().group_world_size, 3);
             sum += worker.rank();
           },
           {.ranks_per_node = 2});
  EXPECT_EQ(sum, 10);
}

TEST(SimulateTest, WorldsComeOneAfterAnother) {
  simulate(3, [] {
    for (int world = 0; world < 3; ++world) {
      dist::init_process_group();
      const Tensor one = ones(1);
      dist::all_reduce(one);
      EXPECT_EQ(one.item(), 3);
      dist::destroy_process_group();
    }
  });
}

TEST(SimulateTest, ARankThatThrowsEndsTheOthersAndIsNamed) {
  const auto program = [] {
    dist::init_process_group();
    if (dist::get_rank() == 2) throw Error(ErrorCode::kUsage, "rank 2 has had enough");
    dist::barrier();
  };
  const auto error = error_of([&] { simulate(4, program); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kUsage);
  EXPECT_THAT(error->summary(), HasSubstr("rank 2 of 4: rank 2 has had enough"));
  EXPECT_THROW(simulate(2, [] { throw std::out_of_range("own"); }), std::out_of_range);
}

TEST(SimulateTest, WhoWaitsForARankThatWillNotComeIsTold) {
  const auto text_of = [](const std::function<void(int turn)>& program) {
    std::atomic<int> turns = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto error = error_of([&] { simulate(3, [&] { program(turns++); }); });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    return error ? std::string(error->what()) : "no error";
  };
  EXPECT_THAT(text_of([](int turn) {
                if (turn == 1) throw Error(ErrorCode::kUsage, "had enough before init");
                dist::init_process_group();
              }),
              HasSubstr("had enough before init"));
  EXPECT_THAT(text_of([](int turn) {
                if (turn != 1) dist::init_process_group();
              }),
              HasSubstr("of 3 ended before it joined"));
  EXPECT_THAT(text_of([](int turn) {
                dist::init_process_group();
                dist::destroy_process_group();
                if (turn != 1) dist::init_process_group();
              }),
              HasSubstr("of 3 ended before it joined"));
  EXPECT_THAT(text_of([](int) {
                const Worker worker = init();
                if (worker.rank() == 1) throw Error(ErrorCode::kUsage, "had enough after init");
                worker.store()->get("what nobody sets");
              }),
              HasSubstr("had enough after init"));
}

TEST(SimulateTest, WhatCannotBeRunIsRefused) {
  EXPECT_EQ(error_of([] { simulate(0, [] {}); })->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { simulate(2, nullptr); })->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { simulate(2, [] {}, {.ranks_per_node = -1}); })->code(),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace dtrun
