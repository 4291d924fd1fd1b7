// CallCounters: how often this rank has made each kind of call of a group, with how many bytes,
// and how long that took. A value: a copy of what the group had counted at one moment.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives {

/// Which calls a group times. All are counted.
enum class CallTiming : std::uint8_t {
  /// All but the short ones that need not wait: blocking collectives by posts or short messages,
  /// sends, receives and batches of them, among ranks that share memory and come at the same time.
  /// Such a call takes some 0.3 us, and to time it costs a fifth of that.
  long_calls,
  all_calls,
};

/// Of one kind of call.
struct CallCount {
  OpKind kind = OpKind::none;
  std::uint64_t calls = 0;
  std::uint64_t failed = 0;  ///< of them; they are not timed
  /// Of this rank's tensors in the calls, given and got; one that is both counts once.
  std::uint64_t bytes = 0;
  std::uint64_t timed = 0;  ///< calls of which the time is known
  /// From the call to its end; of an asynchronous one until its work was done, whoever waited. With
  /// nccl until this rank has seen that the device is done.
  std::chrono::nanoseconds total{};
  std::chrono::nanoseconds longest{};  ///< of one call

  friend bool operator==(const CallCount&, const CallCount&) = default;
};

struct CallCounters {
  std::string group;
  int rank = 0;  ///< in the group
  int size = 0;
  std::vector<CallCount> kinds;  ///< of the calls that were made

  /// All zeros where no such call was made.
  CallCount of(OpKind kind) const;
  /// What has come since an earlier moment. The longest call stays that of all.
  CallCounters since(const CallCounters& earlier) const;
  /// A table, a line for each kind.
  std::string to_string() const;
};

std::ostream& operator<<(std::ostream& out, const CallCounters& counters);

}  // namespace dtrun::collectives
