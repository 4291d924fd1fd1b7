#include "bench/copy_bound.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "bench/measurement.h"
#include "bench/neighbours_memory.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::bench {
namespace {

constexpr int kSamples = 20;
constexpr int kWarmup = 3;

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

/// The second that copies took. Ranks of one machine have one clock: where they take turns at its
/// cores, they copy from the first one's begin to the last one's end.
/// @param intervals of each rank: begin, end
double seconds_of_all(std::span<const double> intervals, bool has_one_clock) {
  double begin = intervals[0], end = intervals[1], slowest = 0;
  for (std::size_t i = 0; i < intervals.size(); i += 2) {
    begin = std::min(begin, intervals[i]);
    end = std::max(end, intervals[i + 1]);
    slowest = std::max(slowest, intervals[i + 1] - intervals[i]);
  }
  return has_one_clock ? end - begin : slowest;
}

struct Copies {
  std::function<void(int sample)> write;  ///< the source, differently for each sample
  std::function<void()> copy;
  bool has_one_clock;
};

/// The median second of a copy by those ranks.
double seconds_of(Contender& contender, const Copies& copies, bool all) {
  std::vector<double> times;
  for (int sample = -kWarmup; sample < kSamples; ++sample) {
    copies.write(sample);
    contender.barrier();
    const double begin = now();
    if (all || contender.rank() == 0) copies.copy();
    const double end = now();
    // Nobody writes before its neighbour has read.
    contender.barrier();
    const std::vector<double> intervals = contender.collect({begin, end});
    if (sample < 0 || contender.rank() != 0) continue;
    const std::span copied(intervals.data(), all ? intervals.size() : 2);
    times.push_back(seconds_of_all(copied, copies.has_one_clock));
  }
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : percentile(times, 0.5);
}

CopyBandwidth bandwidth_of(Contender& contender, std::size_t bytes, const Copies& copies) {
  const double all = seconds_of(contender, copies, true);
  const double one = seconds_of(contender, copies, false);
  if (contender.rank() != 0) return {};
  const auto size = static_cast<double>(bytes);
  return {size * contender.size() / all, size / one};
}

CopyBandwidth bandwidth_on_host(Contender& contender, std::size_t bytes) {
  const NeighboursMemory memory(contender, bytes);
  if (!memory.exists()) return {};
  const std::byte* const source = memory.is_shared() ? memory.neighbours() : memory.own();
  std::vector<std::byte> target(bytes);
  return bandwidth_of(contender, bytes,
                      {.write = [&](int sample) { std::memset(memory.own(), sample & 1, bytes); },
                       .copy = [&] { std::memcpy(target.data(), source, bytes); },
                       .has_one_clock = memory.is_shared()});
}

CopyBandwidth bandwidth_on_gpu(Contender& contender, std::size_t bytes) {
  const tensors::Device device = contender.device();
  const tensors::TensorOptions options{.dtype = tensors::DType::u8, .device = device};
  const auto source = tensors::zeros({static_cast<std::int64_t>(bytes)}, options);
  const auto target = tensors::zeros({static_cast<std::int64_t>(bytes)}, options);
  const auto synchronize = [&] { tensors::cuda::synchronize(device.index); };
  return bandwidth_of(contender, bytes,
                      {.write =
                           [&](int sample) {
                             source.fill_(sample & 1);
                             synchronize();
                           },
                       .copy =
                           [&] {
                             target.copy_(source);
                             synchronize();
                           },
                       .has_one_clock = false});
}

}  // namespace

CopyBandwidth copy_bandwidth(Contender& contender, std::size_t bytes) {
  const std::size_t size = std::min(bytes, kMostCopiedBytes);
  return contender.device().is_cpu() ? bandwidth_on_host(contender, size)
                                     : bandwidth_on_gpu(contender, size);
}

double copy_bound(const Call& call, int ranks, const CopyBandwidth& bandwidth) {
  if (bandwidth.of_all <= 0 || bandwidth.of_one <= 0) return 0;
  return 1e6 * std::max(bytes_moved(call, ranks) / bandwidth.of_all,
                        bytes_of_busiest(call, ranks) / bandwidth.of_one);
}

double measured_copy_bound(Contender& contender, const Call& call) {
  const int ranks = contender.size();
  if (!has_bound(call, ranks)) return 0;
  return copy_bound(call, ranks, copy_bandwidth(contender, size_in_bytes(call, ranks)));
}

}  // namespace dtrun::bench
