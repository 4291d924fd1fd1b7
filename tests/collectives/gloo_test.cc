// The gloo backend: what it computes, and how it fails. Ranks are threads; those that die are
// processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <string>
#include <vector>

#include "dtrun/base/unique_fd.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "gloo/gloo_module.h"
#include "gloo/held_pipe_signal.h"
#include "support/flat_tensors.h"
#include "support/promptness.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"
#include "tensor/all_dtypes.h"

namespace dtrun::collectives {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tensors::DType;
using tensors::LocalTensor;
using test::flat_full;
using test::flat_ones;
using test::RankProcesses;
using test::Thrown;
using testing_support::contains;
using testing_support::error_of;

test::RankOptions gloo(Deadline::Duration timeout = seconds(60)) {
  test::RankOptions options;
  options.timeout = timeout;
  options.backend = "gloo";
  return options;
}

void run_gloo_ranks(int size, const test::RankBody& body) {
  test::run_ranks(size, gloo(), body);
}

TEST(GlooTest, ReductionsAreRightForEveryDtypeAndEveryOp) {
  run_gloo_ranks(3, [](const ProcessGroup& group) {
    EXPECT_EQ(group.backend_name(), "gloo");
    // Each rank has rank + 1, in a bool true: sum 6, product 6, min 1, max 3, avg 2, and 0b01,
    // 0b10, 0b11.
    const std::pair<ReduceOp, double> expected[] = {
        {ReduceOp::sum, 6}, {ReduceOp::avg, 2},  {ReduceOp::product, 6}, {ReduceOp::min, 1},
        {ReduceOp::max, 3}, {ReduceOp::band, 0}, {ReduceOp::bor, 3},     {ReduceOp::bxor, 0}};
    for (const DType dtype : tensors::kAllDTypes) {
      for (const auto& [op, value] : expected) {
        if (!reduce_op_supports(op, dtype)) continue;
        const bool boolean = dtype == DType::boolean;
        for (const std::int64_t count : {0, 3, 70001}) {
          const LocalTensor tensor = flat_full(count, group.rank() + 1, dtype);
          const LocalTensor at_root = tensor.clone();
          group.all_reduce(tensor, op);
          group.reduce(at_root, 1, op);
          const std::vector<double> want(static_cast<std::size_t>(count), boolean ? 1 : value);
          EXPECT_EQ(tensor.to_vector(), want) << tensors::dtype_name(dtype) << reduce_op_name(op);
          const double own = boolean ? 1 : group.rank() + 1;
          EXPECT_EQ(at_root.to_vector(),
                    group.rank() == 1 ? want : std::vector<double>(want.size(), own));
        }
      }
    }
  });
}

TEST(GlooTest, DataGoesWhereItShould) {
  for (const int size : {1, 2, 4}) {
    run_gloo_ranks(size, [size](const ProcessGroup& group) {
      const int rank = group.rank();
      const auto uneven = [](int owner, double value) {
        return flat_full(owner * 1000 + 1, value);
      };
      const LocalTensor broadcast = uneven(2, rank);
      group.broadcast(broadcast, size - 1);
      EXPECT_EQ(broadcast.to_vector(), uneven(2, size - 1).to_vector());

      std::vector<LocalTensor> gathered;
      for (int owner = 0; owner < size; ++owner) gathered.push_back(uneven(owner, -1));
      group.all_gather(gathered, uneven(rank, rank));
      for (int owner = 0; owner < size; ++owner)
        EXPECT_EQ(gathered[static_cast<std::size_t>(owner)].to_vector(),
                  uneven(owner, owner).to_vector());

      for (const LocalTensor& tensor : gathered) tensor.fill_(-1);
      group.gather(uneven(rank, rank), rank == 0 ? gathered : std::vector<LocalTensor>(), 0);
      EXPECT_EQ(gathered.back().to_vector(),
                uneven(size - 1, rank == 0 ? size - 1 : -1).to_vector());

      const LocalTensor part = uneven(rank, -1);
      for (const LocalTensor& tensor : gathered) tensor.fill_(5);
      group.scatter(part, rank == 0 ? gathered : std::vector<LocalTensor>(), 0);
      EXPECT_EQ(part.to_vector(), uneven(rank, 5).to_vector());

      std::vector<LocalTensor> inputs;
      for (int owner = 0; owner < size; ++owner) inputs.push_back(uneven(owner, rank + owner));
      group.reduce_scatter(part, inputs, ReduceOp::max);
      EXPECT_EQ(part.to_vector(), uneven(rank, size - 1 + rank).to_vector());
      group.reduce_scatter(part, inputs, ReduceOp::avg);
      EXPECT_EQ(part.to_vector(), uneven(rank, (size - 1) / 2.0 + rank).to_vector());

      std::vector<LocalTensor> to_each;
      std::vector<LocalTensor> from_each;
      for (int peer = 0; peer < size; ++peer) {
        to_each.push_back(flat_full(peer, 10 * rank + peer));
        from_each.push_back(flat_full(rank, -1));
      }
      group.all_to_all(from_each, to_each);
      for (int peer = 0; peer < size; ++peer)
        EXPECT_EQ(from_each[static_cast<std::size_t>(peer)].to_vector(),
                  flat_full(rank, 10 * peer + rank).to_vector());
      group.barrier();
    });
  }
}

TEST(GlooTest, AsynchronousCallsOverlapAndKeepTheirOrder) {
  run_gloo_ranks(3, [](const ProcessGroup& group) {
    std::vector<LocalTensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(flat_full(100 * i, group.rank()));
      works.push_back(group.all_reduce(tensors.back(), ReduceOp::sum, {.async = true}));
    }
    group.barrier();
    for (std::size_t i = 0; i < works.size(); ++i) {
      EXPECT_TRUE(works[i].is_completed());
      works[i].wait();
      EXPECT_EQ(works[i].exception(), nullptr);
      EXPECT_EQ(tensors[i].to_vector(), std::vector<double>(100 * i, 3));
    }
  });
}

