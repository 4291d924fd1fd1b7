// Where the core of a crashed rank lies: kernel.core_pattern, the limit of cores (RLIMIT_CORE), and
// what is found there. Reads files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace dtrun::launcher {

struct CoreFacts {
  pid_t pid = 0;
  int signal = 0;
  bool is_dumped = false;  ///< the kernel says so
  std::int64_t ended = 0;  ///< seconds since the epoch
};

/// kernel.core_pattern as a pattern of glob(7): `*` stands for what only the kernel knows. Pure.
/// @param uses_pid kernel.core_uses_pid: ".PID" behind a pattern without %p
std::string core_glob(const std::string& pattern, bool uses_pid, const CoreFacts& facts);

/// "/var/cores/core.812", "coredumpctl info 812 (systemd-coredump has it)", "none: ...". Empty: the
/// signal makes no core.
std::string describe_core(const CoreFacts& facts);

}  // namespace dtrun::launcher
