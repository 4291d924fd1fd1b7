// Agreement: what several hosts say of each other: whether their clocks agree, and who reaches
// whom. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "doctor/finding.h"

namespace dtrun::doctor {

using Nanoseconds = std::chrono::nanoseconds;

/// One question for the time: our wall clock before and after, and theirs in between.
struct ClockSample {
  Nanoseconds asked, theirs, answered;
};
/// Theirs less ours, within `uncertainty` on either side.
struct ClockOffset {
  Nanoseconds offset{}, uncertainty{};
};
/// As NTP does (RFC 5905): the sample of the shortest round trip, whose half is the uncertainty.
/// @param samples not empty
ClockOffset clock_offset(const std::vector<ClockSample>& samples);
/// Of a host's clock beside that of another one. Nobody can be blamed for what the measurement
/// leaves open.
Finding clock_finding(const std::string& reference, const ClockOffset& own,
                      const ClockOffset& of_reference);

/// What a host said of one port of another host.
struct Reach {
  std::string host;
  int port = 0;
  std::string error;  ///< empty: the right one has answered
  Nanoseconds time{};
};
/// One of all that were reached, and one for each host that was not.
Findings reach_findings(const std::vector<Reach>& reaches);

/// Who connects to whom, as indices: everybody to everybody up to so many hosts, beyond that to the
/// first and to the next.
inline constexpr std::size_t kMostHostsForAllPairs = 16;
std::vector<std::size_t> targets_of(std::size_t host, std::size_t hosts);

}  // namespace dtrun::doctor
