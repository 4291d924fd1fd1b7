// for_each_team: enqueues body(team, i) for every i in [0, count): a block of threads does each i
// together, in steps. Between steps all threads have met, and a step is one function on the host
// and on the device; so the host simulation runs what a device runs. For .cu files only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/for_each.h"
#include "host_device.h"

namespace dtrun::tensors::cuda {

/// The threads of a block, and the memory that they share. Shared is reached inside of steps only:
/// beside them nothing says that the others have read what one overwrites.
template <typename Shared>
class Team {
 public:
  DTRUN_BOTH Team(Shared& shared, std::int64_t item) : shared_(shared), item_(item) {}

  /// step(thread, shared) by every thread; returns when all are done. No thread may read what
  /// another one writes in the same step. Whether a step is reached must not depend on the thread.
  template <typename Step>
  DTRUN_BOTH void each_thread(const Step& step) const {
#ifdef __CUDA_ARCH__
    step(static_cast<int>(threadIdx.x), shared_);
    __syncthreads();
#else
    // In both directions, so that tests see a step that depends on the order.
    constexpr int kCount = static_cast<int>(kThreads);
    for (int i = 0; i < kCount; ++i) step(item_ % 2 == 0 ? i : kCount - 1 - i, shared_);
#endif
  }

 private:
  Shared& shared_;
  std::int64_t item_;
};

template <typename Body>
__global__ void __launch_bounds__(kThreads) for_each_team_kernel(Body body, std::int64_t count) {
  __shared__ typename Body::Shared shared;
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    body(Team<typename Body::Shared>(shared, i), i);
  }
}

template <typename Body>
void run_teams_on_host(const void* body, std::int64_t count) {
  typename Body::Shared shared;
  for (std::int64_t i = 0; i < count; ++i) {
    (*static_cast<const Body*>(body))(Team<typename Body::Shared>(shared, i), i);
  }
}

template <typename Body>
void for_each_team(std::int64_t count, const Body& body, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Body>);
  static_assert(std::is_trivially_default_constructible_v<typename Body::Shared>);
  static_assert(sizeof(typename Body::Shared) <= 48 * 1024);  // what every device has
  constexpr std::int64_t kMaxTeams = 65536;
  if (count == 0) return;  // an empty grid is an error
  launch({.function = reinterpret_cast<const void*>(&for_each_team_kernel<Body>),
          .body = &body,
          .body_bytes = sizeof body,
          .count = count,
          .blocks = static_cast<unsigned>(std::min(count, kMaxTeams)),
          .threads = kThreads,
          .run_on_host = &run_teams_on_host<Body>},
         stream);
}

/// Which threads are neighbours: where those of a warp read neighbouring elements, they are read
/// together.
enum class Neighbours : std::uint8_t { lanes, units };

/// How a team is shared out: `units` things at a time, `lanes` threads for each. Powers of two.
struct TeamSplit {
  int units;
  int lanes;
  int unit_step;  ///< from one unit's thread to the next one's
  int lane_step;

  /// @param wanted lanes; rounded up to a power of two, a team at the most
  static TeamSplit of_lanes(std::int64_t wanted, Neighbours neighbours) {
    int lanes = 1;
    while (lanes < static_cast<int>(kThreads) && lanes < wanted) lanes *= 2;
    const int units = static_cast<int>(kThreads) / lanes;
    return neighbours == Neighbours::units ? TeamSplit{units, lanes, 1, units}
                                           : TeamSplit{units, lanes, lanes, 1};
  }

  DTRUN_BOTH int unit(int thread) const { return thread / unit_step % units; }
  DTRUN_BOTH int lane(int thread) const { return thread / lane_step % lanes; }

  /// Joins what `values(shared)` holds of each unit's lanes, in pairs half of them apart; the
  /// result is at its lane 0.
  template <typename Shared, typename Values, typename Join>
  DTRUN_BOTH void join(const Team<Shared>& team, const Values& values, const Join& join) const {
    for (int half = lanes / 2; half > 0; half /= 2) {
      team.each_thread([&](int thread, Shared& shared) {
        if (lane(thread) >= half) return;
        auto* const value = values(shared) + thread;
        *value = join(*value, value[half * lane_step]);
      });
    }
  }
};

}  // namespace dtrun::tensors::cuda
