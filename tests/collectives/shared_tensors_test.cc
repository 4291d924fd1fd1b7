// Tensors in the shared memory of a group (tensors::HostAllocatorScope): the ranks read them in
// place. That every operation then gives what it gives elsewhere, the conformance suite shows
// (InPlace).
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cpu/tensor_heap.h"
#include "dtrun/base/log.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/host_allocator.h"
#include "dtrun/tensor/host_memory.h"
#include "dtrun/tensor/ops.h"
#include "support/flat_tensors.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using tensors::HostAllocator;
using tensors::HostAllocatorScope;
using tensors::LocalTensor;
using test::flat_full;
using test::RankOptions;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::error_of;

constexpr std::int64_t kCount = 100'000;
#if defined(__SANITIZE_THREAD__)
// Slow, and without the addresses for the spans of many ranks.
constexpr int kManyRanks = 4, kCalls = 30, kAborts = 20;
#else
constexpr int kManyRanks = 20, kCalls = 200, kAborts = 50;
#endif

/// The debug lines that say so of calls of that kind, while it stands.
class InPlaceLines {
 public:
  InPlaceLines() {
    count().clear();
    base::log::set_levels("+collectives");
    base::log::set_writer([](const base::log::Line& line) {
      const std::scoped_lock lock(mutex());
      if (line.message.find(" in place") != std::string::npos) count().emplace_back(line.message);
    });
  }
  ~InPlaceLines() {
    base::log::set_writer(nullptr);
    base::log::set_levels("");
  }
  /// How many lines tell of that kind.
  static std::ptrdiff_t of(const std::string& kind) {
    const std::scoped_lock lock(mutex());
    return std::ranges::count_if(count(), [&](const std::string& line) {
      return line.find("': " + kind + " #") != std::string::npos;
    });
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<std::string>& count() {
    static std::vector<std::string> lines;
    return lines;
  }
};

/// A tensor in shared memory where `is_shared`, else in ordinary memory.
LocalTensor made(const ProcessGroup& group, bool is_shared, std::int64_t count, double value) {
  if (!is_shared) return flat_full(count, value);
  const std::shared_ptr<HostAllocator> memory = group.shared_memory();
  const HostAllocatorScope scope(*memory);
  return flat_full(count, value);
}

TEST(SharedTensorsTest, EachKindReadsThemInPlaceWhereAllThatIsReadLiesThere) {
  const InPlaceLines lines;
  run_ranks(3, {.shared_memory = true}, [](const ProcessGroup& group) {
    const LocalTensor one = flat_full(kCount, 1), all = flat_full(3 * kCount, 2);
    group.all_reduce(one);
    EXPECT_TRUE(equal(one, flat_full(kCount, 3)));
    group.reduce(one, 1);
    group.broadcast(one, 1);
    EXPECT_TRUE(equal(one, flat_full(kCount, 9)));
    group.all_gather_into_tensor(all, one);
    EXPECT_TRUE(equal(all, flat_full(3 * kCount, 9)));
    group.reduce_scatter_tensor(one, all);
    EXPECT_TRUE(equal(one, flat_full(kCount, 27)));
  });
  for (const char* kind : {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"})
    EXPECT_EQ(InPlaceLines::of(kind), 3) << kind;
}

// The root's alone for a broadcast, the others' for a reduce, everybody's else: ranks may have
// theirs elsewhere, and then no rank reads in place.
TEST(SharedTensorsTest, OneTensorElsewhereMakesAllGoByStages) {
  for (int elsewhere = 0; elsewhere < 3; ++elsewhere) {
    const InPlaceLines lines;
    run_ranks(3, [&](const ProcessGroup& group) {
      const LocalTensor one = made(group, group.rank() != elsewhere, kCount, group.rank());
      group.all_reduce(one);
      EXPECT_TRUE(equal(one, flat_full(kCount, 3)));
      group.broadcast(one, 0);
      group.reduce(one, 0);
      EXPECT_TRUE(equal(one, flat_full(kCount, group.rank() == 0 ? 9 : 3)));
    });
    EXPECT_EQ(InPlaceLines::of("all_reduce"), 0) << elsewhere;
    EXPECT_EQ(InPlaceLines::of("broadcast"), elsewhere == 0 ? 0 : 3) << elsewhere;
    EXPECT_EQ(InPlaceLines::of("reduce"), elsewhere == 0 ? 3 : 0) << elsewhere;
  }
}

TEST(SharedTensorsTest, ViewsAndSubgroupsReadThemInPlaceToo) {
  const InPlaceLines lines;
  run_ranks(3, {.shared_memory = true}, [](const ProcessGroup& group) {
    const LocalTensor whole = flat_full(3 * kCount, group.rank());
    group.all_reduce(whole.slice(0, 17, 17 + kCount));
    EXPECT_EQ(whole[16].item(), group.rank());
    EXPECT_EQ(whole[17].item(), 3);
    EXPECT_EQ(whole[16 + kCount].item(), 3);
    EXPECT_EQ(whole[17 + kCount].item(), group.rank());
    const ProcessGroup pair = group.split({{0, 2}}, "pair");
    if (!pair.valid()) return;
    pair.all_reduce(whole);
    EXPECT_EQ(whole[0].item(), 2);
    EXPECT_EQ(whole[17].item(), 6);
  });
  EXPECT_EQ(InPlaceLines::of("all_reduce"), 5);
}

TEST(SharedTensorsTest, EmptyPartsAndManyRanksGoInPlaceToo) {
  const InPlaceLines lines;
  run_ranks(kManyRanks, {.shared_memory = true}, [](const ProcessGroup& group) {
    const LocalTensor one = flat_full(kCount, 1);
    group.all_reduce(one);
    EXPECT_TRUE(equal(one, flat_full(kCount, kManyRanks)));
    // Of the first rank and the last one nothing comes.
    const auto count_of = [](int rank) { return rank % (kManyRanks - 1) == 0 ? 0 : kCount; };
    std::vector<LocalTensor> outputs;
    for (int rank = 0; rank < kManyRanks; ++rank) outputs.push_back(flat_full(count_of(rank), 0));
    group.all_gather(outputs, flat_full(count_of(group.rank()), group.rank()));
    for (int rank = 0; rank < kManyRanks; ++rank)
      EXPECT_TRUE(equal(outputs[static_cast<std::size_t>(rank)], flat_full(count_of(rank), rank)));
  });
  EXPECT_EQ(InPlaceLines::of("all_reduce"), kManyRanks);
  EXPECT_EQ(InPlaceLines::of("all_gather"), kManyRanks);
}

// The tensor is overwritten as soon as the call is over: nobody may be reading it then.
TEST(SharedTensorsTest, ACallIsOverWhenAllHaveRead) {
  run_ranks(3, {.shared_memory = true}, [](const ProcessGroup& group) {
    const LocalTensor one = flat_full(kCount, 0), all = flat_full(3 * kCount, 0);
    for (int call = 0; call < kCalls; ++call) {
      const int root = call % 3;
      one.fill_(group.rank() == root ? call : -1);
      group.broadcast(one, root);
      ASSERT_TRUE(equal(one, flat_full(kCount, call))) << call;
      one.fill_(call + group.rank());
      group.all_gather_into_tensor(all, one);
      one.fill_(-1);
      for (int rank = 0; rank < 3; ++rank)
        ASSERT_TRUE(equal(all.slice(0, rank * kCount, (rank + 1) * kCount),
                          flat_full(kCount, call + rank)));
      one.fill_(1);
      group.reduce(one, root);
      ASSERT_TRUE(group.rank() != root || equal(one, flat_full(kCount, 3))) << call;
      one.fill_(-1);
      all.fill_(call);
      group.reduce_scatter_tensor(one, all);
      all.fill_(-1);
      ASSERT_TRUE(equal(one, flat_full(kCount, 3 * call))) << call;
    }
  });
}

TEST(SharedTensorsTest, TheBytesThatAreCountedAreThoseOfStages) {
  std::vector<TransportCounters> of_stages(3), in_place(3);
  for (std::vector<TransportCounters>* const counters : {&of_stages, &in_place})
    run_ranks(3, {.shared_memory = counters == &in_place}, [&](const ProcessGroup& group) {
      const LocalTensor one = flat_full(kCount + 1, 1), all = flat_full(3 * kCount + 3, 2);
      group.all_reduce(one);
      group.reduce(one, 1);
      group.broadcast(one, 1);
      group.all_gather_into_tensor(all, one);
      group.reduce_scatter_tensor(one, all);
      (*counters)[static_cast<std::size_t>(group.rank())] = group.counters();
    });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_GT(in_place[rank].shared_memory_bytes_sent, 0u);
    EXPECT_EQ(in_place[rank].shared_memory_bytes_sent, of_stages[rank].shared_memory_bytes_sent);
    EXPECT_EQ(in_place[rank].shared_memory_bytes_received,
              of_stages[rank].shared_memory_bytes_received);
  }
}

// What a rank whose call has failed shows may be overwritten: a reader must not give it out.
TEST(SharedTensorsTest, ATensorOfACallThatHasFailedIsNotGivenOut) {
  int failed = 0;
  for (int attempt = 0; attempt < kAborts; ++attempt) {
    const auto thrown =
        run_failing_ranks(3, {.shared_memory = true}, [&](const ProcessGroup& group) {
          const LocalTensor one = flat_full(8 * kCount, group.rank() == 0 ? 5 : 0);
          const Work work = group.broadcast(one, 0, {.async = true});
          if (group.rank() == 0) {
            group.abort("a test");
            one.fill_(-1);
            return work.wait();
          }
          work.wait();
          ASSERT_TRUE(equal(one, flat_full(8 * kCount, 5))) << attempt;
        });
    for (const auto& rank : thrown) failed += rank.has_value() ? 1 : 0;
  }
  EXPECT_GT(failed, kAborts);
}

TEST(SharedTensorsTest, TensorsOutliveTheGroup) {
  run_ranks(2, [](const ProcessGroup& given) {
    std::optional<LocalTensor> tensor;
    std::shared_ptr<HostAllocator> memory;
    {
      const ProcessGroup group = given.split({{0, 1}}, "short");
      tensor = made(group, true, kCount, 1);
      group.all_reduce(*tensor);
      memory = group.shared_memory();
      group.shutdown();
    }
    EXPECT_TRUE(equal(*tensor, flat_full(kCount, 2)));
    const HostAllocatorScope scope(*memory);
    const LocalTensor another = flat_full(kCount, 3);
    given.all_reduce(another);
    EXPECT_TRUE(equal(another, flat_full(kCount, 6)));
  });
}

TEST(SharedTensorsTest, ASmallTensorHasOrdinaryMemory) {
  run_ranks(1, {.shared_memory = true}, [](const ProcessGroup& group) {
    const auto heap = std::dynamic_pointer_cast<cpu::TensorHeap>(group.shared_memory());
    ASSERT_TRUE(heap);
    const LocalTensor few = flat_full(8, 1), many = flat_full(kCount, 1);
    EXPECT_FALSE(heap->offset_of(few.data()));
    EXPECT_TRUE(heap->offset_of(many.data()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(many.data()) % 64, 0u);
  });
}

class TensorHeapTest : public testing::Test {
 protected:
  const cpu::Commons commons_ = cpu::Commons::create(1);
  const std::shared_ptr<cpu::TensorHeap> heap_ = std::make_shared<cpu::TensorHeap>(commons_, 0);

  cpu::Offset offset_of(const tensors::StoragePointer& storage) const {
    return heap_->offset_of(storage->data()).value();
  }
};

TEST_F(TensorHeapTest, MemoryOfTensorsThatAreGoneServesOthersWholeOrInParts) {
  constexpr std::size_t kBlock = 1 << 20;
  tensors::StoragePointer first = heap_->allocate(kBlock), second = heap_->allocate(kBlock);
  const tensors::StoragePointer last = heap_->allocate(kBlock);
  const cpu::Offset begin = offset_of(first);
  EXPECT_EQ(offset_of(second), begin + kBlock);
  first = {};
  second = {};
  EXPECT_EQ(heap_->kept_bytes(), 2 * kBlock);
  // Neighbours have become one.
  tensors::StoragePointer both = heap_->allocate(2 * kBlock);
  EXPECT_EQ(offset_of(both), begin);
  EXPECT_EQ(heap_->kept_bytes(), 0u);
  both = {};
  const tensors::StoragePointer part = heap_->allocate(kBlock / 2);
  const tensors::StoragePointer rest = heap_->allocate(3 * kBlock / 2);
  EXPECT_EQ(offset_of(part), begin);
  EXPECT_EQ(offset_of(rest), begin + kBlock / 2);
  EXPECT_EQ(heap_->kept_bytes(), 0u);
}

TEST_F(TensorHeapTest, NoMoreThanItsShareIsKept) {
  const auto resident = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(commons_.fd(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  };
  const std::size_t before = resident();
  constexpr std::size_t kBlock = cpu::TensorHeap::kMostKeptBytes / 2;
  std::vector<tensors::StoragePointer> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(heap_->allocate(kBlock));
  EXPECT_GE(resident(), before + 3 * kBlock);
  blocks.clear();
  EXPECT_EQ(heap_->kept_bytes(), 2 * kBlock);
  EXPECT_LE(resident(), before + 2 * kBlock + (1 << 20));
  // The hole is memory again.
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(heap_->allocate(kBlock));
    std::memset(blocks.back()->data(), 1, kBlock);
  }
  EXPECT_GE(resident(), before + 3 * kBlock);
}

// Holes and kept memory side by side serve a tensor that needs both, so the span does not run out.
TEST_F(TensorHeapTest, MemoryAndHolesSideBySideServeALargeTensor) {
  constexpr std::size_t kBlock = cpu::TensorHeap::kMostKeptBytes / 2;
  std::vector<tensors::StoragePointer> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(heap_->allocate(kBlock));
  const cpu::Offset second = offset_of(blocks[1]), end = offset_of(blocks[4]) + kBlock;
  // Two are kept, the third is given back, between two that are in use.
  for (const int i : {1, 3, 2}) blocks[static_cast<std::size_t>(i)] = {};
  EXPECT_EQ(heap_->kept_bytes(), 2 * kBlock);
  tensors::StoragePointer large = heap_->allocate(5 * kBlock / 2);
  EXPECT_EQ(offset_of(large), second);
  EXPECT_EQ(heap_->kept_bytes(), kBlock / 2);
  std::memset(large->data(), 1, 5 * kBlock / 2);
  const tensors::StoragePointer rest = heap_->allocate(kBlock / 2);
  EXPECT_EQ(offset_of(rest), second + 5 * kBlock / 2);
  EXPECT_EQ(heap_->kept_bytes(), 0u);
  // Not even neighbours together are enough.
  large = {};
  EXPECT_EQ(offset_of(heap_->allocate(3 * kBlock)), end);
}

TEST_F(TensorHeapTest, TheLastMemoryGrowsIntoTheUnusedEnd) {
  constexpr std::size_t kBlock = 1 << 20;
  const tensors::StoragePointer first = heap_->allocate(kBlock);
  tensors::StoragePointer last = heap_->allocate(kBlock);
  const cpu::Offset begin = offset_of(last);
  last = {};
  tensors::StoragePointer large = heap_->allocate(3 * kBlock);
  EXPECT_EQ(offset_of(large), begin);
  EXPECT_EQ(heap_->kept_bytes(), 0u);
  std::memset(large->data(), 1, 3 * kBlock);
  EXPECT_EQ(offset_of(heap_->allocate(kBlock)), begin + 3 * kBlock);
  large = {};
  EXPECT_EQ(heap_->kept_bytes(), 4 * kBlock);
}

/// From now on this process gets no memory for files from that offset on, below 4 GiB.
void refuse_memory_from(std::size_t offset) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + sizeof(std::uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, static_cast<std::uint32_t>(offset), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(2);
}

// Memory and holes in turn, of which some become memory before one does not.
TEST(TensorSpanTest, WhatCannotBeAllocatedTakesNoMemory) {
  constexpr std::size_t kBlock = cpu::TensorHeap::kMostKeptBytes / 2;
  // The third block is refused; or the unused end behind the fifth, into which the last one grows.
  for (const std::size_t refused : {2, 5}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const cpu::Commons commons = cpu::Commons::create(1);
      const auto heap = std::make_shared<cpu::TensorHeap>(commons, 0);
      const auto resident = [&] {
        struct stat status {};
        return ::fstat(commons.fd(), &status) == 0 ? status.st_blocks : -1;
      };
      std::vector<tensors::StoragePointer> blocks;
      for (int i = 0; i < 5; ++i) blocks.push_back(heap->allocate(kBlock));
      for (const std::size_t i : {1, 3, 2, 0}) blocks[i] = {};
      if (refused == 5) blocks[4] = {};
      const auto before = resident();
      refuse_memory_from(commons.tensors_offset(0) + refused * kBlock);
      const auto error = error_of([&] { heap->allocate((refused + 1) * kBlock); });
      const bool is_refused = error && error->code() == base::ErrorCode::kSystem;
      const bool is_same = resident() == before && heap->kept_bytes() == 2 * kBlock;
      ::_exit(is_refused && is_same ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << refused;
  }
}

// A rank that has left takes no memory, whoever else still has the commons.
TEST_F(TensorHeapTest, ItsEndGivesAllMemoryBack) {
  const auto blocks = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(commons_.fd(), &status), 0);
    return status.st_blocks;
  };
  const auto before = blocks();
  auto heap = std::make_shared<cpu::TensorHeap>(commons_, 0);
  tensors::StoragePointer block = heap->allocate(1 << 20);
  heap = nullptr;  // the tensor has it
  std::memset(block->data(), 1, 1 << 20);
  EXPECT_GE(blocks(), before + 2048);
  block = {};
  EXPECT_EQ(blocks(), before);
}

TEST_F(TensorHeapTest, ATensorCountsAsHostMemory) {
  const tensors::HostMemoryMeter meter;
  {
    const HostAllocatorScope scope(*heap_);
    const LocalTensor tensor = flat_full(kCount, 1);
    EXPECT_EQ(meter.now(), 4 * kCount);
  }
  EXPECT_EQ(meter.now(), 0);
}

TEST_F(TensorHeapTest, MoreThanThereIsIsRefused) {
  const auto error = error_of([&] { heap_->allocate(cpu::Commons::kTensorSpan + 1); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kSystem);
  EXPECT_TRUE(heap_->allocate(1 << 20)->data());
}

TEST_F(TensorHeapTest, AForkedChildGivesAndTakesNothing) {
  // So much that nothing of it would be kept.
  constexpr std::size_t kBytes = cpu::TensorHeap::kMostKeptBytes + 4096;
  tensors::StoragePointer block = heap_->allocate(kBytes);
  std::memset(block->data(), 7, kBytes);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto error = error_of([&] { heap_->allocate(1 << 20); });
    const bool is_refused = error && error->code() == base::ErrorCode::kUsage;
    block = {};
    ::_exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(static_cast<const char*>(block->data())[0], 7);
  EXPECT_EQ(static_cast<const char*>(block->data())[kBytes - 1], 7);
}

TEST(TensorSpanTest, ALimitOfFileSizesIsNamedWhereTheMemoryIsAskedFor) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit limit{std::size_t{8} << 30, std::size_t{8} << 30};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const cpu::Commons commons = cpu::Commons::create(2);
    const auto error = error_of([&] { cpu::TensorHeap(commons, 0); });
    const bool is_named =
        error && std::string(error->what()).find("ulimit -f") != std::string::npos;
    ::_exit(is_named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace dtrun::collectives
