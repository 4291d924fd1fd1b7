#include "autograd/random_part.h"

#include <algorithm>

namespace dtrun::dtensor {
namespace {

bool is_same(const RandomPart& one, const RandomPart& other) {
  return one.level == other.level && one.ranks == other.ranks &&
         one.level != RandomPart::Level::microbatch;
}

/// `samples` are cut over ranks among which those of `positions` have the same ones.
RandomPart without(const RandomPart& samples, const RandomPart& positions) {
  const auto place = [&](int rank) {
    return std::ranges::find(samples.ranks, rank) - samples.ranks.begin();
  };
  const auto size = static_cast<std::int64_t>(positions.ranks.size());
  const auto all = static_cast<std::int64_t>(samples.ranks.size());
  std::vector<std::int64_t> places;
  for (const int rank : positions.ranks) places.push_back(place(rank));
  std::ranges::sort(places);
  if (size < 2 || places.back() >= all) return samples;
  // The ranks of an axis of a mesh are equally far from one another.
  const std::int64_t step = places[1] - places[0], first = places[0];
  const std::int64_t own = first / (size * step) * step + first % step;
  return {samples.level, {own}, 1, all / size, samples.ranks};
}

}  // namespace

RandomPart::Extent RandomPart::around(const Extent& inner) const {
  const std::int64_t units = static_cast<std::int64_t>(chunks.size()) * count;
  const std::int64_t unit = (inner.size + units - 1) / units;
  Extent outer{whole * unit, {}};
  const std::int64_t length = count * unit;
  for (Run run : inner.runs) {
    while (run.count > 0) {
      const std::int64_t chunk = run.first / length, within = run.first % length;
      const std::int64_t taken = std::min(run.count, length - within);
      outer.runs.push_back({chunks[static_cast<std::size_t>(chunk)] * unit + within, taken});
      run = {run.first + taken, run.count - taken};
    }
  }
  return outer;
}

std::vector<RandomPart> RandomPart::standing() {
  std::vector<const RandomPart*> found;
  for (const auto& each : surroundings::standing()) {
    const auto* const part = dynamic_cast<const RandomPart*>(each.get());
    if (part == nullptr) continue;
    const auto is_it = [&](const RandomPart* other) { return is_same(*part, *other); };
    if (std::ranges::none_of(found, is_it)) found.push_back(part);
  }
  std::ranges::stable_sort(found, {}, [](const RandomPart* part) { return part->level; });
  std::vector<RandomPart> parts;
  for (const RandomPart* const part : found) {
    const auto has_positions = [&](const RandomPart* other) {
      return part->level == Level::samples && other->level == Level::positions;
    };
    const auto positions = std::ranges::find_if(found, has_positions);
    parts.push_back(positions == found.end() ? *part : without(*part, **positions));
  }
  return parts;
}

bool RandomPart::stands() const {
  return std::ranges::any_of(surroundings::standing(), [&](const auto& each) {
    const auto* const part = dynamic_cast<const RandomPart*>(each.get());
    return part != nullptr && is_same(*part, *this);
  });
}

}  // namespace dtrun::dtensor
