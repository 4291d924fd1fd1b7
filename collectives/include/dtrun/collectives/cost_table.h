// CostTable: what `dtrun-bench tune` has measured for a job: up to which sizes the cpu backend's
// collectives go which way, and the links that DTensor's planner reckons with. All ranks of a group
// have the same one: they compare it when they meet. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::collectives {

/// Where one way of the cpu backend ends and another begins (docs/collectives.md). In bytes.
struct WayLimits {
  /// Of a rank, by posts; 4 or 8 times as many where stages would move as much. 16 KiB at the most.
  std::size_t post_bytes = 16 << 10;
  /// Above this many of all ranks together, stages are faster than posts; likewise.
  std::size_t all_posts_bytes = 128 << 10;
  /// Reductions by messages of at most this many go to everybody whole, in one step; larger ones
  /// are cut into one chunk per rank, whose owner combines it.
  std::size_t whole_reduce_bytes = 16 << 10;
  /// Fewer than these are sent to each rank of the other machines, which is one step instead of two
  /// to four.
  std::size_t machines_bytes = 128 << 10;
  /// Up to this many of a rank, and of all together, go by rounds, in which they travel with those
  /// of others: more take longer on the way than the messages that are saved.
  std::size_t rounds_bytes = 16 << 10;
  std::size_t all_rounds_bytes = 128 << 10;

  constexpr bool operator==(const WayLimits&) const = default;
};
inline constexpr WayLimits kDefaultLimits;

class CostTable {
 public:
  CostTable() = default;  ///< none: the limits are the defaults
  /// Of a file such as {"0": {"latency": 3e-6, "bytes_per_second": 4e9}, "collectives":
  /// {"post_bytes": 8192}}. What it does not name keeps its default.
  /// @throws base::Error for the file, kProtocol for its JSON, kInvalidArgument for a limit
  static CostTable read(const std::string& path);
  /// The same. @param path for messages
  static CostTable parse(std::string text, std::string path);

  /// Of a file that this rank cannot use: no other rank's table is equal, unless it is as bad.
  static CostTable unusable(std::string path, std::string why);

  bool is_given() const { return !text_.empty(); }
  const std::string& path() const { return path_; }
  /// The whole file, with the links.
  const std::string& text() const { return text_; }
  const WayLimits& limits() const { return limits_; }
  /// Of the text; 0: there is none.
  std::uint64_t hash() const;

 private:
  std::string path_;
  std::string text_;
  WayLimits limits_;
};

/// The limits as such a file has them: {"post_bytes": 16384, ...}.
std::string json_of(const WayLimits& limits);

/// The key of the limits in the file; no axis of a mesh can be called so there.
inline constexpr std::string_view kLimitsKey = "collectives";

}  // namespace dtrun::collectives
