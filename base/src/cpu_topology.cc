#include "dtrun/base/cpu_topology.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "dtrun/base/error.h"

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

std::optional<std::string> first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  return line;
}

// The lowest of the CPUs that a file of the tree lists, which stands for all of them.
int lowest_of(const std::filesystem::path& file, int otherwise) {
  const std::optional<std::string> line = first_line(file);
  if (!line) return otherwise;
  const std::vector<int> cpus = parse_cpu_list(*line);
  return cpus.empty() ? otherwise : cpus.front();
}

int number_in(const std::filesystem::path& file, int otherwise) {
  const std::optional<std::string> line = first_line(file);
  int number = otherwise;
  if (line) std::from_chars(line->data(), line->data() + line->size(), number);
  return number < 0 ? otherwise : number;
}

// The cache of the highest level is the one with the highest index.
std::filesystem::path last_cache(const std::filesystem::path& cpu) {
  int last = 0;
  while (std::filesystem::exists(cpu / "cache" / fmt::format("index{}", last + 1))) ++last;
  return cpu / "cache" / fmt::format("index{}", last) / "shared_cpu_list";
}

int node_of(const std::filesystem::path& cpu) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(cpu, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    int node = 0;
    const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), node);
    if (error == std::errc() && end == name.data() + name.size()) return node;
  }
  return 0;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  std::string_view left = text;
  while (!left.empty()) {
    const auto comma = left.find(',');
    const std::string_view part = left.substr(0, comma);
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
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

CpuTopology CpuTopology::of_this_process() {
  return read("/sys/devices/system", allowed_cpus());
}

CpuTopology CpuTopology::read(const std::string& root, const std::vector<int>& allowed) {
  CpuTopology topology;
  for (const int id : allowed) {
    const std::filesystem::path cpu =
        std::filesystem::path(root) / "cpu" / fmt::format("cpu{}", id);
    Cpu one;
    one.id = id;
    one.core = lowest_of(cpu / "topology" / "thread_siblings_list", id);
    one.cache = lowest_of(last_cache(cpu), id);
    one.node = node_of(cpu);
    one.package = number_in(cpu / "topology" / "physical_package_id", 0);
    topology.cpus.push_back(one);
  }
  return topology;
}

}  // namespace dtrun::base
