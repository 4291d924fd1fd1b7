#include "bench/copy_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "bench/measurement.h"
#include "bench/neighbours_memory.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::bench {
namespace {

constexpr int kSamples = 20;
constexpr int kWarmup = 3;

/// @param write the source, differently for each sample
double bandwidth_of(Contender& contender, std::size_t bytes,
                    const std::function<void(int sample)>& write,
                    const std::function<void()>& copy) {
  std::vector<double> times;
  for (int sample = -kWarmup; sample < kSamples; ++sample) {
    write(sample);
    contender.barrier();
    const auto start = std::chrono::steady_clock::now();
    copy();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    // Nobody writes before its neighbour has read.
    contender.barrier();
    if (sample >= 0) times.push_back(time.count());
  }
  const std::vector<double> slowest = slowest_of(contender.collect(times), times.size());
  if (contender.rank() != 0) return 0;
  return static_cast<double>(bytes) * contender.size() / percentile(slowest, 0.5);
}

double bandwidth_on_host(Contender& contender, std::size_t bytes) {
  const NeighboursMemory memory(contender, bytes);
  if (!memory.exists()) return 0;
  const std::byte* const source = memory.is_shared() ? memory.neighbours() : memory.own();
  std::vector<std::byte> target(bytes);
  return bandwidth_of(
      contender, bytes, [&](int sample) { std::memset(memory.own(), sample & 1, bytes); },
      [&] { std::memcpy(target.data(), source, bytes); });
}

double bandwidth_on_gpu(Contender& contender, std::size_t bytes) {
  const tensors::Device device = contender.device();
  const tensors::TensorOptions options{.dtype = tensors::DType::u8, .device = device};
  const auto source = tensors::zeros({static_cast<std::int64_t>(bytes)}, options);
  const auto target = tensors::zeros({static_cast<std::int64_t>(bytes)}, options);
  const auto synchronize = [&] { tensors::cuda::synchronize(device.index); };
  return bandwidth_of(
      contender, bytes,
      [&](int sample) {
        source.fill_(sample & 1);
        synchronize();
      },
      [&] {
        target.copy_(source);
        synchronize();
      });
}

}  // namespace

double copy_bandwidth(Contender& contender, std::size_t bytes) {
  const std::size_t size = std::min(bytes, kMostCopiedBytes);
  return contender.device().is_cpu() ? bandwidth_on_host(contender, size)
                                     : bandwidth_on_gpu(contender, size);
}

}  // namespace dtrun::bench
