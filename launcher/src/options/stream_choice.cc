#include "options/stream_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

int bit_of(Stream stream) {
  return stream == Stream::kOut ? 1 : 2;
}

std::optional<int> parse_bits(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  return text[0] - '0';
}

}  // namespace

const char* name_of(Stream stream) {
  return stream == Stream::kOut ? "stdout" : "stderr";
}

bool StreamChoice::includes(int local_rank, Stream stream) const {
  const auto found = of_local_rank.find(local_rank);
  const int bits = found != of_local_rank.end() ? found->second : of_all;
  return (bits & bit_of(stream)) != 0;
}

bool StreamChoice::nothing() const {
  return of_all == 0 && std::all_of(of_local_rank.begin(), of_local_rank.end(),
                                    [](const auto& entry) { return entry.second == 0; });
}

int StreamChoice::last_local_rank() const {
  return of_local_rank.empty() ? -1 : of_local_rank.rbegin()->first;
}

StreamChoice parse_stream_choice(std::string_view text) {
  StreamChoice choice;
  if (const auto bits = parse_bits(text)) {
    choice.of_all = *bits;
    return choice;
  }
  bool is_read = true;
  for (const std::string_view entry : base::split(text, ',')) {
    const auto colon = entry.find(':');
    const auto rank = base::parse_integer(entry.substr(0, colon));
    const auto bits =
        colon == std::string_view::npos ? std::nullopt : parse_bits(entry.substr(colon + 1));
    is_read = rank && *rank >= 0 && *rank < rendezvous::rounds::kMostLocalRanks && bits &&
              choice.of_local_rank.emplace(static_cast<int>(*rank), *bits).second;
    if (!is_read) break;
  }
  if (is_read) return choice;
  throw Error(ErrorCode::kUsage,
              "must be 0 (no stream), 1 (standard output), 2 (standard error) or 3 (both), or such "
              "a number for each of some local ranks: 0:3,1:1");
}

}  // namespace dtrun::launcher
