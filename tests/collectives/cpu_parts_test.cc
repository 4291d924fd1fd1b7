// The parts below the engine: heap, ring, board, control connection; and what a group leaves
// behind.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>

#include "cpu/control_connection.h"
#include "cpu/cpu_share.h"
#include "cpu/heap.h"
#include "cpu/life_sign.h"
#include "cpu/meeting.h"
#include "cpu/message.h"
#include "cpu/peer_memory.h"
#include "cpu/ring.h"
#include "cpu/world.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "rank_board.h"
#include "rank_record.h"
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

/// A ring in memory of its own, and its sender.
struct OwnRing {
  static constexpr std::size_t kCapacity = 64 << 10;

  OwnHeap own;
  RingHeader* const ring = [this] {
    auto* made = new (own.heap.at(own.heap.allocate(ring_bytes(kCapacity)))) RingHeader();
    made->capacity = kCapacity;
    return made;
  }();
  Doorbell doorbell;
  RingSendChannel sender{*ring, doorbell};
};

TEST(RingTest, BytesComeOutInOrderHoweverTheyAreCut) {
  OwnRing own;
  RingSendChannel& sender = own.sender;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  std::vector<std::byte> sent(5'000'011);
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
  std::thread producer([&] {
    std::size_t done = 0;
    while (done < sent.size()) {
      // A header and a payload, of sizes that hit the ring's end in every way.
      const Bytes rest = Bytes(sent).subspan(done);
      const std::size_t first = std::min<std::size_t>(rest.size(), 1 + done % 97);
      const std::size_t second = std::min<std::size_t>(rest.size() - first, done % 100'003);
      done += sender.write(rest.first(first), rest.subspan(first, second));
    }
  });
  std::vector<std::byte> received(sent.size());
  std::size_t done = 0;
  while (done < received.size())
    done += receiver.read(std::span(received).subspan(
        done, std::min<std::size_t>(received.size() - done, 1 + done % 70'001)));
  producer.join();
  EXPECT_TRUE(received == sent);
  std::byte more;
  EXPECT_EQ(receiver.read({&more, 1}), 0U);
}

// The reader looks at one mark after the other, and the sender has used them again meanwhile.
TEST(RingTest, NothingThatWasWrittenBeforeTheReaderLooksIsMissed) {
  for (std::size_t messages = 1; messages < 4 * RingHeader::kMarks; ++messages) {
    OwnRing own;
    RingReceiveChannel receiver(*own.ring, own.doorbell);
    EXPECT_TRUE(receiver.empty());
    for (std::size_t i = 0; i < messages; ++i) {
      const auto number = static_cast<std::byte>(i);
      ASSERT_EQ(own.sender.write({&number, 1}, {}), 1U);
    }
    EXPECT_FALSE(receiver.empty());
    EXPECT_TRUE(receiver.has(messages));
    EXPECT_FALSE(receiver.has(messages + 1));
    for (std::size_t i = 0; i < messages; ++i) {
      std::byte number{0xff};
      ASSERT_EQ(receiver.read({&number, 1}), 1U);
      EXPECT_EQ(number, static_cast<std::byte>(i));
    }
    EXPECT_TRUE(receiver.empty());
    const std::byte last{42};
    own.sender.write({&last, 1}, {});
    EXPECT_TRUE(receiver.has(1));
  }
}

// Whatever has been read without the sender having been told of it.
TEST(RingTest, AsManyBytesAsItSaysAreThereAtOnceAndNoFewer) {
  OwnRing own;
  RingSendChannel& sender = own.sender;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  constexpr std::size_t kCapacity = OwnRing::kCapacity;
  const std::vector<std::byte> sent(2 * kCapacity);
  std::vector<std::byte> taken(kCapacity);
  std::size_t least = kCapacity;
  for (std::size_t header = 1; header < 5000; header += 87) {
    sender.write(sent, {});  // until it is full
    ASSERT_EQ(receiver.read(std::span(taken).first(header)), header);
    sender.write(sent, {});
    EXPECT_TRUE(receiver.has(receiver.most_at_once())) << header;
    while (!receiver.has(least)) --least;
  }
  EXPECT_LT(least, kCapacity);  // so the whole of it is too much to wait for
}

struct LendingRing : OwnRing {
  std::optional<LifeSign> life_sign = LifeSign::give(own.commons, 0);
  std::unique_ptr<PeerMemory> memory = PeerMemory::open(own.commons, 0);
};

TEST(RingTest, APayloadThatDoesNotFitIsLentUntilItIsFetched) {
  LendingRing lending;
  ASSERT_NE(lending.memory, nullptr);
  std::vector<std::byte> payload(LendingRing::kCapacity);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  // Nobody who can fetch it is there yet.
  EXPECT_FALSE(lending.sender.can_lend(payload));
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  EXPECT_TRUE(lending.sender.can_lend(payload));
  EXPECT_EQ(lending.sender.least_lent(), payload.size());
  OutgoingMessage out(1, Fingerprint(), 5, payload);
  while (!out.is_written()) out.step(lending.sender);
  EXPECT_FALSE(out.complete());
  // The next message follows at once.
  const std::byte more[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  OutgoingMessage next(1, Fingerprint(), 6, more);
  while (!next.complete()) next.step(lending.sender);
  IncomingMessage in;
  while (!in.has_header()) in.step_header(receiver);
  ASSERT_EQ(in.header().bytes, payload.size());
  std::vector<std::byte> target(payload.size());
  while (!in.complete()) in.step_payload(receiver, target);
  EXPECT_TRUE(target == payload);
  EXPECT_FALSE(out.complete());
  EXPECT_EQ(out.step(lending.sender).payload_bytes, payload.size());
  EXPECT_TRUE(out.complete());
  IncomingMessage last;
  while (!last.has_header()) last.step_header(receiver);
  EXPECT_EQ(last.header().tag, 6U);
  std::byte small[3];
  while (!last.complete()) last.step_payload(receiver, small);
  EXPECT_EQ(small[2], std::byte{3});
}

TEST(RingTest, APayloadThatFitsIsLentWhereItsSenderSaysSo) {
  LendingRing lending;
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  const std::vector<std::byte> payload(1000, std::byte{7});
  OutgoingMessage lent(1, Fingerprint(), 5, payload, payload.size());
  OutgoingMessage written(1, Fingerprint(), 6, payload, payload.size() + 1);
  OutgoingMessage usual(1, Fingerprint(), 7, payload);
  for (OutgoingMessage* const out : {&lent, &written, &usual}) {
    out->step(lending.sender);
    EXPECT_TRUE(out->is_written());
    EXPECT_EQ(out->complete(), out != &lent);
  }
  for (int message = 0; message < 3; ++message) {
    IncomingMessage in;
    in.step_header(receiver);
    std::vector<std::byte> target(payload.size());
    in.step_payload(receiver, target);
    EXPECT_TRUE(in.complete() && target == payload) << message;
    EXPECT_EQ(in.header().lent_at != 0, message == 0);
  }
  lent.step(lending.sender);
  EXPECT_TRUE(lent.complete());
}

TEST(RingTest, APayloadThatIsNotToBeLentGoesThroughTheRingInPieces) {
  LendingRing lending;
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  std::vector<std::byte> payload(3 * LendingRing::kCapacity), target(payload.size());
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 11);
  OutgoingMessage out(1, Fingerprint(), 5, payload, payload.size() + 1);
  IncomingMessage in;
  while (!in.complete()) {
    EXPECT_FALSE(lending.sender.has_room(LendingRing::kCapacity + 1));
    out.step(lending.sender);
    if (!in.has_header()) in.step_header(receiver);
    if (in.has_header()) in.step_payload(receiver, target);
  }
  EXPECT_EQ(in.header().lent_at, 0U);
  EXPECT_TRUE(out.complete());
  EXPECT_TRUE(target == payload);
}

TEST(RingTest, APayloadThatWasWithdrawnIsNotFetched) {
  LendingRing lending;
  std::vector<std::byte> payload(LendingRing::kCapacity), target(LendingRing::kCapacity);
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  OutgoingMessage out(1, Fingerprint(), 5, payload);
  while (!out.is_written()) out.step(lending.sender);
  lending.sender.withdraw();
  IncomingMessage in;
  while (!in.has_header()) in.step_header(receiver);
  EXPECT_EQ(in.step_payload(receiver, target).bytes, 0U);
  EXPECT_FALSE(in.complete());
  EXPECT_TRUE(receiver.broken());
}

TEST(RingTest, MemoryThatIsGoneIsAnErrorOnlyWhereItWasNotWithdrawn) {
  for (const bool is_withdrawn : {false, true}) {
    LendingRing lending;
    std::vector<std::byte> target(LendingRing::kCapacity);
    RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
    void* const memory =
        ::mmap(nullptr, target.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    OutgoingMessage out(1, Fingerprint(), 5, {static_cast<std::byte*>(memory), target.size()});
    while (!out.is_written()) out.step(lending.sender);
    IncomingMessage in;
    while (!in.has_header()) in.step_header(receiver);
    if (is_withdrawn) lending.sender.withdraw();
    ASSERT_EQ(::munmap(memory, target.size()), 0);
    const auto error = error_of([&] { in.step_payload(receiver, target); });
    EXPECT_EQ(error.has_value(), !is_withdrawn);
    EXPECT_EQ(receiver.broken(), is_withdrawn);
    EXPECT_FALSE(in.complete());
  }
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
  EXPECT_EQ(rendezvous::describe_newest_operation(page->slot(0)), "broadcast #700 of group 'world'");
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

/// Whether two ranks bound to those CPUs before they join are in each other's way.
Crowding crowding_of(const std::vector<int>& cpus) {
  const auto store = rendezvous::make_hash_store();
  std::vector<Crowding> found(2);
  std::vector<std::thread> threads;
  for (int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpus[index], &set);
      ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
      found[index] = World::create(test::group_options(store, rank, 2))->crowding();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0], found[1]);
  return found[0];
}

TEST(CpuShareTest, RanksThatAreBoundToACpuEachAreNotCrowded) {
  cpu_set_t own;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(own), &own), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &own)) cpus.push_back(cpu);
  if (cpus.size() < 2 || base::cpu_quota()) GTEST_SKIP() << "needs two CPUs without a quota";
  EXPECT_EQ(crowding_of({cpus[0], cpus[1]}), Crowding::alone);
  EXPECT_EQ(crowding_of({cpus[0], cpus[0]}), Crowding::crowded);
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