TEST(GlooTest, MessagesAreMatchedByTagAndSource) {
  run_gloo_ranks(3, [](const ProcessGroup& group) {
    if (group.rank() == 0) {
      // Posted in another order than they are sent in; the second of one tag comes second.
      const std::vector<LocalTensor> got = {flat_ones(3), flat_ones(100000), flat_ones(3),
                                            flat_ones(1)};
      const Work last = group.irecv(got[0], 1, 7);
      const Work first = group.irecv(got[1], 1, 5);
      const Work second = group.irecv(got[2], 1, 5);
      EXPECT_EQ(group.recv(got[3], -1, 9), 2);
      for (const Work& work : {second, first, last}) work.wait();
      EXPECT_EQ(last.source_rank(), 1);
      EXPECT_EQ(got[0].to_vector()[0], 70);
      EXPECT_EQ(got[1].to_vector()[99999], 50);
      EXPECT_EQ(got[2].to_vector()[0], 51);
    } else if (group.rank() == 1) {
      group.send(flat_full(100000, 50), 0, 5);
      group.send(flat_full(3, 51), 0, 5);
      group.send(flat_full(3, 70), 0, 7);
    } else {
      group.isend(flat_full(1, 2), 0, 9).wait();
    }
    const LocalTensor nothing = flat_ones(0);
    const Work from_left = group.irecv(nothing, (group.rank() + 2) % 3);
    group.send(flat_ones(0), (group.rank() + 1) % 3);
    from_left.wait();
  });
}

TEST(GlooTest, SubgroupsWorkBesideTheirParent) {
  run_gloo_ranks(4, [](const ProcessGroup& world) {
    const ProcessGroup half = world.split({{3, 1}, {0}}, "odd");
    EXPECT_EQ(half.valid(), world.rank() != 2);
    if (world.rank() % 2 == 1) {
      EXPECT_EQ(half.rank(), world.rank() == 3 ? 0 : 1);
      const LocalTensor tensor = flat_full(5, world.rank());
      half.all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector(), std::vector<double>(5, 4));
    }
    const LocalTensor tensor = flat_ones(5);
    world.all_reduce(tensor);
    EXPECT_EQ(tensor.to_vector()[0], 4);
  });
}

