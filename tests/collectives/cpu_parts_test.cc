// The parts below the engine: heap, board, control connection; and what a group leaves
// behind.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>

#include "cpu/control_connection.h"
#include "cpu/heap.h"
#include "cpu/life_sign.h"
#include "cpu/meeting.h"
#include "cpu/peer_memory.h"
#include "cpu/world.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "rank_board.h"
#include "rank_record.h"
#include "short_call.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives::cpu {
namespace {

using base::ErrorCode;
using tensors::LocalTensor;
using testing_support::contains;
using testing_support::error_of;

struct OwnHeap {
  const Commons commons = Commons::create(1);
  Heap heap{commons, 0};
};

TEST(HeapTest, BlocksAreZeroAlignedAndUsedAgain) {
  OwnHeap own;
  Heap& heap = own.heap;
  const Offset first = heap.allocate(1000);
  EXPECT_EQ(first % 128, 0U);
  heap.at(first)[999] = std::byte{1};
  const Offset second = heap.allocate(1000);
  EXPECT_GE(second, first + 1000);
  heap.free(first);
  EXPECT_EQ(heap.allocate(900), first);
  EXPECT_EQ(heap.at(first)[899], std::byte{0});
}

TEST(HeapTest, AFullHeapIsAnError) {
  OwnHeap own;
  Heap& heap = own.heap;
  const auto error = error_of([&] { heap.allocate(std::size_t{2} << 30); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kSystem);
  EXPECT_TRUE(contains(error->what(), "heap is full"));
}

TEST(HeapTest, ALackOfSharedMemoryIsAnErrorAndNoSignal) {
  const pid_t child = ::fork();
  if (child == 0) {
    // The limit of file sizes holds for memfds, too, and stands in for a machine that gives none.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto error = error_of([] { const OwnHeap heap; });
    ::_exit(error && contains(error->what(), "bytes of shared memory") &&
                    error->code() == ErrorCode::kSystem
                ? 0
                : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(PeerMemoryTest, AnotherProcessIsReadWhileItLives) {
  const Commons commons = Commons::create(2);
  std::vector<char> text(100'000, 'a');
  const base::Pipe there = base::make_pipe(), end = base::make_pipe();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::fill(text.begin(), text.end(), 'b');  // in its own copy of the page
    const std::optional<LifeSign> life_sign = LifeSign::give(commons, 1);
    const bool is_told = ::write(there.write_end.get(), "x", 1) == 1;
    char byte;
    ::_exit(is_told && ::read(end.read_end.get(), &byte, 1) == 1 ? 0 : 1);
  }
  char byte;
  ASSERT_EQ(::read(there.read_end.get(), &byte, 1), 1);
  const std::unique_ptr<PeerMemory> memory = PeerMemory::open(commons, 1);
  ASSERT_NE(memory, nullptr) << "this machine does not let a process read another one's memory";
  std::vector<char> seen(text.size());
  const auto address = reinterpret_cast<std::uintptr_t>(text.data());
  EXPECT_EQ(memory->read(std::as_writable_bytes(std::span(seen)), address), 0);
  EXPECT_EQ(seen, std::vector<char>(text.size(), 'b'));
  EXPECT_EQ(memory->read(std::as_writable_bytes(std::span(seen)), 16), EFAULT);
  ASSERT_EQ(::write(end.write_end.get(), "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory->read(std::as_writable_bytes(std::span(seen)), address), ESRCH);
  EXPECT_EQ(PeerMemory::open(commons, 1), nullptr);
  // No process has taken this cell.
  EXPECT_EQ(PeerMemory::open(commons, 0), nullptr);
  EXPECT_FALSE(PeerMemory::is_readable({reinterpret_cast<const std::byte*>(16), 4}));
  EXPECT_TRUE(PeerMemory::is_readable(std::as_bytes(std::span(seen))));
}

TEST(RankBoardTest, AReaderNeverSeesHalfALine) {
  RankBoard board;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::int64_t i = 1; !stop.load(); ++i) {
      BoardLine line;
      line.fingerprint.sequence = static_cast<std::uint64_t>(i);
      line.started_ns = i;
      line.ended_ns = i;
      if (i % 2 == 0) {
        board.write(line);
      } else {
        board.write_next(line);
      }
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const std::optional<BoardLine> line = board.read();
    if (!line) continue;
    EXPECT_EQ(line->started_ns, line->ended_ns);
    EXPECT_EQ(line->fingerprint.sequence, static_cast<std::uint64_t>(line->started_ns));
  }
  stop = true;
  writer.join();
}

TEST(RankBoardTest, ALineReadsAsASentence) {
  BoardLine line;
  EXPECT_EQ(line.describe(0), "in no collective yet");
  line.fingerprint.kind = OpKind::barrier;
  line.fingerprint.sequence = 4;
  std::snprintf(line.group, sizeof(line.group), "dp");
  line.started_ns = 1'000'000'000;
  EXPECT_EQ(line.describe(3'000'000'000), "in barrier #4 of group 'dp' for 2 s");
  line.waiting_for = 7;
  EXPECT_EQ(line.describe(3'000'000'000),
            "in barrier #4 of group 'dp' for 2 s, waiting for rank 7");
  line.ended_ns = 2'500'000'000;
  EXPECT_EQ(line.describe(3'000'000'000),
            "in no collective, 500 ms after barrier #4 of group 'dp'");
}

// A rank with two worlds: the peers of each look at its board.
TEST(RankRecordTest, EachBoardShowsTheOperationsOfItsWorld) {
  RankRecord record(nullptr, 0);
  RankBoard first, second;
  record.attach(first);
  record.attach(second);
  const RecordedGroup one("one", 0, {0, 1}, &first), two("two", 0, {0, 2}, &second),
      other("nccl", 0, {0, 1});
  Fingerprint print;
  print.kind = OpKind::barrier;
  print.sequence = 7;
  const std::uint64_t waits = record.begin(print, one, 0);
  print.kind = OpKind::send;
  const std::uint64_t sends = record.begin(print, two, 4);
  record.waiting_for(waits, 1);
  EXPECT_EQ(first.read()->waiting_for, 1);
  EXPECT_EQ(first.read()->fingerprint.kind, OpKind::barrier);
  EXPECT_EQ(first.read()->ended_ns, 0);
  EXPECT_EQ(second.read()->fingerprint.kind, OpKind::send);
  record.end(sends, RankRecord::Outcome::done);
  EXPECT_EQ(first.read()->ended_ns, 0);
  EXPECT_NE(second.read()->ended_ns, 0);
  print.kind = OpKind::all_reduce;
  record.end(record.begin(print, other, 0), RankRecord::Outcome::done);
  EXPECT_EQ(record.line().fingerprint.kind, OpKind::all_reduce);
  EXPECT_EQ(first.read()->ended_ns, 0);
  record.end(waits, RankRecord::Outcome::done);
  EXPECT_NE(first.read()->ended_ns, 0);
  record.set_victim_of(2);
  EXPECT_EQ(first.read()->victim_of, 2);
  record.end(record.begin(print, two, 0), RankRecord::Outcome::done);
  record.detach(second);
  EXPECT_STREQ(record.line().group, "two");
  EXPECT_EQ(record.line().victim_of, 2);
}

// Of two threads one has the word of the slot, the other writes twice.
TEST(RankRecordTest, AShortOperationHasEndedWhenItIsOver) {
  for (const auto times :
       {rendezvous::HistoryPlan::Times::coarse, rendezvous::HistoryPlan::Times::exact}) {
    const auto page = std::make_shared<rendezvous::JobPage>(
        rendezvous::JobPage::create(1, {.length = 256, .times = times}));
    RankRecord record(page, 0);
    const RecordedGroup group("world", 0, {0, 1});
    const auto running = [&] {
      std::vector<std::uint64_t> sequences;
      for (const rendezvous::HistoryEntry& entry : page->history(0))
        if (entry.operation.ended_ns == 0) sequences.push_back(entry.operation.sequence);
      return sequences;
    };
    const auto pass = [&](std::uint64_t sequence) {
      Fingerprint print;
      print.kind = OpKind::barrier;
      print.sequence = sequence;
      return record.pass(print, group, 0);
    };
    using Sequences = std::vector<std::uint64_t>;
    const std::uint64_t first = pass(1), second = pass(2);
    EXPECT_EQ(running(), (Sequences{1, 2}));
    record.passed(first);
    EXPECT_EQ(running(), Sequences{2});
    record.passed(second);
    EXPECT_EQ(running(), Sequences{});
    const std::uint64_t late = pass(3);
    record.go_on(late);
    record.passed(pass(4));
    EXPECT_EQ(running(), Sequences{3});
    EXPECT_EQ(state_of(page->slot(0)), rendezvous::RankState::kInCollective);
    record.end(late, RankRecord::Outcome::done);
    EXPECT_EQ(running(), Sequences{});
    EXPECT_EQ(state_of(page->slot(0)), rendezvous::RankState::kRunning);
  }
}

// Whatever the batch's order, others are told of the receive in which the rank waits.
TEST(RankRecordTest, ABatchThatWaitsIsShownInItsReceive) {
  const auto page = std::make_shared<rendezvous::JobPage>(rendezvous::JobPage::create(1));
  RankRecord record(page, 0);
  RankBoard board;
  record.attach(board);
  const RecordedGroup group("world", 0, {0, 1}, &board);
  CallMeter meter;
  ShortCall call(meter, OpKind::receive);
  const Fingerprint early{.sequence = 11, .kind = OpKind::receive},
      sent{.sequence = 12, .kind = OpKind::send}, late{.sequence = 13, .kind = OpKind::receive};
  std::array<ShortMessage, 3> batch = {{{.fingerprint = early, .buffer = {}, .short_call = call},
                                        {.fingerprint = sent, .buffer = {}, .short_call = call},
                                        {.fingerprint = late, .buffer = {}, .short_call = call}}};
  const std::uint64_t first = record.pass(batch, group, 0);
  record.passed(first);
  record.go_on(first + 1);
  record.waiting_for(first + 1, 1);
  EXPECT_EQ(board.read()->fingerprint.kind, OpKind::receive);
  EXPECT_EQ(board.read()->fingerprint.sequence, 13U);
  EXPECT_EQ(board.read()->ended_ns, 0);
  EXPECT_EQ(board.read()->waiting_for, 1);
  const std::string newest = rendezvous::describe_newest_operation(page->slot(0));
  EXPECT_TRUE(contains(newest, "recv #13")) << newest;
  record.end(first + 1, RankRecord::Outcome::done);
  EXPECT_NE(board.read()->ended_ns, 0);
  record.detach(board);
}

TEST(RankRecordTest, ThePageShowsWhoOfAnotherNodeWaitsFirst) {
  const auto page = std::make_shared<rendezvous::JobPage>(rendezvous::JobPage::create(1));
  RankRecord record(page, 0);
  const RecordedGroup world("world", 0, {0, 1, 2}), pair("pair", 0, {0, 2});
  const auto shown = [&] { return rendezvous::awaited_in(page->slot(0)); };
  EXPECT_FALSE(shown().has_value());
  Fingerprint print{.sequence = 41, .kind = OpKind::all_reduce};
  record.set_awaited(print, world, 1);
  print.sequence = 7;
  print.kind = OpKind::reduce_scatter;
  record.set_awaited(print, pair, 2);
  ASSERT_TRUE(shown().has_value());
  EXPECT_EQ(shown()->name, "all_reduce");
  EXPECT_EQ(shown()->group, "world");
  EXPECT_EQ(shown()->sequence, 41U);
  EXPECT_EQ(shown()->by, 1);
  EXPECT_GT(shown()->since_ns, 0);
  record.end_awaited(world);
  ASSERT_TRUE(shown().has_value());
  EXPECT_EQ(shown()->name, "reduce_scatter");
  EXPECT_EQ(shown()->by, 2);
  record.end_awaited(pair);
  record.end_awaited(pair);
  EXPECT_FALSE(shown().has_value());
}

// Groups of one name, calls of one line: what is told once of many calls is told of the right ones.
TEST(RankRecordTest, EachEntrySaysWhatItsCallSaid) {
  const auto page = std::make_shared<rendezvous::JobPage>(rendezvous::JobPage::create(1));
  RankRecord record(page, 0);
  RankBoard board;
  record.attach(board);
  const RecordedGroup groups[] = {{"world", 0, {0, 1}, &board}, {"world", 1, {2, 0, 4}, &board}};
  constexpr OpKind kKinds[] = {OpKind::all_reduce, OpKind::broadcast, OpKind::send};
  struct Made {
    Fingerprint print;
    const RecordedGroup* group;
    std::uint64_t bytes;
  };
  std::vector<Made> all;
  for (std::uint64_t i = 0; i < 700; ++i) {
    Made made{{}, &groups[i / 3 % 2], i};
    made.print.sequence = i + 1;
    made.print.kind = kKinds[i / 5 % 3];
    made.print.counts = i % 7;
    made.print.root = static_cast<std::int32_t>(i / 2 % 2);
    std::snprintf(made.print.site, sizeof made.print.site, "train.cc:%d", static_cast<int>(i % 11));
    record.passed(record.pass(made.print, *made.group, made.bytes));
    all.push_back(made);
    const std::optional<BoardLine> shown = board.read();
    ASSERT_TRUE(shown);
    EXPECT_EQ(shown->fingerprint.describe(), made.print.describe());
  }
  const std::vector<rendezvous::HistoryEntry> history = page->history(0);
  ASSERT_EQ(history.size(), rendezvous::kHistoryLength);
  for (std::size_t i = 0; i < history.size(); ++i) {
    const Made& made = all[all.size() - history.size() + i];
    const rendezvous::HistoryEntry& entry = history[i];
    EXPECT_EQ(entry.operation.sequence, made.print.sequence);
    EXPECT_STREQ(entry.operation.name, op_kind_name(made.print.kind));
    EXPECT_EQ(entry.operation.bytes, made.bytes);
    EXPECT_STREQ(entry.call_site, made.print.site);
    EXPECT_EQ(entry.elements, made.print.counts);
    EXPECT_EQ(entry.root, made.print.root);
    EXPECT_EQ(entry.group_rank, made.group->rank);
    EXPECT_EQ(entry.group_size, made.group->size);
  }
  EXPECT_EQ(rendezvous::describe_newest_operation(page->slot(0)),
            "broadcast #700 of group 'world'");
  record.detach(board);
}

struct ConnectedPair {
  ConnectedPair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    a = std::make_unique<ControlConnection>(base::UniqueFd(fds[0]));
    b = std::make_unique<ControlConnection>(base::UniqueFd(fds[1]));
  }
  std::unique_ptr<ControlConnection> a;
  std::unique_ptr<ControlConnection> b;
};

TEST(ControlConnectionTest, FramesComeWholeAndInOrderHoweverMuchIsWaiting) {
  ConnectedPair pair;
  // More than the socket takes at once: the rest goes out with flush().
  constexpr int kFrames = 400;
  for (int i = 0; i < kFrames; ++i)
    pair.a->send({FrameKind::poison, static_cast<std::uint64_t>(i), std::string(2000, 'x')});
  std::uint64_t next = 0;
  while (next < kFrames) {
    for (const Frame& frame : pair.b->receive()) {
      EXPECT_EQ(frame.group, next++);
      EXPECT_EQ(frame.payload.size(), 2000U);
    }
    pair.a->flush();
  }
  EXPECT_TRUE(pair.b->open());
}

TEST(ControlConnectionTest, WhatWasSaidLastIsReadAlsoWhenThePeerDidNotReadEverything) {
  ConnectedPair pair;
  pair.b->send({FrameKind::announce, 1, "unread"});
  pair.a->send({FrameKind::goodbye, 2, ""});
  pair.a.reset();
  const std::vector<Frame> frames = pair.b->receive();
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].kind, FrameKind::goodbye);
  EXPECT_FALSE(pair.b->open());
  pair.b->send({FrameKind::announce, 1, "to nobody"});
}

TEST(ControlConnectionTest, StrangersBytesEndTheConnection) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const base::UniqueFd stranger(fds[0]);
  ControlConnection connection{base::UniqueFd(fds[1])};
  const std::string noise(64, '?');
  ASSERT_EQ(::write(stranger.get(), noise.data(), noise.size()), 64);
  EXPECT_TRUE(connection.receive().empty());
  EXPECT_FALSE(connection.open());
}

TEST(ControlConnectionTest, AFailureKeepsItsPartsOnTheWay) {
  const GroupFailure sent{base::Error(ErrorCode::kTimeout, "what", "why", "remedy"), 3};
  const GroupFailure received = GroupFailure::decode(sent.encode());
  EXPECT_EQ(received.error.code(), ErrorCode::kTimeout);
  EXPECT_STREQ(received.error.what(), sent.error.what());
  EXPECT_EQ(received.failed_rank, 3);
}

struct Footprint {
  std::ptrdiff_t descriptors;
  std::ptrdiff_t mappings;
  std::ptrdiff_t threads;
};
std::ptrdiff_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}
Footprint footprint() {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t heaps = 0;
  for (std::string line; std::getline(maps, line);) heaps += contains(line, "dtrun-heap");
  return {entries("/proc/self/fd"), heaps, entries("/proc/self/task")};
}

TEST(LeakTest, NothingStaysOfGroupsThatWereMadeAndLeft) {
  const auto use = [](const ProcessGroup& group) {
    const ProcessGroup half = group.split({{0}, {1}}, "half");
    group.all_reduce(tensors::ones({4}), ReduceOp::sum, {.async = true}).wait();
    group.barrier();
  };
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::run_ranks(2, {.transport = transport}, use);
    const Footprint before = footprint();
    for (int i = 0; i < 100; ++i) test::run_ranks(2, {.transport = transport}, use);
    const Footprint after = footprint();
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_EQ(after.mappings, 0);
    EXPECT_LE(after.threads, before.threads);
  }
}

// Of the front of the commons and of its own heap each rank has a mapping, of a peer's heap none
// before something in it is needed.
TEST(StartTest, ARankMapsAPeersHeapWhenItFirstNeedsIt) {
  constexpr int kRanks = 20;
  static_assert(kRanks > Meeting::kMostWoken);
  std::atomic<std::ptrdiff_t> after_barriers{0};
  std::atomic<std::ptrdiff_t> descriptors{0};
  const std::ptrdiff_t before = footprint().descriptors;
  test::run_ranks(kRanks, [&](const ProcessGroup& group) {
    for (int turn = 0; turn < 50; ++turn) group.barrier();
    const LocalTensor tensor = tensors::full({4}, group.rank());
    group.all_reduce(tensor);
    EXPECT_EQ(tensor.to_vector(), std::vector<double>(4, kRanks * (kRanks - 1) / 2));
    group.broadcast(tensor, 3);
    if (group.rank() == 0) {
      after_barriers = footprint().mappings;
      descriptors = footprint().descriptors - before;
    }
    group.barrier();
    const ProcessGroup pair = group.split({{0, 1}}, "pair");
    if (pair.valid()) {
      const Work receive = pair.irecv(tensors::zeros({1}), 1 - pair.rank());
      pair.send(tensors::ones({1}), 1 - pair.rank());
      receive.wait();
    }
    group.barrier();
    // A message each way, and a table in rank 0's heap.
    if (group.rank() == 0) {
      EXPECT_LE(footprint().mappings, 2 * kRanks + 2);
    }
    group.barrier();
  });
  // Neighbours may have become one.
  EXPECT_LE(after_barriers, 2 * kRanks);
  EXPECT_LT(descriptors, 10 * kRanks);
}

TEST(LeakTest, SplitGroupsGiveTheirSharedMemoryBack) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    // 3,000 groups with two rings each way would not fit into a heap without being used again.
    for (int i = 0; i < 3000; ++i) {
      const ProcessGroup pair = group.split({{0, 1}}, "pair");
      pair.barrier();
      const Work receive = pair.irecv(tensors::zeros({1}), 1 - pair.rank());
      pair.send(tensors::ones({1}), 1 - pair.rank());
      receive.wait();
    }
  });
}

}  // namespace
}  // namespace dtrun::collectives::cpu
