// Collectives by posts and stages: around every size at which the way changes, around the end of
// the turns' numbers, mixed with messages and asynchronous calls, and with ranks that disagree,
// die or do not come.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <string>

#include "cpu/post.h"
#include "cpu/shared_plan.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/tensor/ops.h"
#include "support/one_in.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives::cpu {
namespace {

using base::ErrorCode;
using tensors::DType;
using tensors::LocalTensor;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::contains;
using testing_support::error_of;
using Values = std::vector<double>;

LocalTensor ramp(std::int64_t count, int rank) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((i * 3 + static_cast<std::size_t>(rank) * 7) % 11);
  return tensors::tensor_from(values, {count}, DType::f32);
}

/// What all ranks' ramps add up to.
Values sum(std::int64_t count, int size) {
  Values total(static_cast<std::size_t>(count), 0);
  for (int rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < total.size(); ++i)
      total[i] += static_cast<double>((i * 3 + static_cast<std::size_t>(rank) * 7) % 11);
  return total;
}

/// Elements of f32 around each size at which a way begins or a stage is full.
std::vector<std::int64_t> counts_around_thresholds(int size) {
  const auto stage = static_cast<std::int64_t>(area_bytes(static_cast<std::size_t>(size)) / 4);
  std::vector<std::int64_t> counts = {0, 1, 2, 3};
  unsigned number = 0;
  for (const std::int64_t edge :
       {static_cast<std::int64_t>(Post::kInline / 4),
        static_cast<std::int64_t>(kPostPieceBytes / 4),
        2 * static_cast<std::int64_t>(kPostPieceBytes / 4),
        static_cast<std::int64_t>(most_post_bytes(static_cast<std::size_t>(size)) / 4),
        static_cast<std::int64_t>(kDefaultLimits.all_posts_bytes / 4) / size,
        stage / (size + 1) / 16 * 16 * size, stage,
        stage + static_cast<std::int64_t>(kStagePieceBytes / 4), 2 * stage, 4 * stage,
        // Parts of this length are those of the last rank.
        4 * stage * size / (size - 1)})
    for (const std::int64_t offset : {-1, 0, 1})
      if (number++ % testing_support::one_in(2) == 0) counts.push_back(edge + offset);
  return counts;
}

class DirectTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, DirectTest, testing::Values(2, 3, 5));

TEST_P(DirectTest, ReductionsAreRightAroundEveryThreshold) {
  const int size = GetParam();
  run_ranks(size, [size](const ProcessGroup& group) {
    for (const std::int64_t count : counts_around_thresholds(size)) {
      const Values expected = sum(count, size);
      const LocalTensor all = ramp(count, group.rank());
      group.all_reduce(all);
      EXPECT_EQ(all.to_vector(), expected) << count;
      const LocalTensor one = ramp(count, group.rank());
      group.reduce(one, size - 1);
      EXPECT_EQ(one.to_vector(),
                group.rank() == size - 1 ? expected : ramp(count, group.rank()).to_vector());
    }
  });
}

// Their steps fill the halves of the stages, and begin anew there, each elsewhere.
TEST_P(DirectTest, LongCallsOfAllLengthsFollowEachOther) {
  const int size = GetParam();
  run_ranks(size, [size](const ProcessGroup& group) {
    std::mt19937 random(3);
    for (unsigned call = 0; call < 160 / testing_support::one_in(2); ++call) {
      const std::int64_t count = 33000 + static_cast<std::int64_t>(random() % 300000);
      const int root = static_cast<int>(random() % static_cast<unsigned>(size));
      const Values expected = sum(count, size);
      const LocalTensor tensor = ramp(count, group.rank());
      switch (call % 4) {
        case 0:
          group.all_reduce(tensor);
          EXPECT_EQ(tensor.to_vector(), expected) << call;
          break;
        case 1:
          group.broadcast(tensor, root);
          EXPECT_EQ(tensor.to_vector(), ramp(count, root).to_vector()) << call;
          break;
        case 2:
          group.reduce(tensor, root);
          EXPECT_EQ(tensor.to_vector(),
                    group.rank() == root ? expected : ramp(count, group.rank()).to_vector())
              << call;
          break;
        default:
          std::vector<LocalTensor> parts;
          for (int rank = 0; rank < size; ++rank) parts.push_back(tensors::zeros({count}));
          group.all_gather(parts, tensor);
          for (int rank = 0; rank < size; ++rank)
            EXPECT_EQ(parts[static_cast<std::size_t>(rank)].to_vector(),
                      ramp(count, rank).to_vector())
                << call;
      }
    }
  });
}

