#include "loops/thread_pool.h"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "dtrun/base/blocked_signals.h"
#include "dtrun/base/cpu_list.h"
#include "dtrun/base/cpu_quota.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/futex.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::tensors {
namespace {

constexpr int kMostThreads = 1024;
/// Workers spin about 20 us after a loop, because the next operation usually comes sooner.
constexpr int kSpins = 500;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Counts forks: in a forked child the parent's pools have no threads.
std::atomic<std::uint32_t> fork_generation{0};

void count_forks() {
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
  static_cast<void>(registered);
}

/// A forked child keeps its copies of the parent's pools here: they cannot be used or freed, and
/// are still reachable for the leak checker.
struct Abandoned {
  std::unique_ptr<ThreadPool> pool;
  Abandoned* next;
};
std::atomic<Abandoned*> abandoned{nullptr};

struct PoolOfThread {
  std::unique_ptr<ThreadPool> pool;
  std::uint32_t generation = 0;
  int wanted = 0;  ///< 0: nobody has said
  bool inside = false;

  ~PoolOfThread() {
    if (pool && generation != fork_generation.load()) abandon();
  }
  void abandon() { abandoned = new Abandoned{std::move(pool), abandoned.load()}; }
};
thread_local PoolOfThread pool_of_thread;

int default_threads() {
  const auto named = [](const char* name) -> long long {
    const auto text = base::get_env(name);
    return text ? base::parse_integer(*text).value_or(0) : 0;
  };
  if (const long long count = named("OMP_NUM_THREADS"); count > 0)
    return static_cast<int>(std::min<long long>(count, kMostThreads));
  const long long ranks = std::max(1LL, named("LOCAL_WORLD_SIZE"));
  auto cpus = static_cast<double>(base::allowed_cpus().size());
  // With more threads than the container's quota the kernel would throttle some in the middle of a
  // loop.
  if (const std::optional<base::CpuQuota> quota = base::cpu_quota())
    cpus = std::min(cpus, std::ceil(quota->cpus));
  const auto share = static_cast<long long>(cpus) / ranks;
  return static_cast<int>(std::clamp<long long>(share, 1, kMostThreads));
}

ThreadPool& current_pool(PoolOfThread& mine) {
  const std::uint32_t generation = fork_generation.load(std::memory_order_relaxed);
  if (mine.pool && mine.generation != generation) mine.abandon();
  if (mine.pool && mine.pool->threads() != num_threads()) mine.pool.reset();
  if (!mine.pool) {
    count_forks();
    mine.pool = std::make_unique<ThreadPool>(num_threads());
    mine.generation = fork_generation.load();
  }
  return *mine.pool;
}

/// Marks the thread as one that runs chunks.
class InsideLoop {
 public:
  explicit InsideLoop(PoolOfThread& mine) : mine_(mine) { mine_.inside = true; }
  ~InsideLoop() { mine_.inside = false; }
  InsideLoop(const InsideLoop&) = delete;
  InsideLoop& operator=(const InsideLoop&) = delete;

 private:
  PoolOfThread& mine_;
};

}  // namespace

int num_threads() {
  PoolOfThread& mine = pool_of_thread;
  if (mine.wanted == 0) mine.wanted = default_threads();
  return mine.wanted;
}

void set_num_threads(int count) {
  if (count < 1 || count > kMostThreads) {
    throw base::Error(base::ErrorCode::kInvalidArgument, fmt::format("set_num_threads({})", count),
                      fmt::format("a thread computes with 1 to {} threads", kMostThreads),
                      "as many as the rank has CPUs");
  }
  pool_of_thread.wanted = count;
}

