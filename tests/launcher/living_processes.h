// LivingProcesses: those on this machine whose command line or environment contains a token that a
// test made up. For the claim that nothing of a job is left.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace dtrun::launcher {

/// A number that no other process has in its command line; usable as an argument of sleep.
std::string unique_token();

std::vector<pid_t> processes_with(const std::string& token);

/// Waits until no process with the token is left; false when the limit passed.
bool all_gone_within(const std::string& token, std::chrono::milliseconds limit);

/// "pid: command line" of each that is left, for messages.
std::string describe_processes_with(const std::string& token);

std::vector<pid_t> children_of(pid_t pid);

/// The most memory that the process has had, in bytes; 0: there is none.
std::size_t most_memory_of(pid_t pid);

/// The processes of a dtrun that runs.
struct LauncherProcesses {
  pid_t agent = 0;
  pid_t keeper = 0;  ///< 0: not there yet, or any more
  pid_t guard = 0;
};
LauncherProcesses processes_of(pid_t agent);
/// Waits until all are there, or the agent has ended.
LauncherProcesses wait_for_guard(pid_t agent);

/// The rank that calls itself so: in a pid namespace (--containment=namespace) it is another to us.
/// 0: there is none.
pid_t rank_called(pid_t own_number, pid_t agent);

}  // namespace dtrun::launcher
