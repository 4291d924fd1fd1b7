#include "output/line_fold.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::launcher {
namespace {

// The most lines that wait, however long the window is.
constexpr std::size_t kMostLines = 8192, kMostBytes = 1 << 20;
// How many waiting lines are compared with a new one. A line without an equal among them is not
// folded.
constexpr std::ptrdiff_t kCandidates = 16;
constexpr std::size_t kMostVisits = 256;
// Between the levels of a rank's lines, so that lines of other ranks find room.
constexpr std::uint64_t kLevelGap = 1024;
constexpr std::size_t kChains = 16384;
// Of what is kept for the next line.
constexpr std::size_t kMostKeptBytes = 256;

std::size_t hash_of(Stream stream, std::string_view text) {
  return std::hash<std::string_view>()(text) + (stream == Stream::kOut ? 0 : 1);
}

}  // namespace

struct LineFold::Alike {
  std::size_t hash = 0;
  std::vector<Number> numbers;  // that wait, from `first` on
  std::size_t first = 0;
  std::unique_ptr<Alike> next;  // in its chain

  auto begin() const { return numbers.begin() + static_cast<std::ptrdiff_t>(first); }
  bool empty() const { return first == numbers.size(); }
};

LineFold::LineFold(int ranks, std::chrono::nanoseconds window) : ranks_(ranks), window_(window) {}
LineFold::~LineFold() = default;

LineFold::Waiting* LineFold::find(Number number) const {
  return number < first_ ? nullptr : lines_[number - first_].get();
}

LineFold::Alike& LineFold::alike_of(Stream stream, std::string_view text) {
  if (by_text_.empty()) by_text_.resize(kChains);
  const std::size_t hash = hash_of(stream, text);
  std::unique_ptr<Alike>& chain = by_text_[hash % kChains];
  for (Alike* alike = chain.get(); alike != nullptr; alike = alike->next.get()) {
    if (alike->hash != hash) continue;
    const Line& line = find(*alike->begin())->line;
    if (line.stream == stream && line.text == text) return *alike;
  }
  std::unique_ptr<Alike> alike;
  if (unused_alikes_.empty()) {
    alike = std::make_unique<Alike>();
  } else {
    alike = std::move(unused_alikes_.back());
    unused_alikes_.pop_back();
  }
  alike->hash = hash;
  alike->next = std::move(chain);
  chain = std::move(alike);
  return *chain;
}

// Whether a way leads from the line to the other one: all that is on it is below that one's level.
bool LineFold::comes_before(Waiting& line, const Waiting& other) {
  if (line.level >= other.level) return false;
  ++visits_;
  path_.assign(1, line.number);
  for (std::size_t visited = 0; !path_.empty();) {
    Waiting* const at = find(path_.back());
    path_.pop_back();
    if (at == &other) return true;
    if (at == nullptr || at->level >= other.level || at->visit == visits_) continue;
    at->visit = visits_;
    if (++visited > kMostVisits) return true;  // it may be
    path_.insert(path_.end(), at->after.begin(), at->after.end());
  }
  return false;
}

LineFold::Waiting* LineFold::find_like(int local_rank, const Alike& alike, const Waiting* last) {
  auto begin = last != nullptr ? std::lower_bound(alike.begin(), alike.numbers.end(), last->number)
                               : alike.begin();
  begin -= std::min(kCandidates, begin - alike.begin());
  const auto end = begin + std::min(2 * kCandidates, alike.numbers.end() - begin);
  for (auto number = begin; number != end; ++number) {
    Waiting& line = *find(*number);
    const std::vector<int>& ranks = line.line.ranks;
    if (std::find(ranks.begin(), ranks.end(), local_rank) == ranks.end() &&
        !(last != nullptr && comes_before(line, *last)))
      return &line;
  }
  return nullptr;
}

// Those after it are lifted as far as they must be, mostly not at all: there is a gap.
void LineFold::raise(Waiting& line, Level level) {
  if (line.level >= level) return;
  line.level = level;
  path_.assign(1, line.number);
  while (!path_.empty()) {
    const Waiting* const at = find(path_.back());
    path_.pop_back();
    for (const Number number : at->after) {
      Waiting* const next = find(number);
      if (next == nullptr || next->level > at->level) continue;
      next->level = at->level + 1;
      path_.push_back(number);
    }
  }
}

