#include "bench/measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "bench/contents.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::bench {
namespace {

using tensors::LocalTensor;

constexpr std::size_t kBatchedBytes = 4096;
constexpr int kBatchedCalls = 64;

class Sampler {
 public:
  Sampler(Contender& contender, const Call& call, const Sampling& sampling)
      : contender_(contender),
        calls_(calls_of(contender, call, sampling)),
        check_(sampling.check),
        contents_(call, contender.rank(), contender.size()) {
    if (check_ == Check::results) require_exact(call, contender.size());
    for (int i = 0; i < calls_; ++i) {
      host_.push_back(make_buffers(call, tensors::kCpu));
      buffers_.push_back(contender.device().is_cpu() ? host_.back()
                                                     : make_buffers(call, contender.device()));
    }
    contender.prepare(call, buffers_);
  }

  int calls() const { return calls_; }
  std::uint64_t wrong() const { return wrong_; }

  /// Microseconds of one call, on this rank.
  double sample() {
    fill();
    contender_.barrier();
    wait_for_device();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < buffers_.size(); ++i) contender_.run(i);
    wait_for_device();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    check();
    return time.count() / calls_;
  }

 private:
  static int calls_of(const Contender& contender, const Call& call, const Sampling& sampling) {
    const bool is_small = size_in_bytes(call, contender.size()) <= kBatchedBytes;
    const int wanted = sampling.calls > 0 ? sampling.calls : (is_small ? kBatchedCalls : 1);
    return std::min(wanted, contender.most_buffers());
  }

  Buffers make_buffers(const Call& call, tensors::Device device) const {
    const auto make = [&](std::size_t count) {
      return tensors::zeros({static_cast<std::int64_t>(count)},
                            {.dtype = call.dtype, .device = device});
    };
    Buffers buffers;
    buffers.input = make(input_count(call, contender_.rank(), contender_.size()));
    buffers.output = is_in_place(call.operation)
                         ? buffers.input
                         : make(output_count(call, contender_.rank(), contender_.size()));
    return buffers;
  }

  void fill() {
    for (std::size_t i = 0; i < host_.size(); ++i) {
      const Buffers& host = host_[i];
      contents_.write(number_ + i, host.input.data_as<std::byte>(),
                      host.output.data_as<std::byte>());
      if (contender_.device().is_cpu()) continue;
      buffers_[i].input.copy_(host.input);
      if (host.output.numel() > 0) buffers_[i].output.copy_(host.output);
    }
  }

  void check() {
    for (std::size_t i = 0; i < host_.size() && check_ == Check::results; ++i) {
      if (!contender_.device().is_cpu() && host_[i].output.numel() > 0)
        host_[i].output.copy_(buffers_[i].output);
      wrong_ += contents_.count_wrong(number_ + i, host_[i].output.data_as<std::byte>());
    }
    number_ += host_.size();
  }

  void wait_for_device() const {
    if (!contender_.device().is_cpu()) tensors::cuda::synchronize(contender_.device().index);
  }

  Contender& contender_;
  int calls_;
  Check check_;
  Contents contents_;
  std::vector<Buffers> host_;
  std::vector<Buffers> buffers_;  ///< host_'s, or the device's
  std::uint64_t number_ = 0;      ///< of the next call
  std::uint64_t wrong_ = 0;
};

}  // namespace

std::vector<double> slowest_of(const std::vector<double>& collected, std::size_t samples) {
  std::vector<double> slowest(samples, 0);
  for (std::size_t i = 0; i < collected.size(); ++i)
    slowest[i % samples] = std::max(slowest[i % samples], collected[i]);
  std::sort(slowest.begin(), slowest.end());
  return slowest;
}

double percentile(const std::vector<double>& sorted, double part) {
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

Measurement measure(Contender& contender, const Call& call, const Sampling& sampling) {
  Sampler sampler(contender, call, sampling);
  for (int i = 0; i < sampling.warmup; ++i) sampler.sample();
  std::vector<double> times;
  for (int i = 0; i < sampling.samples; ++i) times.push_back(sampler.sample());
  const std::vector<double> slowest = slowest_of(contender.collect(times), times.size());
  Measurement result;
  result.calls = sampler.calls();
  for (const double wrong : contender.collect({static_cast<double>(sampler.wrong())}))
    result.wrong += static_cast<std::uint64_t>(wrong);
  if (contender.rank() != 0) return {};
  result.mean =
      std::accumulate(slowest.begin(), slowest.end(), 0.0) / static_cast<double>(slowest.size());
  result.p50 = percentile(slowest, 0.5);
  result.p99 = percentile(slowest, 0.99);
  result.least = slowest.front();
  return result;
}

}  // namespace dtrun::bench