// With more threads than CPUs a spinning thread keeps another one from working.
ThreadPool::ThreadPool(int threads)
    : threads_(threads),
      spins_(static_cast<std::size_t>(threads) <= base::allowed_cpus().size() ? kSpins : 0),
      shares_(static_cast<std::size_t>(threads)) {
  // Signals are left to the program's own threads.
  const base::BlockedSignals blocked;
  try {
    for (std::size_t own = 1; own < shares_.size(); ++own)
      workers_.emplace_back([this, own] { work(own); });
  } catch (const std::system_error&) {
    // A thread that cannot be started is no error: results do not depend on the number of threads.
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  epoch_.fetch_add(1);
  base::futex_wake_all(epoch_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const ChunkedLoop& loop) {
  loop_ = loop;
  failure_ = nullptr;
  failed_chunk_.store(kNone, std::memory_order_relaxed);
  const std::int64_t chunks = loop.chunks();
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].next.store(begin, std::memory_order_relaxed);
    begin += (chunks - begin) / static_cast<std::int64_t>(shares_.size() - i);
    shares_[i].end = begin;
  }
  open_.store(true);
  epoch_.fetch_add(1);
  if (sleepers_.load() != 0) base::futex_wake_all(epoch_);
  run_chunks(0);
  open_.store(false);
  wait_until_left();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::run_chunks(std::size_t own) {
  for (std::size_t i = 0; i < shares_.size(); ++i) run_share(shares_[(own + i) % shares_.size()]);
}

void ThreadPool::run_share(Share& share) {
  for (;;) {
    // Checked before counting: a late worker must not change the counter that the others use.
    if (share.next.load(std::memory_order_relaxed) >= share.end) return;
    const std::int64_t chunk = share.next.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= share.end) return;
    if (chunk > failed_chunk_.load(std::memory_order_relaxed)) continue;
    try {
      loop_.run_chunk(chunk);
    } catch (...) {
      note_failure(chunk);
    }
  }
}

void ThreadPool::note_failure(std::int64_t chunk) {
  const std::lock_guard lock(failure_mutex_);
  if (failed_chunk_.load() < chunk) return;
  failure_ = std::current_exception();
  failed_chunk_.store(chunk);
}

void ThreadPool::wait_until_left() {
  for (int spin = 0; spin < spins_; ++spin) {
    if (inside_.load() == 0) return;
    pause_briefly();
  }
  caller_sleeps_.store(true);
  for (std::uint32_t inside = inside_.load(); inside != 0; inside = inside_.load()) {
    base::futex_wait(inside_, inside, base::Deadline::never());
  }
  caller_sleeps_.store(false);
}

std::uint32_t ThreadPool::next_epoch(std::uint32_t seen) {
  for (int spin = 0; spin < spins_; ++spin) {
    const std::uint32_t epoch = epoch_.load();
    if (epoch != seen) return epoch;
    pause_briefly();
  }
  sleepers_.fetch_add(1);
  std::uint32_t epoch = epoch_.load();
  for (; epoch == seen; epoch = epoch_.load()) {
    base::futex_wait(epoch_, seen, base::Deadline::never());
  }
  sleepers_.fetch_sub(1);
  return epoch;
}

void ThreadPool::work(std::size_t own) {
  ::pthread_setname_np(::pthread_self(), "dtrun-compute");
  const InsideLoop inside(pool_of_thread);
  std::uint32_t seen = 0;
  while (!stopping_.load()) {
    // The worker enters before it checks whether the loop is open. The caller closes the loop
    // before it checks who is inside. So one of them sees the other.
    inside_.fetch_add(1);
    if (open_.load()) run_chunks(own);
    if (inside_.fetch_sub(1) == 1 && caller_sleeps_.load()) base::futex_wake_all(inside_);
    seen = next_epoch(seen);
  }
}

void run_in_chunks(const ChunkedLoop& loop) {
  if (ShapesOnly::stands()) return;
  PoolOfThread& mine = pool_of_thread;
  if (mine.inside || num_threads() == 1) {
    for (std::int64_t chunk = 0; chunk < loop.chunks(); ++chunk) loop.run_chunk(chunk);
    return;
  }
  ThreadPool& pool = current_pool(mine);
  const InsideLoop inside(mine);
  pool.run(loop);
}

void parallel_for_each(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  // It may be anything, such as reading files.
  const ShapesOnly computed(false);
  parallel_for(count, 1, [&](std::int64_t index, std::int64_t) { body(index); });
}

}  // namespace dtrun::tensors