LineFold::Waiting& LineFold::add_new(Alike& alike, Stream stream, std::string_view text,
                                     Time until) {
  const Number number = first_ + lines_.size();
  std::unique_ptr<Waiting> line;
  if (unused_.empty()) {
    line = std::make_unique<Waiting>();
  } else {
    line = std::move(unused_.back());
    unused_.pop_back();
  }
  line->line.text.assign(text);
  line->line.ranks.clear();
  line->line.stream = stream;
  line->alike = &alike;
  line->before.clear();
  line->after.clear();
  line->before_done = 0;
  line->number = number;
  line->until = until;
  alike.numbers.push_back(number);
  bytes_ += text.size();
  ++waiting_;
  lines_.push_back(std::move(line));
  return *lines_.back();
}

void LineFold::add(int local_rank, Stream stream, std::string_view text, Time now) {
  const std::size_t index = 2 * static_cast<std::size_t>(local_rank) + (stream == Stream::kOut);
  if (index >= last_.size()) last_.resize(index + 1);
  Last& last = last_[index];
  Waiting* const last_line = last.any ? find(last.number) : nullptr;
  Alike& alike = alike_of(stream, text);
  Waiting* line = find_like(local_rank, alike, last_line);
  if (line == nullptr) {
    line = &add_new(alike, stream, text, now + window_);
    line->level = (last_line != nullptr ? last_line->level : last.level) + kLevelGap;
  }
  line->line.ranks.push_back(local_rank);
  if (last_line != nullptr) {
    raise(*line, last_line->level + 1);
    line->before.push_back(last.number);
    last_line->after.push_back(line->number);
  }
  if (static_cast<int>(line->line.ranks.size()) >= ranks_) complete_.push_back(line->number);
  last = {line->number, line->level, true};
}

void LineFold::forget_alike(Waiting& line) {
  Alike& alike = *line.alike;
  if (*alike.begin() == line.number) {
    ++alike.first;
  } else {
    alike.numbers.erase(std::find(alike.begin(), alike.numbers.cend(), line.number));
  }
  if (2 * alike.first > alike.numbers.size()) {
    alike.numbers.erase(alike.numbers.begin(), alike.begin());
    alike.first = 0;
  }
  if (!alike.empty()) return;
  std::unique_ptr<Alike>* at = &by_text_[alike.hash % kChains];
  while (at->get() != &alike) at = &(*at)->next;
  std::unique_ptr<Alike> unused = std::move(*at);
  *at = std::move(unused->next);
  unused_alikes_.push_back(std::move(unused));
}

void LineFold::take_one(Number number, const Taker& taker) {
  std::unique_ptr<Waiting> line = std::move(lines_[number - first_]);
  bytes_ -= line->line.text.size();
  --waiting_;
  // Forgotten before the text is taken out: equal lines are found by their text.
  forget_alike(*line);
  while (!lines_.empty() && !lines_.front()) {
    lines_.pop_front();
    ++first_;
  }
  taker(line->line);
  if (line->line.text.capacity() > kMostKeptBytes) line->line.text = {};
  if (unused_.size() < kMostLines) unused_.push_back(std::move(line));
}

// Not by recursion: as many lines as wait can be before one.
void LineFold::take_with_those_before(Number number, const Taker& taker) {
  path_.assign(1, number);
  while (!path_.empty()) {
    Waiting* const line = find(path_.back());
    if (line == nullptr) {
      path_.pop_back();
    } else if (line->before_done < line->before.size()) {
      path_.push_back(line->before[line->before_done++]);
    } else {
      path_.pop_back();
      take_one(line->number, taker);
    }
  }
}

// Before a complete line nothing can be joined any more: all ranks are past that.
void LineFold::take(Time now, const Taker& taker) {
  for (const Number number : complete_) take_with_those_before(number, taker);
  complete_.clear();
  while (!lines_.empty() &&
         (lines_.front()->until <= now || waiting_ > kMostLines || bytes_ > kMostBytes))
    take_with_those_before(first_, taker);
  DT_CHECK(waiting_ > 0 || lines_.empty());
}

void LineFold::take_all(const Taker& taker) {
  take(Time::max(), taker);
}

std::optional<LineFold::Time> LineFold::next() const {
  if (lines_.empty()) return std::nullopt;
  return lines_.front()->until;
}

std::string describe_ranks(std::vector<int> ranks, int base) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i] + base);
    if (last > i) text += "-" + std::to_string(ranks[last] + base);
    i = last + 1;
  }
  return text;
}

}  // namespace dtrun::launcher