TEST_P(DirectTest, CopiesAreRightAroundEveryThreshold) {
  const int size = GetParam();
  run_ranks(size, [size](const ProcessGroup& group) {
    for (const std::int64_t count : counts_around_thresholds(size)) {
      for (int root = 0; root < 2; ++root) {
        const LocalTensor tensor = ramp(count, group.rank());
        group.broadcast(tensor, root);
        EXPECT_EQ(tensor.to_vector(), ramp(count, root).to_vector()) << count;
      }
      std::vector<LocalTensor> gathered;
      std::vector<LocalTensor> pieces;
      // Pieces of different length, among them an empty one.
      for (int rank = 0; rank < size; ++rank) {
        gathered.push_back(tensors::zeros({count * rank / size}));
        pieces.push_back(ramp(count * rank / size, group.rank()));
      }
      group.all_gather(gathered, ramp(count * group.rank() / size, group.rank()));
      for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(gathered[static_cast<std::size_t>(rank)].to_vector(),
                  ramp(count * rank / size, rank).to_vector());
      const LocalTensor mine = tensors::zeros({count * group.rank() / size});
      group.reduce_scatter(mine, pieces);
      EXPECT_EQ(mine.to_vector(), sum(count * group.rank() / size, size));
    }
  });
}

TEST_P(DirectTest, ElementsOfEverySizeLieAligned) {
  run_ranks(GetParam(), [](const ProcessGroup& group) {
    for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64, DType::i64})
      for (const std::int64_t count : {1, 2, 3, 4, 100}) {
        const LocalTensor tensor = tensors::ones({count}, {.dtype = dtype});
        group.all_reduce(tensor);
        EXPECT_EQ(tensor.to_vector(), Values(static_cast<std::size_t>(count), group.size()));
      }
  });
}

TEST_P(DirectTest, TurnsGoAroundTheEndOfTheirNumbers) {
  // Turns start 256 before 2^32; steps of stages, too.
  static_assert(static_cast<Turn>(kFirstTurn + 300) < kFirstTurn);
  const int size = GetParam();
  run_ranks(size, [size](const ProcessGroup& group) {
    for (int call = 0; call < 600; ++call) {
      const std::int64_t count = call % 3 == 0 ? 100000 : 5;
      const LocalTensor tensor = tensors::full({count}, call + group.rank());
      group.all_reduce(tensor);
      EXPECT_EQ(tensors::sum(tensor).item(),
                static_cast<double>(count) * (call * size + size * (size - 1) / 2));
    }
  });
}

TEST_P(DirectTest, EveryKindOfCallMixes) {
  const int size = GetParam();
  run_ranks(size, [size](const ProcessGroup& group) {
    const ProcessGroup twin = group.split({[size] {
                                            std::vector<int> all(static_cast<std::size_t>(size));
                                            std::iota(all.begin(), all.end(), 0);
                                            return all;
                                          }()},
                                          "twin");
    for (int call = 0; call < 100; ++call) {
      const ProcessGroup& now = call % 2 == 0 ? group : twin;
      const LocalTensor large = tensors::ones({70000});
      const LocalTensor small = tensors::ones({3});
      const Work first = now.all_reduce(large, ReduceOp::sum, {.async = true});
      const Work second = now.all_reduce(small, ReduceOp::sum, {.async = call % 3 == 0});
      const LocalTensor from_root = tensors::full({4}, group.rank());
      now.broadcast(from_root, call % size);
      // In a scatter no rank waits for all.
      const std::vector<LocalTensor> pieces(static_cast<std::size_t>(size),
                                            tensors::full({2}, call));
      const LocalTensor piece = tensors::zeros({2});
      now.scatter(piece, group.rank() == 0 ? pieces : std::vector<LocalTensor>(), 0);
      first.wait();
      second.wait();
      EXPECT_EQ(tensors::sum(large).item(), 70000.0 * size);
      EXPECT_EQ(small.to_vector(), Values(3, size));
      EXPECT_EQ(from_root.to_vector(), Values(4, call % size));
      EXPECT_EQ(piece.to_vector(), Values(2, call));
    }
  });
}

