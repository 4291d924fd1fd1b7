// Error: something outside of dtrun went wrong (a peer, a file, a device, an argument of the
// user's). It says what happened, why, and what to try. Bugs of dtrun fail a DT_CHECK (check.h),
// never an Error. Values; safe to copy between threads.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace dtrun::base {

/// What kind of thing went wrong. docs/errors.md says what to do after each.
enum class ErrorCode {
  kInvalidArgument,  ///< the caller's argument is wrong; nothing was done
  kUsage,            ///< the command line or the environment is wrong
  kNotFound,         ///< a file, program, key or name is not there
  kUnavailable,      ///< not built in, or no such device here
  kTimeout,          ///< a deadline passed
  kPeerFailed,       ///< another rank died, left or failed
  kDisagreement,     ///< ranks called different things, or with different arguments
  kConnection,       ///< the network refused or broke
  kProtocol,         ///< a peer sent what its protocol does not allow
  kSystem,           ///< the operating system refused
  kAborted,          ///< the job is being stopped, or this group has failed before
};

std::string_view error_code_name(ErrorCode code);

class Error : public std::exception {
 public:
  /// @param what lower case, no full stop: "cannot reach the store at n0:29500 for 30 s"
  /// @param why the cause as far as it is known; may be empty
  /// @param remedy what the reader can try; may be empty
  Error(ErrorCode code, std::string what, std::string why = {}, std::string remedy = {});

  ErrorCode code() const { return code_; }
  /// The whole text: what, then "  why: ..." and "  try: ..." lines where there are any.
  const char* what() const noexcept override { return text_.c_str(); }
  const std::string& summary() const { return what_; }
  const std::string& why() const { return why_; }
  const std::string& remedy() const { return remedy_; }
  /// errno of a system_error() or a SpawnError; 0: there is none.
  int error_number() const { return error_number_; }

 protected:
  int error_number_ = 0;

 private:
  friend Error system_error(std::string_view action, int error_number, std::string remedy);

  ErrorCode code_;
  std::string what_;
  std::string why_;
  std::string remedy_;
  std::string text_;
};

/// kSystem with errno's text: "cannot <action>: <strerror>". Reads errno at the call.
Error system_error(std::string_view action, std::string remedy = {});
Error system_error(std::string_view action, int error_number, std::string remedy = {});

/// "SIGKILL" for 9; "signal 42" where there is no name.
std::string signal_name(int signal_number);

}  // namespace dtrun::base
