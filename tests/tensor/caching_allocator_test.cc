#include "cuda/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "cuda/context.h"
#include "dtrun/base/error.h"
#include "tensor/simulated_cuda.h"

namespace dtrun::tensors::cuda {
namespace {

using base::Error;
using base::ErrorCode;
constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(BlockPoolTest, SegmentsHaveTheSizesOfTheDesign) {
  EXPECT_EQ(segment_bytes(0), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB + 1), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(segment_bytes(11 * kMiB), 12 * kMiB);
}

/// Blocks fill their segments without gap or overlap, and no two free ones are neighbours.
void expect_sound(const BlockPool& pool) {
  std::size_t taken = 0;
  std::size_t all = 0;
  const Block* previous = nullptr;
  for (const Block* block : pool.blocks()) {
    ASSERT_EQ(block->bytes % kBlockUnit, 0u);
    ASSERT_TRUE(previous == nullptr || previous->data + previous->bytes <= block->data);
    if (block->previous != nullptr) {
      ASSERT_EQ(block->previous, previous);
      ASSERT_EQ(previous->next, block);
      ASSERT_EQ(previous->data + previous->bytes, block->data);
      ASSERT_FALSE(previous->state == Block::State::free && block->state == Block::State::free);
    }
    all += block->bytes;
    if (block->state != Block::State::free) taken += block->bytes;
    previous = block;
  }
  ASSERT_EQ(pool.stats().allocated, taken);
  ASSERT_EQ(pool.stats().reserved, all);
}

TEST(BlockPoolTest, RandomUseKeepsTheBlocksSoundAndGivesAllBack) {
  std::mt19937 random(7);
  BlockPool pool;
  std::vector<std::vector<char>> memory;
  std::vector<Block*> taken;
  StreamHandle streams[] = {nullptr, reinterpret_cast<StreamHandle>(std::uintptr_t{8})};
  for (int step = 0; step < 4000; ++step) {
    if (taken.empty() || random() % 5 < 3) {
      const std::size_t bytes = random() % 20 == 0 ? random() % (12 * kMiB) : random() % (kMiB / 2);
      StreamHandle stream = streams[random() % 2];
      Block* block = pool.take(bytes, stream);
      if (block == nullptr) {
        memory.emplace_back(segment_bytes(bytes));
        pool.add_segment({memory.back().data(), memory.back().size()}, bytes, stream);
        block = pool.take(bytes, stream);
      }
      ASSERT_NE(block, nullptr);
      ASSERT_GE(block->bytes, std::max<std::size_t>(bytes, 1));
      ASSERT_EQ(block->stream, stream);
      ASSERT_EQ(pool.find(block->data), block);
      taken.push_back(block);
    } else {
      std::swap(taken[random() % taken.size()], taken.back());
      pool.give_back(taken.back());
      taken.pop_back();
    }
    if (step % 16 == 0) expect_sound(pool);
    if (taken.size() > 60) {
      for (int k = 0; k < 40; ++k) {
        pool.give_back(taken.back());
        taken.pop_back();
      }
    }
  }
  for (Block* block : taken) pool.give_back(block);
  expect_sound(pool);
  EXPECT_EQ(pool.remove_free_segments().size(), memory.size());
  EXPECT_EQ(pool.stats().reserved, 0u);
  EXPECT_GT(pool.stats().reserved_peak, 0u);
  EXPECT_TRUE(pool.blocks().empty());
}

class CachingAllocatorTest : public ::testing::Test {
 protected:
  CachingAllocator& allocator() { return context_.allocator; }
  int count(const std::string& call) {
    const std::vector<std::string> calls = simulation_.calls();
    return static_cast<int>(std::count(calls.begin(), calls.end(), call));
  }

