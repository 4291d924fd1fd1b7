#include "bench/neighbours_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"

namespace dtrun::bench {
namespace {

/// Where a rank's memory is. All are exact in a double.
struct Place {
  bool has_memory;
  double machine, process, fd;
};

/// Equal for processes that see each other's numbers.
double machine_of_this_process() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  file >> name;
  std::error_code unknown;
  name += std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string();
  return static_cast<double>(std::hash<std::string>()(name) >> 16);
}

/// Invalid where there is no memory.
base::SharedMemory created(std::size_t bytes) {
  try {
    return base::SharedMemory::create("dtrun-bench", bytes);
  } catch (const base::Error&) {
    return {};
  }
}

/// Invalid where that is not the memory of the rank that named it, or may not be mapped.
base::SharedMemory mapped(const Place& place, std::size_t bytes) {
  const std::string name = fmt::format("/proc/{:.0f}/fd/{:.0f}", place.process, place.fd);
  base::UniqueFd file(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status = {};
  const bool is_memory = file.valid() && ::fcntl(file.get(), F_GET_SEALS) >= 0 &&
                         ::fstat(file.get(), &status) == 0 &&
                         status.st_size == static_cast<off_t>(bytes);
  if (!is_memory) return {};
  try {
    return base::SharedMemory::map(std::move(file), bytes);
  } catch (const base::Error&) {
    return {};
  }
}

std::vector<Place> places_of_all(Contender& contender, const base::SharedMemory& own) {
  const std::vector<double> all =
      contender.share({own.valid() ? 1.0 : 0.0, machine_of_this_process(),
                       static_cast<double>(::getpid()), static_cast<double>(own.fd())});
  std::vector<Place> places;
  for (std::size_t i = 0; i + 4 <= all.size(); i += 4)
    places.push_back({all[i] == 1, all[i + 1], all[i + 2], all[i + 3]});
  return places;
}

}  // namespace

NeighboursMemory::NeighboursMemory(Contender& contender, std::size_t bytes) : own_(created(bytes)) {
  const std::vector<Place> places = places_of_all(contender, own_);
  exists_ = std::ranges::all_of(places, &Place::has_memory);
  const bool is_one_machine = std::ranges::all_of(
      places, [&](const Place& place) { return place.machine == places[0].machine; });
  if (!exists_ || !is_one_machine) return;
  const int before = (contender.rank() + contender.size() - 1) % contender.size();
  neighbours_ = mapped(places[static_cast<std::size_t>(before)], bytes);
  const std::vector<double> found = contender.share({neighbours_.valid() ? 1.0 : 0.0});
  is_shared_ = std::ranges::count(found, 1.0) == contender.size();
}

}  // namespace dtrun::bench
