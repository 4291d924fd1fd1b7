// What asynchronous collectives are worth: many in flight against as many blocking ones, and how
// much of a computation passes while one is on its way.
//
//     dtrun --nproc_per_node=2 overlap_bench [--rounds N] [--tcp] [--flight N] [--flight-bytes B]
//                                            [--bytes B] [--compute MS] [--device]
//
// In flight: --flight all_reduces of --flight-bytes each, one after the other and all at once, in
// turns. Hidden: an all_reduce of --bytes alone, a computation of --compute milliseconds alone, and
// both at once, in turns; hidden is (all_reduce + computation - both) / the shorter of the two. The
// computation keeps the rank's core busy; with --device it is that of a device, for which the rank
// waits asleep. The slowest rank's times, medians. --tcp: the ranks share no memory.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "bench/group_contender.h"
#include "bench/measurement.h"
#include "dtrun/runtime/worker.h"
#include "dtrun/tensor/ops.h"

using namespace dtrun;

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

struct Options {
  int rounds = 31;
  bool tcp = false;
  int flight = 100;
  std::int64_t flight_bytes = 64 << 10;
  std::int64_t bytes = 4 << 20;
  double compute_ms = 5;
  bool device = false;
};

tensors::LocalTensor floats(std::int64_t bytes) {
  return tensors::zeros({bytes / static_cast<std::int64_t>(sizeof(float))});
}

/// Takes things in turns; all ranks meet before each.
class Turns {
 public:
  Turns(const runtime::Worker& worker, int rounds)
      : contender_(worker.world(), worker.store(), worker.device()), rounds_(rounds) {}

  /// Medians in microseconds on rank 0; elsewhere 1.
  std::vector<double> medians(const std::vector<std::function<void()>>& things) {
    std::vector<std::vector<double>> times(things.size());
    for (int round = -2; round < rounds_; ++round)
      for (std::size_t i = 0; i < things.size(); ++i) {
        contender_.barrier();
        const Clock::time_point start = Clock::now();
        things[i]();
        if (round >= 0) times[i].push_back(Microseconds(Clock::now() - start).count());
      }
    std::vector<double> medians;
    for (const std::vector<double>& mine : times) {
      const std::vector<double> all = contender_.collect(mine);
      medians.push_back(
          contender_.rank() == 0 ? bench::percentile(bench::slowest_of(all, mine.size()), 0.5) : 1);
    }
    return medians;
  }

 private:
  bench::GroupContender contender_;
  int rounds_;
};

void measure_flight(const runtime::Worker& worker, const Options& options) {
  const collectives::ProcessGroup& world = worker.world();
  std::vector<tensors::LocalTensor> tensors;
  for (int i = 0; i < options.flight; ++i) tensors.push_back(floats(options.flight_bytes));
  const auto blocking = [&] {
    for (const tensors::LocalTensor& tensor : tensors) world.all_reduce(tensor);
  };
  const auto flying = [&] {
    std::vector<collectives::Work> works;
    for (const tensors::LocalTensor& tensor : tensors)
      works.push_back(world.all_reduce(tensor, collectives::ReduceOp::sum, {.async = true}));
    for (collectives::Work& work : works) work.wait();
  };
  const std::vector<double> times = Turns(worker, options.rounds).medians({blocking, flying});
  if (worker.rank() != 0) return;
  fmt::print(
      "{} all_reduces of {} bytes: blocking {:.1f} us each, in flight {:.1f}: {:.2f} of it\n",
      options.flight, options.flight_bytes, times[0] / options.flight, times[1] / options.flight,
      times[1] / times[0]);
}

void compute(const Options& options) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double, std::milli>(options.compute_ms));
  if (options.device) std::this_thread::sleep_until(end);
  volatile double sum = 0;
  while (Clock::now() < end) sum = sum + 1;
}

void measure_hiding(const runtime::Worker& worker, const Options& options) {
  const collectives::ProcessGroup& world = worker.world();
  const tensors::LocalTensor tensor = floats(options.bytes);
  const std::vector<double> times =
      Turns(worker, options.rounds)
          .medians({[&] { world.all_reduce(tensor); }, [&] { compute(options); },
                    [&] {
                      collectives::Work work =
                          world.all_reduce(tensor, collectives::ReduceOp::sum, {.async = true});
                      compute(options);
                      work.wait();
                    }});
  if (worker.rank() != 0) return;
  fmt::print(
      "all_reduce of {} bytes {:.0f} us, computation {}{:.0f} us, both at once {:.0f} us: {:.0f} % "
      "hidden\n",
      options.bytes, times[0], options.device ? "of a device " : "", times[1], times[2],
      100 * (times[0] + times[1] - times[2]) / std::min(times[0], times[1]));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("What are asynchronous collectives worth?");
  app.add_option("--rounds", options.rounds, "of which the median is told")
      ->check(CLI::PositiveNumber);
  app.add_flag("--tcp", options.tcp, "the ranks share no memory");
  app.add_option("--flight", options.flight, "all_reduces at once")->check(CLI::PositiveNumber);
  app.add_option("--flight-bytes", options.flight_bytes, "of each")->check(CLI::PositiveNumber);
  app.add_option("--bytes", options.bytes, "of the all_reduce beside a computation")
      ->check(CLI::PositiveNumber);
  app.add_option("--compute", options.compute_ms, "milliseconds")->check(CLI::PositiveNumber);
  app.add_flag("--device", options.device, "the rank sleeps while a device computes");
  CLI11_PARSE(app, argc, argv);
  runtime::InitOptions init;
  const char* const rank = std::getenv("RANK");
  if (options.tcp && rank != nullptr) init.machine = rank;
  const runtime::Worker worker = runtime::init(std::move(init));
  measure_flight(worker, options);
  measure_hiding(worker, options);
}