/// What rank `from` has for rank `to`: of different lengths, some of which a ring cannot hold.
LocalTensor piece(std::int64_t count, int from, int to, int size) {
  return ramp(count * ((from + 2 * to) % (size + 1)) / size, from);
}

TEST_P(DirectTest, PiecesOfAnyLengthComeInAnyOrder) {
  const int size = GetParam();
  run_ranks(size, [size](const ProcessGroup& group) {
    const int me = group.rank();
    const auto pieces = [&](std::int64_t count, bool to_me) {
      std::vector<LocalTensor> list;
      for (int peer = 0; peer < size; ++peer)
        list.push_back(to_me ? piece(count, peer, me, size) : piece(count, me, peer, size));
      return list;
    };
    const auto zeros_like = [](std::vector<LocalTensor> list) {
      for (LocalTensor& tensor : list) tensor = tensors::zeros(tensor.shape());
      return list;
    };
    const auto expect = [](const std::vector<LocalTensor>& got,
                           const std::vector<LocalTensor>& wanted) {
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].to_vector(), wanted[i].to_vector());
    };
    const std::vector<LocalTensor> none;
    int root = 0;
    for (const std::int64_t count : {1, 3, 1000, 1, 9000, 32768, 60000, 2, 70000, 0, 300000, 5}) {
      root = (root + 1) % size;
      const CallOptions options{.async = count == 2};
      const std::vector<LocalTensor> exchanged = zeros_like(pieces(count, true));
      const std::vector<LocalTensor> gathered = zeros_like(pieces(count, true));
      const LocalTensor mine = tensors::zeros(piece(count, root, me, size).shape());
      for (Work& work : std::vector<Work>{
               group.all_to_all(exchanged, pieces(count, false), options),
               group.gather(piece(count, me, root, size), me == root ? gathered : none, root,
                            options),
               group.scatter(mine, me == root ? pieces(count, false) : none, root, options)})
        work.wait();
      expect(exchanged, pieces(count, true));
      if (me == root) expect(gathered, pieces(count, true));
      EXPECT_EQ(mine.to_vector(), piece(count, root, me, size).to_vector());
    }
  });
}

TEST(DirectShortTest, MessagesKeepTheirTagsAndOrderHoweverTheyGo) {
  run_ranks(3, [](const ProcessGroup& group) {
    const int right = (group.rank() + 1) % 3, left = (group.rank() + 2) % 3;
    const auto full = [](std::int64_t count, int value) { return tensors::full({count}, value); };
    for (int call = 0; call < 200; ++call) {
      // A ring holds less than 64 Ki elements and a header.
      const std::int64_t count = call % 40 == 7 ? (64 << 10) - call % 3 * 20 : call % 4;
      const LocalTensor incoming = tensors::zeros({count});
      using Kind = P2POp::Kind;
      const std::vector<P2POp> batch = {{Kind::receive, incoming, left, 5},
                                        {Kind::send, full(count, call), right, 5}};
      const std::vector<Work> works = group.batch_isend_irecv(batch);
      for (const Work& work : works) work.wait();
      EXPECT_TRUE(works[0]
                      .then([](const std::exception_ptr& error) { EXPECT_FALSE(error); })
                      .elapsed()
                      .has_value());
      EXPECT_EQ(works[0].source_rank(), left);
      EXPECT_EQ(incoming.to_vector(), Values(static_cast<std::size_t>(count), call));
      if (group.rank() == 2) continue;
      // Tags that are asked for in another order, and a receive from anybody.
      const LocalTensor first = tensors::zeros({2}), second = tensors::zeros({2});
      if (group.rank() == 0) {
        group.send(full(2, call), 1, 1);
        group.send(full(2, call + 1), 1, 2);
        EXPECT_EQ(group.recv(first, call % 2 == 0 ? 1 : -1, 1), 1);
        EXPECT_EQ(first.to_vector(), Values(2, call + 2));
      } else {
        EXPECT_EQ(group.recv(second, 0, call % 3 == 0 ? 1 : 2), 0);
        EXPECT_EQ(group.recv(first, 0, call % 3 == 0 ? 2 : 1), 0);
        EXPECT_EQ(first.to_vector(), Values(2, call % 3 == 0 ? call + 1 : call));
        group.send(full(2, call + 2), 0, 1);
      }
    }
    group.monitored_barrier();
  });
}

