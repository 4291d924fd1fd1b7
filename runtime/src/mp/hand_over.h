// Hand-over: one memfd between a parent and one child. The parent writes what shall be run; the
// child takes it, marks that it has begun, and leaves there how it ended, if an exception ended it.
// Nothing can block, whatever the sizes, and nothing has a name in the file system.
// Written and read by the same program: the format is that of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::mp {

/// What a fresh image shall do.
struct Order {
  enum class Kind { kRun, kServe };  ///< run a function; be the forkserver

  Kind kind = Kind::kRun;
  std::string function;   ///< the name that DTRUN_MP_FUNCTION gave it
  std::string arguments;  ///< encoded
  std::string process_name;
  std::string program_name;  ///< as ps shows it; execve of /proc/self/exe would change it
  std::string start_method;  ///< the child's default
  bool daemon = false;
  bool print_exception = true;  ///< false: the parent throws it
  int control_fd = -1;          ///< of the forkserver: where requests come in
  /// For a child of the forkserver, which began in another environment.
  std::vector<std::string> environment;
};

/// How far the child came.
struct Outcome {
  enum class State : std::uint32_t { kNotBegun, kBegun, kRaised };

  State state = State::kNotBegun;
  // Of the exception:
  std::int64_t time_ns = 0;                   ///< CLOCK_MONOTONIC
  std::optional<base::ErrorCode> error_code;  ///< of a dtrun Error
  std::string type;
  std::string text;
};

/// The parent's side. @throws Error kSystem
base::UniqueFd make_hand_over(const Order& order);
/// For a child that needs no order.
base::UniqueFd make_hand_over();
/// Whatever the child has done to the memory: where it tells nothing, it has begun, and no more.
Outcome read_outcome(int fd);

/// The child's side.
Order take_order(int fd);
void mark_begun(int fd);
/// @throws Error kUsage where the descriptor is not the hand-over any more
void write_raised(int fd, const Outcome& outcome);

}  // namespace dtrun::mp
