#include "membership.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

namespace {

// A card is its fields, one a line, after the version and the size of the group. A line that starts
// with '!' is a refusal, which whoever waits for the card gets to read in its place.
constexpr std::string_view kVersion = "dtrun-card-1";
constexpr char kRefusal = '!';

std::string card_key(int rank) {
  return fmt::format("member/{}", rank);
}

std::string encode(const Card& card, std::size_t group_size) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", kVersion, group_size,
                     card.global_rank, card.pid, card.host, card.locality, card.local_socket,
                     card.address, card.port, card.token);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

struct Joined {
  Card card;
  std::size_t group_size = 0;
};

Joined decode(const std::string& text, int rank) {
  const std::vector<std::string> lines = lines_of(text);
  if (lines.size() != 10 || lines[0] != kVersion)
    throw Error(ErrorCode::kProtocol, fmt::format("the card of rank {} cannot be read", rank),
                "it was written by another version of dtrun, or by another program",
                "run the same build on all ranks, and give each job a store of its own");
  const auto number = [&](std::size_t line) {
    return base::parse_integer(lines[line]).value_or(0);
  };
  Joined joined;
  joined.group_size = static_cast<std::size_t>(number(1));
  joined.card.global_rank = static_cast<int>(number(2));
  joined.card.pid = static_cast<int>(number(3));
  joined.card.host = lines[4];
  joined.card.locality = lines[5];
  joined.card.local_socket = lines[6];
  joined.card.address = lines[7];
  joined.card.port = static_cast<std::uint16_t>(number(8));
  joined.card.token = std::stoull(lines[9]);
  return joined;
}

[[noreturn]] void refuse_membership(const std::string& text) {
  throw Error(ErrorCode::kDisagreement, text, "",
              "start all ranks with the same WORLD_SIZE, and with different RANKs");
}

/// Puts the refusal where others wait for cards that will never come, then throws it.
[[noreturn]] void refuse_for_all(const GroupOptions& options, const std::string& text,
                                 std::size_t ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank)
    options.store->compare_set(card_key(static_cast<int>(rank)), "", kRefusal + text);
  refuse_membership(text);
}

void check_size(const GroupOptions& options, const Joined& other) {
  const std::size_t size = options.global_ranks.size();
  if (other.group_size == size) return;
  const int my_rank = options.global_ranks[static_cast<std::size_t>(options.rank)];
  refuse_for_all(options,
                 fmt::format("ranks disagree about the size of group '{}': rank {} says {}, "
                             "rank {} says {}",
                             options.name, my_rank, size, other.card.global_rank, other.group_size),
                 std::max(size, other.group_size));
}

void publish(const GroupOptions& options, const std::string& text) {
  // The first to come fixes the size: a later one with another size finds it at once.
  const std::string first = options.store->compare_set("first", "", text);
  if (first != text) check_size(options, decode(first, 0));
  const std::string stored = options.store->compare_set(card_key(options.rank), "", text);
  if (stored == text) return;
  if (stored.front() == kRefusal) refuse_membership(stored.substr(1));
  const Card other = decode(stored, options.rank).card;
  refuse_for_all(options,
                 fmt::format("two processes are rank {} of group '{}': pid {} on {}, and this one",
                             options.rank, options.name, other.pid, other.host),
                 options.global_ranks.size());
}

[[noreturn]] void throw_missing(const GroupOptions& options, base::Deadline::Duration waited) {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < options.global_ranks.size(); ++rank)
    if (!options.store->check({card_key(static_cast<int>(rank))}))
      missing.push_back(options.global_ranks[rank]);
  throw Error(ErrorCode::kTimeout,
              fmt::format("group '{}' of {} ranks is not complete after {}: missing rank{} {}",
                          options.name, options.global_ranks.size(), base::format_duration(waited),
                          missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")),
              "they have not started, or have not come to this point",
              "look at their output; raise the timeout if they need longer");
}

}  // namespace

std::string describe_member(const Card& card) {
  return fmt::format("rank {} (pid {} on {})", card.global_rank, card.pid, card.host);
}

std::vector<Card> exchange_cards(const GroupOptions& options, const Card& mine,
                                 base::Deadline deadline) {
  const base::Deadline::Clock::time_point start = base::Deadline::Clock::now();
  publish(options, encode(mine, options.global_ranks.size()));
  std::vector<Card> cards;
  for (std::size_t rank = 0; rank < options.global_ranks.size(); ++rank) {
    std::string text;
    try {
      text = options.store->get(card_key(static_cast<int>(rank)), deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      throw_missing(options, base::Deadline::Clock::now() - start);
    }
    if (text.front() == kRefusal) refuse_membership(text.substr(1));
    const Joined joined = decode(text, static_cast<int>(rank));
    check_size(options, joined);
    cards.push_back(joined.card);
  }
  return cards;
}

}  // namespace dtrun::collectives
