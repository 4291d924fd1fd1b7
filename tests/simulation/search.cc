#include "search.h"

#include <unordered_set>
#include <utility>

#include "random_source.h"
#include "search_world.h"
#include "violation.h"

namespace dtrun::simulation {
namespace {

// 128 bits of a state: among 10^8 states two that differ meet with a chance of 10^-22.
struct Digest {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};
struct DigestHash {
  std::size_t operator()(const Digest& digest) const { return digest.first; }
};

Digest digest_of(const std::string& key) {
  Digest digest{0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL};
  for (const char each : key) {
    const auto byte = static_cast<unsigned char>(each);
    digest.first = (digest.first ^ byte) * 0x100000001b3ULL;
    digest.second = (digest.second ^ byte) * 0x9e3779b97f4a7c15ULL;
    digest.second ^= digest.second >> 31;
  }
  return {RandomSource::mixed(digest.first), RandomSource::mixed(digest.second)};
}

class Search {
 public:
  explicit Search(const SearchScope& scope) : scope_(scope) {}

  SearchResult run() {
    std::vector<SearchWorld> level{SearchWorld(scope_)};
    seen_.insert(digest_of(level.front().key()));
    result_.states = 1;
    while (!level.empty() && result_.rule.empty()) {
      std::vector<SearchWorld> next;
      for (const SearchWorld& world : level)
        if (!expand(world, next)) return result_;
      if (!next.empty()) ++result_.depth;
      level = std::move(next);
    }
    result_.complete = result_.rule.empty();
    return result_;
  }

 private:
  // Whether to go on.
  bool expand(const SearchWorld& world, std::vector<SearchWorld>& next) {
    if (world.is_over()) {
      ++result_.ends;
      return true;
    }
    for (const SearchMove& move : world.moves()) {
      SearchWorld after = world;
      ++result_.transitions;
      try {
        after.make(move);
      } catch (const Violation& violation) {
        result_.rule = violation.rule();
        result_.text = violation.what();
        result_.way = world.way();
        result_.way.push_back(world.describe(move));
        return false;
      }
      if (!seen_.insert(digest_of(after.key())).second) continue;
      after.remember(world.describe(move));
      next.push_back(std::move(after));
      if (++result_.states >= scope_.most_states) return false;
    }
    return true;
  }

  const SearchScope scope_;
  SearchResult result_;
  std::unordered_set<Digest, DigestHash> seen_;
};

}  // namespace

SearchResult search(const SearchScope& scope) {
  return Search(scope).run();
}

}  // namespace dtrun::simulation
