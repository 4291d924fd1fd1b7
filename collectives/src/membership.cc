#include "membership.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

namespace {

// A card is text: the version, the group's size, the cost table, then one field a line. A card that
// starts with '!' is a refusal: ranks that wait for the card read it instead.
constexpr std::string_view kVersion = "dtrun-card-3";
constexpr char kRefusal = '!';
const std::string kRosterKey = "roster";

std::string card_key(int rank) {
  return fmt::format("member/{}", rank);
}

/// "links.json (5f2e8a...)"; equal hashes are equal tables.
std::string name_of(const CostTable& costs) {
  if (!costs.is_given()) return "none";
  std::string path = costs.path();
  std::ranges::replace(path, '\n', ' ');
  return fmt::format("{} ({:016x})", path, costs.hash());
}

std::string encode(const Card& card, const GroupOptions& options) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", kVersion,
                     options.global_ranks.size(), options.costs.hash(), name_of(options.costs),
                     card.global_rank, card.pid, card.host, card.commons, card.address, card.port,
                     card.token);
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
  std::uint64_t costs = 0;  ///< hash
  std::string costs_name;
};

Joined decode(const std::string& text, int rank) {
  const std::vector<std::string> lines = lines_of(text);
  if (lines.size() != 11 || lines[0] != kVersion)
    throw Error(ErrorCode::kProtocol, fmt::format("the card of rank {} cannot be read", rank),
                "it was written by another version of dtrun, or by another program",
                "run the same build on all ranks, and give each job a store of its own");
  const auto number = [&](std::size_t line) {
    return base::parse_integer(lines[line]).value_or(0);
  };
  Joined joined;
  joined.group_size = static_cast<std::size_t>(number(1));
  joined.costs = std::strtoull(lines[2].c_str(), nullptr, 10);
  joined.costs_name = lines[3];
  joined.card.global_rank = static_cast<int>(number(4));
  joined.card.pid = static_cast<int>(number(5));
  joined.card.host = lines[6];
  joined.card.commons = lines[7];
  joined.card.address = lines[8];
  joined.card.port = static_cast<std::uint16_t>(number(9));
  joined.card.token = std::strtoull(lines[10].c_str(), nullptr, 10);
  return joined;
}

[[noreturn]] void refuse_membership(const std::string& text) {
  throw Error(ErrorCode::kDisagreement, text, "",
              "start all ranks with the same WORLD_SIZE and DTRUN_COST_TABLE, and with different "
              "RANKs");
}

/// Stores the refusal where others wait for cards that will never come, then throws it.
[[noreturn]] void refuse_for_all(const GroupOptions& options, const std::string& text,
                                 std::size_t ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank)
    options.store->compare_set(card_key(static_cast<int>(rank)), "", kRefusal + text);
  options.store->compare_set(kRosterKey, "", kRefusal + text);
  refuse_membership(text);
}

/// What all members must say alike.
void check_agreement(const GroupOptions& options, const Joined& other) {
  const std::size_t size = options.global_ranks.size();
  const int my_rank = options.global_ranks[static_cast<std::size_t>(options.rank)];
  const auto refuse = [&](std::string_view what, const auto& mine, const auto& theirs) {
    refuse_for_all(options,
                   fmt::format("ranks disagree about the {} of group '{}': rank {} says {}, rank "
                               "{} says {}",
                               what, options.name, my_rank, mine, other.card.global_rank, theirs),
                   std::max(size, other.group_size));
  };
  if (other.group_size != size) refuse("size", size, other.group_size);
  if (other.costs != options.costs.hash())
    refuse("cost table", name_of(options.costs), other.costs_name);
}

