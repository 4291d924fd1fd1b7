#include <fmt/core.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

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

/// Those that this container may open, of those that the driver tells of.
bool may_open_gpus() {
  return std::filesystem::exists("/dev/nvidia0") || std::filesystem::exists("/dev/nvidia1");
}

Finding gpus() {
  const auto visible = base::get_env("CUDA_VISIBLE_DEVICES");
  const int all = launcher::count_gpus(std::nullopt), count = launcher::count_gpus(visible);
  Finding finding{"GPUs", Verdict::good, all == 0 ? "none" : fmt::format("{} of {}", count, all)};
  const auto driver = first_line("/proc/driver/nvidia/version");
  if (driver) finding.found += ", " + *driver;
  if (all == 0) {
    finding.meaning = driver ? "the driver is here, and shows no device; nvidia-smi says why"
                             : "jobs run on the CPUs";
  } else if (!may_open_gpus()) {
    finding.meaning = "this container has none of them: docker run --gpus all gives it some";
  } else if (count == 0) {
    finding.verdict = Verdict::warning;
    finding.meaning = "CUDA_VISIBLE_DEVICES=" + visible.value_or("") + " hides all";
    finding.remedy = "unset CUDA_VISIBLE_DEVICES";
  }
  return finding;
}

/// "2.28.9". Before 2.9, two digits less.
std::string nccl_version(int number) {
  const int major = number < 10'000 ? 1'000 : 10'000;
  return fmt::format("{}.{}.{}", number / major, number % major / 100, number % 100);
}

Finding nccl() {
  const base::DynamicLibrary library({"libnccl.so.2"});
  int (*get_version)(int*) = nullptr;
  int version = 0;
  const bool needs_it =
      may_open_gpus() && launcher::count_gpus(base::get_env("CUDA_VISIBLE_DEVICES")) > 0;
  if (library.opened() && library.find("ncclGetVersion", get_version) && get_version(&version) == 0)
    return {"NCCL", Verdict::good, nccl_version(version)};
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
