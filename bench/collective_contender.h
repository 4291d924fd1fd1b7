// CollectiveContender: one library's all_reduce, as one rank of collective_bench sees it, and the
// loop that times it. Every contender is a program of its own, started by its own launcher, and
// runs this same loop; rank 0 prints a line per size: bytes, minimum and median in microseconds.
#pragma once

#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace dtrun::bench {

class CollectiveContender {
 public:
  virtual ~CollectiveContender() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The tensor of the next calls.
  virtual float* prepare(std::size_t count) = 0;
  /// Sums the prepared tensor over all ranks, in place.
  virtual void all_reduce() = 0;
  virtual void barrier() = 0;
};

/// Small calls are timed in batches: a clock read would be a good part of one.
inline constexpr std::size_t kBatchedBytes = 4096;

class CollectiveTiming {
 public:
  explicit CollectiveTiming(CollectiveContender& contender) : contender_(contender) {}

  /// Times `samples` samples of one size, after a tenth as many to warm up.
  void run(std::size_t bytes, int samples) {
    count_ = std::max<std::size_t>(bytes / sizeof(float), 1);
    data_ = contender_.prepare(count_);
    const int batch = bytes <= kBatchedBytes ? batch_calls() : 1;
    std::vector<double> times;
    for (int sample = -(samples / 10 + 2); sample < samples; ++sample) {
      const double time = time_batch(batch);
      if (sample >= 0) times.push_back(time);
    }
    if (contender_.rank() != 0) return;
    std::sort(times.begin(), times.end());
    std::printf("%zu %.4f %.4f\n", bytes, times.front(), times[times.size() / 2]);
    std::fflush(stdout);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// A batch sums in place again and again; size()^calls must stay an exact float.
  int batch_calls() const {
    return 120 / std::max(1, static_cast<int>(std::bit_width(unsigned(contender_.size()) - 1)));
  }

  /// Every rank writes its tensor anew, all meet, rank 0's clock runs, everybody checks the sums.
  double time_batch(int calls) {
    for (std::size_t i = 0; i < count_; ++i) data_[i] = value(i, contender_.rank());
    contender_.barrier();
    const Clock::time_point start = Clock::now();
    for (int call = 0; call < calls; ++call) contender_.all_reduce();
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    check(calls);
    return time.count() / calls;
  }

  static float value(std::size_t index, int rank) {
    return static_cast<float>(index % 1000 + 1) * static_cast<float>(rank + 1);
  }

  void check(int calls) const {
    const auto ranks = static_cast<float>(contender_.size());
    float factor = 0;
    for (int rank = 0; rank < contender_.size(); ++rank) factor += static_cast<float>(rank + 1);
    for (int call = 1; call < calls; ++call) factor *= ranks;
    for (std::size_t i = 0; i < count_; ++i) {
      if (data_[i] == value(i, 0) * factor) continue;
      std::fprintf(stderr, "rank %d: element %zu is %g instead of %g\n", contender_.rank(), i,
                   static_cast<double>(data_[i]), static_cast<double>(value(i, 0) * factor));
      std::exit(1);
    }
  }

  CollectiveContender& contender_;
  std::size_t count_ = 0;
  float* data_ = nullptr;
};

/// Every rank on a core of its own, where there are enough: on a busy machine two ranks on one core
/// would say nothing about either library. mpirun does the same.
inline void bind_to_core(const CollectiveContender& contender) {
  if (contender.size() > static_cast<int>(std::thread::hardware_concurrency())) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(contender.rank()), &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) std::perror("bind to a core");
}

/// main() of a contender: arguments are pairs of bytes and samples.
inline int run_contender(CollectiveContender& contender, int argc, char** argv) {
  bind_to_core(contender);
  CollectiveTiming timing(contender);
  for (int i = 1; i + 1 < argc; i += 2)
    timing.run(std::strtoull(argv[i], nullptr, 10), std::atoi(argv[i + 1]));
  return 0;
}

}  // namespace dtrun::bench
