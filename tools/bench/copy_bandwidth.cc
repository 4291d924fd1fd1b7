#include "bench/copy_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "bench/measurement.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::bench {
namespace {

constexpr int kSamples = 20;
constexpr int kWarmup = 3;

void copy(const tensors::LocalTensor& target, const tensors::LocalTensor& source) {
  if (source.device().is_cpu()) {
    std::memcpy(target.data(), source.data(), source.bytes());
    return;
  }
  target.copy_(source);
  tensors::cuda::synchronize(source.device().index);
}

}  // namespace

double copy_bandwidth(Contender& contender, std::size_t bytes) {
  const tensors::TensorOptions options{.dtype = tensors::DType::u8, .device = contender.device()};
  const auto size = static_cast<std::int64_t>(std::min(bytes, kMostCopiedBytes));
  const auto source = tensors::zeros({size}, options);
  const auto target = tensors::zeros({size}, options);
  std::vector<double> times;
  for (int sample = -kWarmup; sample < kSamples; ++sample) {
    source.fill_(sample & 1);
    if (!source.device().is_cpu()) tensors::cuda::synchronize(source.device().index);
    contender.barrier();
    const auto start = std::chrono::steady_clock::now();
    copy(target, source);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (sample >= 0) times.push_back(time.count());
  }
  const std::vector<double> slowest = slowest_of(contender.collect(times), times.size());
  if (contender.rank() != 0) return 0;
  return static_cast<double>(size) * contender.size() / percentile(slowest, 0.5);
}

}  // namespace dtrun::bench
