#include "text/spelling.h"

#include <algorithm>

namespace dtrun::launcher {
namespace {

constexpr std::size_t kShortest = 3, kLongest = 64, kFurthest = 3;

// Returns more than kFurthest as soon as the distance must exceed it, which is nearly always at
// once.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > kFurthest) return kFurthest + 1;
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
    if (*std::min_element(row.begin(), row.end()) > kFurthest) return kFurthest + 1;
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view written,
                              const std::vector<std::string_view>& names) {
  // A shorter word is near to any other, and a longer distance is no slip of the pen.
  if (written.size() < kShortest || written.size() > kLongest) return {};
  std::string_view nearest;
  std::size_t least = kFurthest + 1;
  for (const std::string_view name : names) {
    const std::size_t distance = std::min(edit_distance(written, name),
                                          edit_distance(written, name.substr(0, written.size())));
    if (distance >= least) continue;
    nearest = name;
    least = distance;
  }
  return 2 * least <= written.size() ? nearest : std::string_view();
}

}  // namespace dtrun::launcher
