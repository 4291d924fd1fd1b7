#include <fmt/core.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cstdlib>

#include "cpus/device_count.h"
#include "doctor/examinations.h"
#include "doctor/text_files.h"
#include "dtrun/base/cpu_list.h"
#include "dtrun/base/cpu_quota.h"
#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/env.h"

namespace dtrun::doctor {
namespace {

Finding cpus() {
  const std::size_t allowed = base::allowed_cpus().size();
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  Finding finding{"CPUs", Verdict::good, fmt::format("{} of {}", allowed, online)};
  const std::optional<base::CpuQuota> quota = base::cpu_quota();
  if (!quota || quota->cpus >= static_cast<double>(allowed)) return finding;
  finding.found += fmt::format(", {:.3g} by the cgroup's quota", quota->cpus);
  finding.meaning =
      "more ranks than that take turns, and wait for one another by the kernel's clock";
  return finding;
}

Finding threads() {
  const std::string wanted = base::get_env("OMP_NUM_THREADS").value_or("");
  Finding finding{"threads per rank", Verdict::good,
                  wanted.empty() ? "as dtrun decides" : "OMP_NUM_THREADS=" + wanted};
  if (wanted.empty()) {
    finding.meaning =
        "1 where a node has several ranks; --omp-threads=share gives each its part of the CPUs";
  } else if (std::atol(wanted.c_str()) > static_cast<long>(base::allowed_cpus().size())) {
    finding.verdict = Verdict::warning;
    finding.meaning = "more threads than CPUs: they take turns";
    finding.remedy = "unset OMP_NUM_THREADS, or --omp-threads=share";
  }
  return finding;
}

Finding gpus() {
  const auto visible = base::get_env("CUDA_VISIBLE_DEVICES");
  const int count = launcher::count_gpus(visible), all = launcher::count_gpus(std::nullopt);
  Finding finding{"GPUs", Verdict::good, all == 0 ? "none" : fmt::format("{} of {}", count, all)};
  const auto driver = first_line("/proc/driver/nvidia/version");
  if (driver) finding.found += ", " + *driver;
  if (all > 0 && count == 0) {
    finding.verdict = Verdict::warning;
    finding.meaning = "CUDA_VISIBLE_DEVICES=" + visible.value_or("") + " hides all";
    finding.remedy = "unset CUDA_VISIBLE_DEVICES";
  } else if (all == 0 && driver) {
    finding.verdict = Verdict::bad;
    finding.meaning = "the driver is here, and shows no device";
    finding.remedy = "nvidia-smi; in a container, docker run --gpus all";
  } else if (all == 0) {
    finding.meaning = "jobs run on the CPUs";
  }
  return finding;
}

Finding nccl() {
  const base::DynamicLibrary library({"libnccl.so.2"});
  int (*get_version)(int*) = nullptr;
  int version = 0;
  const bool needs_it = launcher::count_gpus(base::get_env("CUDA_VISIBLE_DEVICES")) > 0;
  if (library.opened() && library.find("ncclGetVersion", get_version) && get_version(&version) == 0)
    return {"NCCL", Verdict::good,
            fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)};
  Finding finding{"NCCL", needs_it ? Verdict::bad : Verdict::good, "not found"};
  finding.meaning = needs_it ? "ranks on GPUs cannot exchange anything" : "nothing here needs it";
  if (needs_it) finding.remedy = "install libnccl2, or set LD_LIBRARY_PATH: " + library.reason();
  return finding;
}

Finding huge_pages() {
  const std::string line =
      first_line("/sys/kernel/mm/transparent_hugepage/enabled").value_or("unknown");
  Finding finding{"huge pages", Verdict::good, line};
  if (line.find("[never]") == std::string::npos) return finding;
  finding.verdict = Verdict::warning;
  finding.meaning =
      "large tensors are made of pages of 4 KiB: up to twice the time for operations that only "
      "move them";
  finding.remedy = "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled";
  return finding;
}

Finding clock() {
  timex state{};
  const int result = ::adjtimex(&state);
  Finding finding{"clock", Verdict::good, "synchronised"};
  if (result < 0) {
    finding.found = "unknown";
  } else if (result == TIME_ERROR || (state.status & STA_UNSYNC) != 0) {
    finding.verdict = Verdict::warning;
    finding.found = "nobody synchronises it";
    finding.meaning =
        "times in logs and flight records of several nodes do not compare; jobs run all the same";
    finding.remedy = "chrony or systemd-timesyncd; in a virtual machine perhaps the host keeps it";
  }
  return finding;
}

}  // namespace

Findings examine_hardware() {
  return {cpus(), threads(), gpus(), nccl(), huge_pages(), clock()};
}

}  // namespace dtrun::doctor