void publish(const GroupOptions& options, const std::string& text) {
  // The first rank stores its card; a later one that contradicts it fails at once.
  const std::string first = options.store->compare_set("first", "", text);
  if (first != text) check_agreement(options, decode(first, 0));
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
  if (missing.empty())
    throw Error(
        ErrorCode::kTimeout,
        fmt::format("{} came, but stopped or ended before group '{}' was made",
                    describe_member(decode(options.store->get(card_key(0)), 0).card), options.name),
        "it makes the list of the members for all", "look at that rank's output");
  if (options.job_page) options.job_page->slot(options.local_rank).victim_of.store(missing.front());
  throw Error(ErrorCode::kTimeout,
              fmt::format("group '{}' of {} ranks is not complete after {}: missing rank{} {}",
                          options.name, options.global_ranks.size(), base::format_duration(waited),
                          missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")),
              "they have not started, or have not come to this point",
              "look at their output; raise the timeout if they need longer");
}

/// Rank 0's part.
std::vector<Card> gather_cards(const GroupOptions& options, base::Deadline deadline) {
  std::vector<std::string> keys;
  for (std::size_t rank = 0; rank < options.global_ranks.size(); ++rank)
    keys.push_back(card_key(static_cast<int>(rank)));
  std::vector<Card> cards;
  for (const std::string& text : options.store->multi_get(keys, deadline)) {
    if (text.starts_with(kRefusal)) refuse_membership(text.substr(1));
    try {
      const Joined joined = decode(text, static_cast<int>(cards.size()));
      check_agreement(options, joined);
      cards.push_back(joined.card);
    } catch (const Error& error) {
      // The other ranks wait only for the roster, so the refusal goes there.
      if (error.code() == ErrorCode::kProtocol)
        options.store->compare_set(kRosterKey, "", kRefusal + std::string(error.summary()));
      throw;
    }
  }
  return cards;
}

// The roster has each distinct text once (hosts, commons, addresses are shared by many cards), then
// a line of numbers for each card, which refers to the texts by index.
class TextTable {
 public:
  std::size_t place_of(const std::string& text) {
    const auto [found, is_new] = places_.emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return found->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::size_t> places_;
  std::vector<std::string> texts_;
};

constexpr std::string_view kRosterVersion = "dtrun-roster-1";
constexpr std::size_t kNumbersOfCard = 7;

std::string encode_roster(const std::vector<Card>& cards) {
  TextTable texts;
  std::string numbers;
  for (const Card& card : cards)
    fmt::format_to(std::back_inserter(numbers), "{} {} {} {} {} {} {}\n", card.global_rank,
                   card.pid, texts.place_of(card.host), texts.place_of(card.commons),
                   texts.place_of(card.address), card.port, card.token);
  return fmt::format("{}\n{}\n{}\n{}", kRosterVersion, texts.texts().size(),
                     fmt::join(texts.texts(), "\n"), numbers);
}

/// Takes a line from the front.
std::string_view next_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

std::array<std::uint64_t, kNumbersOfCard> numbers_of(std::string_view line) {
  std::array<std::uint64_t, kNumbersOfCard> numbers{};
  const char* at = line.data();
  const char* const end = at + line.size();
  for (std::uint64_t& number : numbers) {
    at = std::from_chars(at, end, number).ptr;
    if (at != end) ++at;
  }
  return numbers;
}

std::vector<Card> decode_roster(std::string_view roster, std::size_t size) {
  const bool known = next_line(roster) == kRosterVersion;
  std::vector<std::string> texts(
      known ? std::min(numbers_of(next_line(roster))[0], 3 * std::uint64_t{size}) : 0);
  for (std::string& text : texts) text = next_line(roster);
  std::vector<Card> cards;
  while (known && !roster.empty() && cards.size() <= size) {
    const std::array<std::uint64_t, kNumbersOfCard> numbers = numbers_of(next_line(roster));
    if (std::max({numbers[2], numbers[3], numbers[4]}) >= texts.size()) break;
    cards.push_back({static_cast<int>(numbers[0]), static_cast<int>(numbers[1]), texts[numbers[2]],
                     texts[numbers[3]], texts[numbers[4]], static_cast<std::uint16_t>(numbers[5]),
                     numbers[6]});
  }
  if (cards.size() != size)
    throw Error(ErrorCode::kProtocol, "the roster of the group cannot be read",
                "it was written by another version of dtrun, or by another program",
                "run the same build on all ranks, and give each job a store of its own");
  return cards;
}

}  // namespace

std::string describe_member(const Card& card) {
  return fmt::format("rank {} (pid {} on {})", card.global_rank, card.pid, card.host);
}

void throw_if_refused(rendezvous::Store& store, base::Deadline deadline) {
  const std::string roster = store.try_get(kRosterKey, deadline).value_or("");
  if (roster.starts_with(kRefusal)) refuse_membership(roster.substr(1));
}

std::vector<Card> exchange_cards(const GroupOptions& options, const Card& mine,
                                 base::Deadline deadline) {
  const base::Deadline::Clock::time_point start = base::Deadline::Clock::now();
  publish(options, encode(mine, options));
  std::string roster;
  try {
    if (options.rank == 0) {
      roster = encode_roster(gather_cards(options, deadline));
      roster = options.store->compare_set(kRosterKey, "", roster, deadline);
    } else {
      roster = options.store->get(kRosterKey, deadline);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw_missing(options, base::Deadline::Clock::now() - start);
  }
  if (roster.starts_with(kRefusal)) refuse_membership(roster.substr(1));
  return decode_roster(roster, options.global_ranks.size());
}

}  // namespace dtrun::collectives
