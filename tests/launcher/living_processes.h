// LivingProcesses: those on this machine whose command line or environment contains a token that a
// test made up. For the claim that nothing of a job is left.
#pragma once

#include <sys/types.h>

#include <chrono>
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

}  // namespace dtrun::launcher
