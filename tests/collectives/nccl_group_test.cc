// Timeouts, abort and shrink of ProcessGroups whose backend is nccl, over the simulation of NCCL
// with tensors in host memory.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/nccl_job.h"
#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/collectives/register_backend.h"
#include "dtrun/tensor/ops.h"
#include "support/promptness.h"
#include "support/rank_threads.h"

namespace dtrun::test {
namespace {

using collectives::GroupOptions;
using collectives::ProcessGroup;
using collectives::Work;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tensors::LocalTensor;

/// Over whose simulation groups of the backend "nccl-simulated" are made.
NcclJob* job_of_groups = nullptr;

class NcclGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    job_.host_wait = HostWait::yes;
    job_.tensors_of = tensors::DeviceType::cpu;
    job_of_groups = &job_;
    if (collectives::is_backend_available("nccl-simulated")) return;
    collectives::register_backend("nccl-simulated", [](const GroupOptions& options) {
      NcclGroupSpec spec;
      spec.name = options.name;
      spec.rank = options.rank;
      spec.global_ranks = options.global_ranks;
      spec.timeout = options.timeout;
      return job_of_groups->backend(std::move(spec), options.store);
    });
  }
  void TearDown() override {
    for (const std::string& violation : job_.simulation.violations()) ADD_FAILURE() << violation;
    job_of_groups = nullptr;
  }

  NcclJob job_{3};
  const RankOptions options_{.backend = "nccl-simulated"};
};

LocalTensor one() {
  return tensors::ones({1});
}

TEST_F(NcclGroupTest, ItsTimeoutCanBeChangedAndGoesToItsSplits) {
  const auto begin = Deadline::Clock::now();
  const auto thrown = run_failing_ranks(3, options_, [](const ProcessGroup& group) {
    group.all_reduce(one());
    group.set_timeout(milliseconds(500));
    const ProcessGroup all = group.split({{0, 1, 2}}, "all");
    EXPECT_EQ(all.timeout(), milliseconds(500));
    all.set_timeout(seconds(30));
    EXPECT_EQ(group.timeout(), milliseconds(500));
    // A call's own goes first: it ends when the others have given up.
    if (group.rank() == 1) group.recv(one(), 0, 0, {.timeout = seconds(60)});
    group.all_reduce(one());
  });
  EXPECT_LT(Deadline::Clock::now() - begin, testing_support::kPatience);
  for (const std::size_t rank : {0, 2}) {
    ASSERT_TRUE(thrown[rank].has_value());
    EXPECT_EQ(thrown[rank]->code, ErrorCode::kTimeout) << thrown[rank]->text;
    EXPECT_TRUE(contains(thrown[rank]->text, "in all_reduce #3")) << thrown[rank]->text;
  }
  ASSERT_TRUE(thrown[1].has_value());
  EXPECT_TRUE(contains(thrown[1]->text, "failed in group 'world'")) << thrown[1]->text;
}

void expect_aborted(const std::optional<Error>& error, const std::string& text) {
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kAborted) << error->what();
  EXPECT_EQ(error->summary(), text);
}

TEST_F(NcclGroupTest, AnAbortEndsWhatIsInFlightEverywhereAndEveryLaterCall) {
  const std::string text = "rank 1 has aborted group 'world': the loss is nan";
  const auto begin = Deadline::Clock::now();
  run_ranks(3, options_, [&](const ProcessGroup& group) {
    group.all_reduce(one());
    if (group.rank() == 1) {
      group.abort("the loss is nan");
      group.abort("a second reason");
    } else {
      const Work in_flight = group.all_reduce(one(), collectives::ReduceOp::sum, {.async = true});
      expect_aborted(error_of([&] { in_flight.wait(); }), text);
    }
    expect_aborted(error_of([&] { group.all_reduce(one()); }), text);
    expect_aborted(error_of([&] { group.barrier(); }), text);
  });
  EXPECT_LT(Deadline::Clock::now() - begin, testing_support::kPatience);
}

TEST_F(NcclGroupTest, ThoseThatAreLeftOfAnAbortedGroupGoOn) {
  run_ranks(3, options_, [&](const ProcessGroup& group) {
    group.all_reduce(one());
    if (group.rank() == 1) return group.abort("try again");
    expect_aborted(error_of([&] { group.all_reduce(one()); }),
                   "rank 1 has aborted group 'world': try again");
    const ProcessGroup rest = group.shrink({.excluded_ranks = {1}});
    EXPECT_EQ(rest.backend_name(), group.backend_name());
    EXPECT_EQ(rest.global_ranks(), (std::vector<int>{0, 2}));
    for (const std::int64_t count : {1, 100000}) {
      const LocalTensor sum = tensors::ones({count});
      rest.all_reduce(sum);
      EXPECT_EQ(sum.to_vector().back(), 2);
    }
  });
}

}  // namespace
}  // namespace dtrun::test
