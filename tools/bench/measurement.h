// Measurement: how long one call takes, over many samples, and whether its results are right. Every
// sample begins with buffers that were just written, all ranks having met. A sample's time is the
// slowest rank's. Small calls are timed in batches, each call in a buffer of its own, because
// reading a clock takes a good part of one.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/contender.h"

namespace dtrun::bench {

enum class Check { results, nothing };

struct Sampling {
  int samples = 100;
  int warmup = 10;
  int calls = 0;  ///< timed together as one sample; 0: chosen by size
  Check check = Check::results;
};

/// On rank 0; elsewhere all 0. Microseconds of one call.
struct Measurement {
  double mean = 0;
  double p50 = 0;
  double p99 = 0;
  double least = 0;
  int calls = 1;            ///< in a sample
  std::uint64_t wrong = 0;  ///< elements, of all calls on all ranks; the warm-up's are counted, too
};

/// Collective. @throws base::Error what the operation throws
Measurement measure(Contender& contender, const Call& call, const Sampling& sampling);

/// What Contender::collect() gave, as the slowest rank's times, sorted. @param samples of each rank
std::vector<double> slowest_of(const std::vector<double>& collected, std::size_t samples);
/// The value below which that part of them lies. @param sorted not empty
double percentile(const std::vector<double>& sorted, double part);

}  // namespace dtrun::bench