  SimulatedCuda simulation_{{.devices = 2, .bytes = 64 * kMiB}};
  CudaContext context_{SimulatedCuda::api(), SimulatedCuda::blas()};
  ContextGuard guard_{context_};
  const Stream main_ = Stream::of_default(0);
};

TEST_F(CachingAllocatorTest, MemoryIsReusedOnItsStreamAtOnce) {
  void* first = allocator().allocate(1000, main_);
  allocator().release(first, 0);
  EXPECT_EQ(allocator().allocate(1000, main_), first);
  EXPECT_NE(allocator().allocate(1000, Stream::from_pool(0)), first);
  EXPECT_EQ(count("malloc"), 2);
  EXPECT_EQ(allocator().stats(0).allocated, 2048u);
  EXPECT_EQ(allocator().stats(0).reserved, 4 * kMiB);
  EXPECT_EQ(allocator().stats(1).reserved, 0u);
}

TEST_F(CachingAllocatorTest, NothingAskedForHasAnAddressOfItsOwn) {
  void* first = allocator().allocate(0, main_);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(allocator().allocate(0, main_), first);
}

TEST_F(CachingAllocatorTest, MemoryThatAnotherStreamUsesWaitsForItsEvent) {
  const Stream other = Stream::from_pool(0);
  void* data = allocator().allocate(1000, main_);
  allocator().record_stream(data, 0, other);
  allocator().record_stream(data, 0, other);
  allocator().record_stream(data, 0, main_);
  allocator().release(data, 0);
  EXPECT_EQ(count("event_record"), 1);
  EXPECT_EQ(allocator().stats(0).allocated, 1024u) << "it is still waited for";
  EXPECT_NE(allocator().allocate(1000, main_), data);
  other.synchronize();
  EXPECT_EQ(allocator().allocate(1000, main_), data);
  EXPECT_EQ(simulation_.live_events(), 0);
}

TEST_F(CachingAllocatorTest, AStreamOfAnotherDeviceIsWaitedForThere) {
  void* data = allocator().allocate(1000, main_);
  const Stream far = Stream::of_default(1);
  allocator().record_stream(data, 0, far);
  allocator().release(data, 0);
  EXPECT_EQ(count("event_record"), 1);
  EXPECT_NE(allocator().allocate(1000, main_), data);
  far.synchronize();
  EXPECT_EQ(allocator().allocate(1000, main_), data);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(CachingAllocatorTest, OutOfMemoryFirstGivesBackWhatIsCached) {
  void* large = allocator().allocate(40 * kMiB, main_);
  const Stream other = Stream::from_pool(0);
  allocator().record_stream(large, 0, other);
  allocator().release(large, 0);
  // 64 MiB are there, 40 of them kept for a stream that is not done.
  void* next = allocator().allocate(50 * kMiB, main_);
  EXPECT_NE(next, nullptr);
  EXPECT_EQ(count("free"), 1);
  EXPECT_EQ(simulation_.bytes_in_use(0), 50 * kMiB);
  EXPECT_EQ(simulation_.live_events(), 0);
}

TEST_F(CachingAllocatorTest, OutOfMemorySaysWhoHasWhat) {
  void* held = allocator().allocate(30 * kMiB, main_);
  try {
    allocator().allocate(40 * kMiB, main_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_EQ(error.summary(), "cannot allocate 40.00 MiB on cuda:0");
    EXPECT_EQ(
        error.why(),
        "34.00 MiB of the device's 64.00 MiB are free; this process holds 30.00 MiB, of which "
        "30.00 MiB are in tensors");
  }
  allocator().release(held, 0);
  EXPECT_NE(allocator().allocate(40 * kMiB, main_), nullptr);
}

TEST_F(CachingAllocatorTest, AnAbsurdSizeIsRefusedWithoutTheDevicesWord) {
  simulation_.fail_next("memory_info", Status::invalid_value);
  try {
    allocator().allocate(std::size_t{1} << 62, main_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.summary(), "cannot allocate 4294967296.00 GiB on cuda:0");
    EXPECT_NE(error.why().find("does not say"), std::string::npos);
  }
  EXPECT_EQ(count("malloc"), 0);
}

TEST_F(CachingAllocatorTest, OtherFailuresKeepTheirOwnWords) {
  simulation_.fail_next("malloc", Status::invalid_value);
  try {
    allocator().allocate(500, main_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.summary(), "cannot allocate 500 bytes on cuda:0");
    EXPECT_EQ(error.why(), "a simulated failure (simulated)");
  }
  EXPECT_THROW(allocator().allocate(8, Stream::of_default(9)), Error);
}

TEST_F(CachingAllocatorTest, ABlockWhoseEventFailsStaysTaken) {
  for (const char* call : {"event_create", "event_record"}) {
    void* data = allocator().allocate(700, main_);
    allocator().record_stream(data, 0, Stream::from_pool(0));
    simulation_.fail_next(call, Status::invalid_value);
    allocator().release(data, 0);
  }
  EXPECT_EQ(allocator().stats(0).allocated, 2048u);
  EXPECT_EQ(simulation_.live_events(), 0);
}

TEST_F(CachingAllocatorTest, ABrokenContextIsNamed) {
  void* data = allocator().allocate(700, main_);
  simulation_.break_context();
  allocator().release(data, 0);
  try {
    allocator().allocate(9 * kMiB, main_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.why().find("an earlier kernel has failed"), std::string::npos) << error.what();
  }
}

/// Each block's owner writes its number on the streams that use it, and reads it back there last.
/// If memory went to a new owner too early, one would find another's number.
TEST_F(CachingAllocatorTest, RandomStreamsNeverMeetInOneBlock) {
  struct Owned {
    std::uint32_t* data;
    std::size_t words;
    std::uint32_t number;
    Stream home;
  };
  std::mt19937 random(11);
  std::vector<Stream> streams = {main_};
  for (int i = 0; i < 3; ++i) streams.push_back(Stream::from_pool(0));
  std::vector<Owned> owned;
  int wrong = 0;
  static int* wrong_words = nullptr;
  wrong_words = &wrong;
  struct Task {
    std::uint32_t* data;
    std::size_t words;
    std::uint32_t number;
  };
  const auto enqueue = [&](const Stream& stream, const Task& task, void (*function)(void*)) {
    const DeviceGuard guard(0);
    check(SimulatedCuda::api(),
          SimulatedCuda::api().launch_host_function(stream.handle(), function, new Task(task)),
          "enqueue");
  };
  const auto write = [](void* argument) {
    const std::unique_ptr<Task> task(static_cast<Task*>(argument));
    std::fill_n(task->data, task->words, task->number);
  };
  const auto compare = [](void* argument) {
    const std::unique_ptr<Task> task(static_cast<Task*>(argument));
    for (std::size_t i = 0; i < task->words; ++i) *wrong_words += task->data[i] != task->number;
  };
  for (std::uint32_t step = 1; step < 3000; ++step) {
    if (owned.size() < 20 && random() % 2 == 0) {
      const Stream home = streams[random() % streams.size()];
      const std::size_t words = 1 + random() % 3000;
      auto* data = static_cast<std::uint32_t*>(allocator().allocate(words * 4, home));
      owned.push_back({data, words, step, home});
      enqueue(home, {data, words, step}, write);
    } else if (!owned.empty()) {
      std::swap(owned[random() % owned.size()], owned.back());
      const Owned gone = owned.back();
      owned.pop_back();
      const Stream user = streams[random() % streams.size()];
      user.wait(gone.home);
      allocator().record_stream(gone.data, 0, user);
      enqueue(user, {gone.data, gone.words, gone.number}, compare);
      allocator().release(gone.data, 0);
    }
    simulation_.run_some(random, static_cast<int>(random() % 4));
  }
  for (const Owned& rest : owned) allocator().release(rest.data, 0);
  synchronize(0);
  EXPECT_EQ(wrong, 0);
  empty_cache();
  EXPECT_EQ(simulation_.bytes_in_use(0), 0u);
  EXPECT_EQ(allocator().stats(0).allocated, 0u);
  EXPECT_EQ(simulation_.live_events(), 0);
}

TEST_F(CachingAllocatorTest, ThreadsShareADevice) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const Stream home = Stream::from_pool(t % 2);
      const Stream other = Stream::from_pool(t % 2);
      for (int step = 0; step < 300; ++step) {
        const std::size_t bytes = 1 + random() % 5000;
        void* data = allocator().allocate(bytes, home);
        std::memset(data, t, bytes);
        if (random() % 3 == 0) allocator().record_stream(data, t % 2, other);
        allocator().release(data, t % 2);
        if (random() % 50 == 0) empty_cache();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  empty_cache();
  EXPECT_EQ(simulation_.bytes_in_use(0) + simulation_.bytes_in_use(1), 0u);
}

}  // namespace
}  // namespace dtrun::tensors::cuda