// What a burst carries, what rings hold, and from where on messages are lent.
TEST(DirectExchangeTest, MessagesOfLengthsAroundTheRingsComeWhole) {
  for (const int size : {2, 3, 5})
    run_ranks(size, [size](const ProcessGroup& group) {
      const int right = (group.rank() + 1) % size, left = (group.rank() + size - 1) % size;
      for (int turn = 0; turn < 2; ++turn)
        for (const std::int64_t bytes : {128 << 10, 256 << 10, 512 << 10, 1 << 20})
          for (const std::int64_t change : {-30000, -23, -22, -1, 0, 1, 30000}) {
            const std::int64_t count = bytes / 4 + change;
            const LocalTensor sent = ramp(count, group.rank() + turn);
            const LocalTensor got = tensors::zeros({count});
            for (const Work& work : group.batch_isend_irecv(
                     {{P2POp::Kind::send, sent, right}, {P2POp::Kind::receive, got, left}}))
              work.wait();
            EXPECT_TRUE(equal(got, ramp(count, left + turn))) << count;
          }
    });
}

TEST(DirectShortTest, ARootThatIsFarBehindGetsAllInOrder) {
  constexpr int kAhead = static_cast<int>(cpu::kAhead);
  run_ranks(3, [](const ProcessGroup& group) {
    const auto gather = [&](int call) {
      std::vector<LocalTensor> all;
      for (int rank = 0; rank < 3; ++rank) all.push_back(tensors::zeros({2}));
      const bool is_root = group.rank() == 0;
      group.gather(tensors::full({2}, call * 3 + group.rank()),
                   is_root ? all : std::vector<LocalTensor>(), 0);
      for (int rank = 0; is_root && rank < 3; ++rank)
        ASSERT_EQ(all[static_cast<std::size_t>(rank)].to_vector(), Values(2, call * 3 + rank));
    };
    const LocalTensor word = tensors::ones({1});
    for (int source = 1; group.rank() == 0 && source < 3; ++source) group.recv(word, source);
    for (int call = 0; call < kAhead; ++call) gather(call);
    if (group.rank() != 0) group.send(word, 0);
    for (int call = kAhead; call < 100 * kAhead; ++call) gather(call);
    group.barrier();
  });
}

std::mutex lines_mutex;
std::vector<std::string> lines;

TEST(DirectLogTest, EachRankSaysWhichWayACollectiveGoes) {
  lines.clear();
  base::log::set_levels("+collectives");
  base::log::set_writer([](const base::log::Line& line) {
    const std::scoped_lock lock(lines_mutex);
    lines.emplace_back(line.message);
  });
  run_ranks(2, [](const ProcessGroup& group) {
    group.all_reduce(tensors::ones({4}));
    group.all_reduce(tensors::ones({100000}));
    for (int call = 0; call < 2; ++call)
      group.gather(tensors::ones({4}),
                   group.rank() == 0
                       ? std::vector<LocalTensor>{tensors::ones({4}), tensors::ones({4})}
                       : std::vector<LocalTensor>(),
                   0);
  });
  base::log::set_writer(nullptr);
  base::log::set_levels("");
  const auto said = [](const std::string& call, const std::string& way) {
    return std::ranges::count_if(lines, [&](const std::string& line) {
      return contains(line, "group 'world': " + call) && contains(line, " goes by " + way + ": ");
    });
  };
  EXPECT_EQ(said("all_reduce #1 (f32 x 4, sum) at direct_test.cc:", "posts"), 2);
  EXPECT_EQ(said("all_reduce #2 (f32 x 100000, sum)", "stages"), 2);
  EXPECT_EQ(said("gather #3", "parcels"), 2);
  EXPECT_EQ(said("gather #4", "parcels"), 2);
}

