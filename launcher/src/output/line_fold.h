// LineFold: folds identical lines of several ranks into one. A line waits a window's time at the
// most for its like; the lines of a rank keep their order, and none is lost. Pure: time is given.
//
// What waits is a graph: each folded line knows the lines that its ranks wrote before it, and
// after it. A rank's line joins one that is there when that is not, by any way, before the rank's
// last line; and a line is passed on after all that are before it. Each has a level above those of
// all before it, by which most lines are seen not to be before another without a look at the graph
// (as in Pearce and Kelly's "A dynamic topological sort algorithm", 2006).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "options/stream_choice.h"

namespace dtrun::launcher {

class LineFold {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Line {
    std::string text;        ///< with its newline
    std::vector<int> ranks;  ///< local, in the order in which they wrote it
    Stream stream = Stream::kOut;
  };
  /// The line is good until it returns.
  using Taker = std::function<void(const Line&)>;

  /// @param ranks how many can write a line: when all have, it is not kept waiting
  LineFold(int ranks, std::chrono::nanoseconds window);
  ~LineFold();

  void add(int local_rank, Stream stream, std::string_view text, Time now);
  /// Passes on those that need not wait any longer, in order.
  void take(Time now, const Taker& taker);
  void take_all(const Taker& taker);
  /// When take() has something again; nullopt: nothing waits.
  std::optional<Time> next() const;
  bool empty() const { return waiting_ == 0; }

 private:
  using Number = std::uint64_t;  // in the order in which they began to wait
  using Level = std::uint64_t;

  struct Alike;  // those of one text
  struct Waiting {
    Line line;
    Alike* alike = nullptr;
    std::vector<Number> before, after;  // some may have been taken
    std::size_t before_done = 0;        // so many of `before` have been seen to
    Number number = 0;
    Level level = 0;
    Time until;
    std::uint64_t visit = 0;  // the walk that has come by last
  };
  struct Last {
    Number number = 0;
    Level level = 0;
    bool any = false;
  };

  Waiting* find(Number number) const;
  Alike& alike_of(Stream stream, std::string_view text);
  Waiting* find_like(int local_rank, const Alike& alike, const Waiting* last);
  bool comes_before(Waiting& line, const Waiting& other);
  void raise(Waiting& line, Level level);
  Waiting& add_new(Alike& alike, Stream stream, std::string_view text, Time until);
  void forget_alike(Waiting& line);
  void take_with_those_before(Number number, const Taker& taker);
  void take_one(Number number, const Taker& taker);

  int ranks_;
  std::chrono::nanoseconds window_;
  std::deque<std::unique_ptr<Waiting>> lines_;  // from number first_ on; none: it has been taken
  std::vector<std::unique_ptr<Waiting>> unused_;
  std::size_t waiting_ = 0;
  Number first_ = 0;
  std::vector<Number> complete_;
  std::size_t bytes_ = 0;
  std::vector<std::unique_ptr<Alike>> by_text_;  // chains, by their hash
  std::vector<std::unique_ptr<Alike>> unused_alikes_;
  std::vector<Last> last_;  // of each stream
  std::uint64_t visits_ = 0;
  std::vector<Number> path_;
};

/// "0-3,7" of 7, 0, 1, 3, 2, each plus `base`.
std::string describe_ranks(std::vector<int> ranks, int base);

}  // namespace dtrun::launcher
