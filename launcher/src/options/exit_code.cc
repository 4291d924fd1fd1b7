#include "options/exit_code.h"

#include <errno.h>

#include "dtrun/base/child_process.h"
#include "options/config_error.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

int exit_code_of_error(const Error& error, CalledAs name) {
  if (is_torchs_name(name)) return error.code() == ErrorCode::kUsage ? kExitTorchUsage : kExitTorch;
  if (const auto* spawn = dynamic_cast<const base::SpawnError*>(&error))
    return spawn->error_number() == ENOENT ? kExitNotFound : kExitNotExecutable;
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return kExitConfig;
  switch (error.code()) {
    case ErrorCode::kUsage:
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnavailable:
      return kExitUsage;
    case ErrorCode::kConnection:
      return kExitUnreachable;
    case ErrorCode::kTimeout:
      return kExitTemporary;
    case ErrorCode::kSystem:
      return kExitSystem;
    default:
      return kExitLauncherFailed;
  }
}

}  // namespace dtrun::launcher
