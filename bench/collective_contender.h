// main() of a peer of collective_bench: a library's collectives, started by its own launcher,
// measured by the loop of dtrun-bench (tools/bench/measurement.h). Rank 0 prints a line per call:
// operation, bytes asked for, then in microseconds the least time, the median, the 99th percentile
// and, from 1 MiB on, how long the same bytes take if the ranks copy them at once and do nothing
// else; else 0. Of an operation that the library does not have it prints "absent OPERATION REASON".
#pragma once

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "bench/copy_bound.h"
#include "bench/measurement.h"

namespace dtrun::bench {

/// By default every rank is on a core of its own, where there are enough: on a busy machine two
/// ranks on one core would say nothing about either library. mpirun does the same. @param how
/// "--bound": they take turns at the cores. "--unbound": none is bound
inline void bind_to_core(const Contender& contender, std::string_view how) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  if (how == "--unbound" || (how != "--bound" && contender.size() > cores)) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(contender.rank() % cores), &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) std::perror("bind to a core");
}

/// Arguments are triples: operation, bytes, samples; before them there may be a word of
/// bind_to_core(). f32 sums.
inline int run_contender(Contender& contender, int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  bind_to_core(contender, how);
  const int first = how.starts_with("--") ? 2 : 1;
  // The login shell of a host may have greeted without a line break.
  if (contender.rank() == 0) std::printf("\n");
  for (int i = first; i + 2 < argc; i += 3) {
    const Operation operation = parse_operation(argv[i]);
    if (!contender.has(operation)) {
      if (contender.rank() == 0) std::printf("absent %s it has no such call\n", argv[i]);
      continue;
    }
    const auto bytes = std::strtoull(argv[i + 1], nullptr, 10);
    const int samples = std::atoi(argv[i + 2]);
    const Call call = call_of_size({.operation = operation}, bytes, contender.size());
    const Measurement measured =
        measure(contender, call, {.samples = samples, .warmup = samples / 10 + 2});
    const double bound = measured_copy_bound(contender, call);
    if (contender.rank() != 0) continue;
    std::printf("%s %llu %.4f %.4f %.4f %.4f\n", argv[i], bytes, measured.least, measured.p50,
                measured.p99, bound);
    std::fflush(stdout);
    if (measured.wrong == 0) continue;
    std::fprintf(stderr, "%s of %llu bytes: %llu elements are wrong\n", argv[i], bytes,
                 static_cast<unsigned long long>(measured.wrong));
    return 1;
  }
  return 0;
}

}  // namespace dtrun::bench
