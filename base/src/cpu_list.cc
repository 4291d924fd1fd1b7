#include "dtrun/base/cpu_list.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"

namespace dtrun::base {
namespace {

// Large enough for any machine; sched_getaffinity fails when it is too small.
constexpr int kMostCpus = 65536;

Error list_error(std::string_view text, const char* why) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is no list of CPUs", text), why,
               "write it like 0-3,8");
}

int parse_cpu(std::string_view text, std::string_view whole) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw list_error(whole, "a part of it is no number");
  if (number >= kMostCpus) throw list_error(whole, "no machine has so many");
  return number;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  if (text.empty()) return {};
  std::vector<int> cpus;
  for (const std::string_view part : split(text, ',')) {
    const auto dash = part.find('-');
    const int first = parse_cpu(part.substr(0, dash), text);
    const int last =
        dash == std::string_view::npos ? first : parse_cpu(part.substr(dash + 1), text);
    if (last < first) throw list_error(text, "a range of it ends before it begins");
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string format_cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (last > i) text += fmt::format("-{}", cpus[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> allowed_cpus() {
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(kMostCpus), [](cpu_set_t* cpus) { CPU_FREE(cpus); });
  const std::size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
  if (!set || ::sched_getaffinity(0, bytes, set.get()) != 0)
    throw system_error("ask for the CPUs of this process");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
  return cpus;
}

}  // namespace dtrun::base
