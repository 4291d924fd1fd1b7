// error.json: how a worker tells its launcher why it failed. torchrun's format, both ways:
//   {"message": {"message": "Type: text", "extraInfo": {"py_callstack": "...", "timestamp": "<epoch
//   s>"}}}
// The older form {"message": "text", "timestamp": 10} is read too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::rendezvous {

struct FailureReport {
  std::string message;         ///< "dtrun::Error: cannot reach ..."
  std::string call_stack;      ///< may be empty
  std::int64_t timestamp = 0;  ///< seconds since the epoch
  int error_code = 0;          ///< "errorCode", added by the launcher; 0: none
};

/// @throws Error kSystem (a full disk); nothing half-written is left
void write_failure_report(const std::string& path, const FailureReport& report);
/// nullopt: no such file. @throws Error kProtocol for a malformed one
std::optional<FailureReport> read_failure_report(const std::string& path);

}  // namespace dtrun::rendezvous