TEST(DirectDisagreementTest, CallsInWhichNobodyWaitedAreComparedLater) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    // The root's scatter and the other rank's gather need nobody; the barriers that follow agree.
    if (group.rank() == 0) {
      group.scatter(tensors::ones({2}), {tensors::ones({2}), tensors::ones({2})}, 0);
    } else {
      group.gather(tensors::ones({2}), {}, 0);
    }
    group.barrier();
    group.barrier();
  });
  for (const auto& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kDisagreement) << mine->text;
    EXPECT_NE(mine->text.find("rank 0 called scatter #1"), std::string::npos) << mine->text;
    EXPECT_NE(mine->text.find("rank 1 called gather #1"), std::string::npos) << mine->text;
  }
}

TEST(DirectFailureTest, AGroupThatHasFailedTakesNoMoreMemory) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    if (group.rank() == 0) group.broadcast(LocalTensor(), 0);
    // Each try would take more than 32 KiB of the heap's 2 GiB.
    for (int attempt = 0; attempt < 80000; ++attempt) {
      try {
        group.split({{0, 1}}, "never");
      } catch (const base::Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kPeerFailed) << error.what();
      }
    }
  });
  EXPECT_TRUE(thrown[0].has_value());
}

/// Takes this process's heaps the memory that they could still get.
void spoil_heaps() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("dtrun-heap") == std::string::npos) continue;
    EXPECT_GE(::dup2(nothing, std::stoi(entry.path().filename())), 0);
  }
}

TEST(DirectFailureTest, ARankThatGetsNoMemoryIsNamed) {
  test::RankProcesses ranks(2, {}, test::RankProcesses::Guard::none, [](const ProcessGroup& group) {
    if (group.rank() == 1) spoil_heaps();
    group.all_reduce(tensors::ones({100000}));
  });
  const auto first = ranks.wait(0);
  const auto second = ranks.wait(1);
  ASSERT_TRUE(first.thrown && second.thrown);
  EXPECT_EQ(second.thrown->code, ErrorCode::kSystem) << second.thrown->text;
  EXPECT_EQ(first.thrown->code, ErrorCode::kPeerFailed) << first.thrown->text;
  EXPECT_TRUE(first.thrown->text.starts_with("rank 1 ")) << first.thrown->text;
  EXPECT_NE(first.thrown->text.find(" cannot go on in group 'world': cannot commit "),
            std::string::npos)
      << first.thrown->text;
}

TEST(DirectFailureTest, ARankThatDoesNotComeIsNamedAtEverySize) {
  for (const std::int64_t count : {1, 4000, 100000}) {
    const auto thrown = run_failing_ranks(3, {}, [count](const ProcessGroup& group) {
      group.barrier();
      if (group.rank() == 2) group.recv(tensors::ones({1}), 0);
      group.all_reduce(tensors::ones({count}), ReduceOp::sum,
                       {.timeout = std::chrono::milliseconds(400)});
    });
    for (const auto& mine : thrown) {
      ASSERT_TRUE(mine.has_value());
      EXPECT_EQ(mine->code, ErrorCode::kTimeout) << mine->text;
      EXPECT_NE(mine->text.find("for rank 2"), std::string::npos) << mine->text;
      // Who is a little later than the first to give up may find rank 2 gone from there already.
      EXPECT_NE(mine->text.find("recv #1"), std::string::npos) << mine->text;
    }
  }
}