void expect_all(const std::vector<std::optional<Thrown>>& thrown, ErrorCode code,
                const std::string& text) {
  for (const std::optional<Thrown>& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, code) << mine->text;
    EXPECT_TRUE(contains(mine->text, text)) << mine->text;
  }
}

TEST(GlooTest, DisagreementIsToldToAllWithBothSides) {
  const std::pair<std::function<void(const ProcessGroup&)>, std::string> odd_calls[] = {
      {[](const ProcessGroup& g) { g.all_reduce(flat_ones(5)); }, "the element counts"},
      {[](const ProcessGroup& g) { g.all_reduce(flat_ones(4), ReduceOp::max); }, "the reduce op"},
      {[](const ProcessGroup& g) { g.broadcast(flat_ones(4), 0); }, "the operation"},
      {[](const ProcessGroup& g) { g.barrier(); }, "the operation"},
  };
  for (const auto& [odd_call, text] : odd_calls) {
    const auto start = Deadline::Clock::now();
    const auto thrown = test::run_failing_ranks(3, gloo(), [&](const ProcessGroup& group) {
      if (group.rank() == 2) return odd_call(group);
      group.all_reduce(flat_ones(4));
    });
    EXPECT_LT(Deadline::Clock::now() - start, testing_support::kPatience);
    expect_all(thrown, ErrorCode::kDisagreement, "the calls differ in " + text);
    expect_all(thrown, ErrorCode::kDisagreement, "rank 2 called");
  }
}

TEST(GlooTest, SizesThatOnlyTwoRanksDisagreeAboutFailAll) {
  const auto thrown = test::run_failing_ranks(3, gloo(), [](const ProcessGroup& group) {
    const std::vector<LocalTensor> outputs = {flat_ones(2), flat_ones(2), flat_ones(2)};
    group.gather(flat_ones(group.rank() == 2 ? 3 : 2),
                 group.rank() == 0 ? outputs : std::vector<LocalTensor>(), 0);
    group.barrier();
  });
  expect_all(thrown, ErrorCode::kDisagreement, "rank 2 sent 12 bytes, rank 0 expected 8");
}

TEST(GlooTest, AMessageThatIsNotWhatItsReceiverAsksForFailsBoth) {
  const auto thrown = test::run_failing_ranks(2, gloo(), [](const ProcessGroup& group) {
    if (group.rank() == 0) group.send(flat_ones(4), 1);
    if (group.rank() == 1) group.recv(flat_ones(5), 0);
  });
  expect_all(thrown, ErrorCode::kDisagreement, "the element counts");
}

TEST(GlooTest, ACallThatOneRankRejectsFailsOnAll) {
  const auto thrown = test::run_failing_ranks(3, gloo(), [](const ProcessGroup& group) {
    if (group.rank() == 1) return void(group.all_gather({flat_ones(1)}, flat_ones(1)));
    group.all_gather({flat_ones(1), flat_ones(1), flat_ones(1)}, flat_ones(1));
  });
  ASSERT_TRUE(thrown[0] && thrown[1] && thrown[2]);
  EXPECT_EQ(thrown[1]->code, ErrorCode::kInvalidArgument);
  for (const std::size_t peer : {0, 2}) {
    EXPECT_EQ(thrown[peer]->code, ErrorCode::kPeerFailed) << thrown[peer]->text;
    EXPECT_TRUE(contains(thrown[peer]->text, "rejected its all_gather #1")) << thrown[peer]->text;
  }
}

