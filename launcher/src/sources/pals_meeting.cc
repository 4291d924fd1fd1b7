#include "sources/pals_meeting.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "dtrun/base/error.h"
#include "engines/pals_places.h"

namespace dtrun::launcher {

void meet_by_pals(Engine& engine) {
  if (engine.places_file.empty()) return;
  std::ifstream file(engine.places_file, std::ios::binary);
  if (!file) {
    engine.no_places = fmt::format("{}, which tells it, cannot be opened ({})", engine.places_file,
                                   std::strerror(errno));
    return;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  try {
    const PalsPlaces places = read_pals_places(bytes, engine.task);
    if (engine.head_host.empty()) engine.head_host = places.head_host;
    engine.nodes = places.nodes;
    engine.node = places.node;
  } catch (const base::Error& error) {
    engine.no_places = fmt::format("{}: {}", engine.places_file, error.why());
  }
}

}  // namespace dtrun::launcher