TEST(DirectFailureTest, ARankThatHasLeftIsNamed) {
  for (const std::int64_t count : {1, 100000}) {
    const auto thrown = run_failing_ranks(2, {}, [count](const ProcessGroup& group) {
      const LocalTensor tensor = tensors::ones({count});
      group.broadcast(tensor, 1);
      if (group.rank() == 0) group.all_reduce(tensor);
    });
    ASSERT_TRUE(thrown[0].has_value());
    EXPECT_EQ(thrown[0]->code, ErrorCode::kPeerFailed) << thrown[0]->text;
    EXPECT_NE(thrown[0]->text.find("has left group"), std::string::npos) << thrown[0]->text;
  }
}

TEST(DirectFailureTest, ARootIsToldOfARankThatHasLeft) {
  run_failing_ranks(3, {}, [](const ProcessGroup& group) {
    const ProcessGroup twin = group.split({{0, 1, 2}}, "twin");
    if (group.rank() == 1) twin.shutdown();
    // Who hears of this has heard of rank 1's leaving before.
    EXPECT_THROW(group.broadcast(group.rank() == 1 ? LocalTensor() : tensors::ones({1}), 1),
                 base::Error);
    if (group.rank() != 0) return;
    // A root needs nobody, but somebody may need the broadcast.
    const auto error = error_of([&] { twin.broadcast(tensors::ones({3}), 0); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kPeerFailed) << error->what();
    EXPECT_TRUE(std::string(error->what()).starts_with("rank 1 ")) << error->what();
    EXPECT_TRUE(contains(error->what(), "has left group 'twin'")) << error->what();
  });
}

/// Of three ranks that call it over and over, rank 1 is killed.
void expect_the_killed_rank_is_named(const std::function<void(const ProcessGroup&)>& call) {
  test::RankProcesses ranks(3, {}, test::RankProcesses::Guard::job_page,
                            [&call](const ProcessGroup& group) {
                              for (;;) call(group);
                            });
  const auto begun = [&] { return ranks.job_page().slot(1).operations.load(); };
  while (begun() < 20) ::sched_yield();
  ranks.signal(1, SIGKILL);
  ranks.wait(1);
  for (const int rank : {0, 2}) {
    const auto ended = ranks.wait(rank);
    ASSERT_TRUE(ended.thrown.has_value());
    EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed) << ended.thrown->text;
    EXPECT_NE(ended.thrown->text.find("rank 1 "), std::string::npos) << ended.thrown->text;
  }
}

TEST(DirectFailureTest, ARankThatIsKilledAmongShortMessagesIsNamed) {
  const LocalTensor input = tensors::ones({6}), output = tensors::zeros({6});
  expect_the_killed_rank_is_named(
      [&](const ProcessGroup& group) { group.all_to_all_single(output, input); });
}

// Where three ranks share two cores, parts of 512 KiB are read where they lie.
TEST(DirectFailureTest, ARankThatIsKilledAmongLentPartsIsNamed) {
  constexpr auto kPart = static_cast<std::int64_t>(kLentCrowdedBytes / 4);
  LocalTensor part;
  std::vector<LocalTensor> parts;
  const std::vector<LocalTensor> none;
  int call = 0;
  expect_the_killed_rank_is_named([&](const ProcessGroup& group) {
    // Made by the ranks: threads that fill it before would not be theirs.
    if (parts.empty()) {
      part = tensors::zeros({kPart});
      parts.assign(3, tensors::ones({kPart}));
    }
    const int root = ++call % 3;
    group.scatter(part, group.rank() == root ? parts : none, root);
  });
}

TEST(DirectFailureTest, ARankThatIsKilledAmongShortCallsIsNamed) {
  for (const std::int64_t count : {1, 100000}) {
    // Made by the ranks: threads that fill it here would not be theirs.
    expect_the_killed_rank_is_named([&](const ProcessGroup& group) {
      group.all_reduce(tensors::ones({count}), ReduceOp::max);
    });
  }
}

}  // namespace
}  // namespace dtrun::collectives::cpu