TEST(GlooTest, WhoeverDoesNotComeIsNamedByAll) {
  const auto thrown =
      test::run_failing_ranks(3, gloo(milliseconds(400)), [](const ProcessGroup& group) {
        if (group.rank() == 1) {
          // Late on purpose: until the others have given up.
          const std::optional<Error> error =
              error_of([&] { group.recv(flat_ones(1), -1, 3, {.timeout = seconds(60)}); });
          throw *error;
        }
        group.all_reduce(flat_ones(3));
      });
  expect_all(thrown, ErrorCode::kTimeout, "all_reduce #1 (f32 x 3, sum) at gloo_test.cc:");
  expect_all(thrown, ErrorCode::kTimeout, "of group 'world' for rank 1");
}

TEST(GlooTest, AWaitsOwnDeadlineLeavesTheOperationGoing) {
  run_gloo_ranks(2, [](const ProcessGroup& group) {
    const LocalTensor tensor = flat_ones(1);
    if (group.rank() == 0) {
      const Work work = group.irecv(tensor, 1);
      const std::optional<Error> error =
          error_of([&] { work.wait(Deadline::after(milliseconds(5))); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kTimeout);
      EXPECT_FALSE(work.is_completed());
      group.barrier();
      work.wait();
      EXPECT_EQ(tensor.item(), 3);
    } else {
      group.barrier();
      group.send(flat_full(1, 3), 0);
    }
  });
}

TEST(GlooTest, WhoeverHasLeftIsNamed) {
  for (const bool any_source : {false, true}) {
    const auto thrown = test::run_failing_ranks(2, gloo(), [&](const ProcessGroup& group) {
      if (group.rank() == 1) return group.shutdown();
      if (any_source) group.recv(flat_ones(1), -1);
      group.barrier();
    });
    EXPECT_FALSE(thrown[1].has_value());
    ASSERT_TRUE(thrown[0].has_value());
    EXPECT_EQ(thrown[0]->code, ErrorCode::kPeerFailed) << thrown[0]->text;
    EXPECT_TRUE(contains(thrown[0]->text, "has left group 'world'")) << thrown[0]->text;
  }
}

TEST(GlooTest, AFailedOrLeftGroupRefusesEveryCall) {
  run_gloo_ranks(2, [](const ProcessGroup& group) {
    group.shutdown();
    group.shutdown();
    const std::optional<Error> error = error_of([&] { group.barrier(); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kAborted);
    EXPECT_TRUE(error_of([&] { group.isend(flat_ones(1), 1 - group.rank()); }).has_value());
  });
}

TEST(GlooTest, MessagesToOneselfAreRefusedAndHarmNobody) {
  run_gloo_ranks(2, [](const ProcessGroup& group) {
    const std::optional<Error> error = error_of([&] { group.send(flat_ones(1), group.rank()); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    group.barrier();
  });
}

TEST(GlooTest, AnAddressOfAnotherMachineIsRefused) {
  GroupOptions options = test::group_options(rendezvous::make_hash_store(), 0, 1, gloo());
  options.address = "192.0.2.1";
  const std::optional<Error> error = error_of([&] { ProcessGroup::create(options); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  EXPECT_TRUE(contains(error->what(), "gloo cannot listen on 192.0.2.1")) << error->what();
}

void expect_named_death(RankProcesses& ranks, int dead, const std::vector<int>& survivors) {
  EXPECT_EQ(ranks.wait(dead).status, SIGKILL);
  const auto death = Deadline::Clock::now();
  for (const int rank : survivors) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    // Not by SIGPIPE: the survivor says what happened.
    EXPECT_EQ(ended.status, 0) << "rank " << rank;
    ASSERT_TRUE(ended.thrown.has_value());
    EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed) << ended.thrown->text;
    EXPECT_TRUE(contains(ended.thrown->text, "rank " + std::to_string(dead) + " (pid "))
        << ended.thrown->text;
  }
  EXPECT_LT(Deadline::Clock::now() - death, testing_support::kPatience);
}

TEST(GlooTest, AKilledRankIsNamedByEverySurvivor) {
  for (const std::int64_t count : {1, 300000}) {
    RankProcesses ranks(4, gloo(), RankProcesses::Guard::none, [count](const ProcessGroup& group) {
      const LocalTensor tensor = flat_ones(count);
      for (int i = 0; i < 5; ++i) group.all_reduce(tensor);
      if (group.rank() == 2) ::raise(SIGKILL);
      for (;;) group.all_reduce(tensor);
    });
    expect_named_death(ranks, 2, {0, 1, 3});
  }
}

TEST(GlooTest, AReceiveFromAnyRankLearnsOfADeathToo) {
  RankProcesses ranks(3, gloo(), RankProcesses::Guard::job_page, [](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) ::raise(SIGKILL);
    group.recv(flat_ones(1), -1);
  });
  expect_named_death(ranks, 1, {0, 2});
  EXPECT_EQ(ranks.job_page().slot(0).victim_of.load(), 1);
  EXPECT_EQ(std::string(ranks.job_page().slot(0).ring[1].name), "recv");
}

TEST(HeldPipeSignalTest, AWriteToNobodyIsAnErrorAndLeavesNoTrace) {
  base::Pipe pipe = base::make_pipe();
  pipe.read_end = base::UniqueFd();
  {
    const gloo_backend::HeldPipeSignal held;
    EXPECT_EQ(::write(pipe.write_end.get(), "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  sigset_t mask;
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
  EXPECT_EQ(::sigismember(&mask, SIGPIPE), 0);
  ASSERT_EQ(::sigpending(&mask), 0);
  EXPECT_EQ(::sigismember(&mask, SIGPIPE), 0);
}

TEST(GlooTest, WithoutItsModuleTheErrorSaysWhatToInstall) {
  const auto absent = error_of([] { gloo_backend::open_gloo_module({"libnone-such.so"}); });
  ASSERT_TRUE(absent);
  EXPECT_EQ(absent->code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(absent->remedy(), "install libgloo"));
  const auto other = error_of([] { gloo_backend::open_gloo_module({"libc.so.6"}); });
  ASSERT_TRUE(other);
  EXPECT_TRUE(contains(other->why(), "of another version"));
}

TEST(GlooTest, ItHasNoSharedMemoryForTensorsAndSaysSo) {
  run_gloo_ranks(2, [](const ProcessGroup& group) {
    const auto error = error_of([&] { group.shared_memory(); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(contains(error->what(), "group 'world' has no shared memory for tensors"));
    EXPECT_TRUE(contains(error->remedy(), "make the group over the backend cpu"));
  });
}

TEST(GlooTest, HalvesWhoseSumIsNoHalfHaveAMean) {
  run_gloo_ranks(3, [](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::full({70}, 40000, {.dtype = DType::f16});
    group.all_reduce(tensor, ReduceOp::avg);
    EXPECT_EQ(tensor.to_vector(), std::vector<double>(70, 40000));
    group.reduce(tensor, 1, ReduceOp::avg);
    EXPECT_EQ(tensor.to_vector(), std::vector<double>(70, 40000));
  });
}

TEST(GlooTest, AForkedChildMayNeitherUseTheGroupNorHarmIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "another thread may hold a lock of the sanitizer's at the fork: the child then "
                  "waits for ever";
#endif
  RankProcesses ranks(2, gloo(), RankProcesses::Guard::none, [](const ProcessGroup& group) {
    group.all_reduce(flat_ones(3), ReduceOp::sum, {.async = true}).wait();
    const pid_t child = ::fork();
    if (child == 0) {
      const auto refused = error_of([&] { group.barrier(); });
      group.shutdown();
      { const ProcessGroup copy = group; }
      ::_exit(refused && refused->code() == ErrorCode::kUsage ? 7 : 8);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, W_EXITCODE(7, 0));
    group.barrier();
  });
  for (const int rank : {0, 1}) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    EXPECT_EQ(ended.status, 0);
    EXPECT_FALSE(ended.thrown.has_value()) << ended.thrown->text;
  }
}

}  // namespace
}  // namespace dtrun::collectives
