// Tour: a dtrun-doctor on each of several hosts (visit.h), started over the remote shell. It tells
// what each has found by itself, whether their clocks agree, and who reaches whom. A host that
// cannot be visited holds up none of the others.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "hosts/remote_shell.h"

namespace dtrun::doctor {

struct ToldHost {
  std::string name;        ///< as it was told: "b", "me@b"
  std::string reached_as;  ///< by the others
  bool is_here = false;    ///< needs no remote shell
};

struct TourPlan {
  std::vector<ToldHost> hosts;
  std::vector<std::string> shell;   ///< its words; host and command follow
  std::vector<std::string> doctor;  ///< the command on each host
};

struct HostReport {
  std::string host;
  Findings findings;
};

struct TourReport {
  std::vector<HostReport> reports;              ///< in the order of the hosts
  std::vector<launcher::HostFailure> failures;  ///< of hosts that could not be visited
};

/// @throws Error kUnavailable where there is no such remote shell
TourReport tour(const TourPlan& plan);

}  // namespace dtrun::doctor
