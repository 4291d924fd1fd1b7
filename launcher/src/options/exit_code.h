// dtrun's exit codes, apart from a rank's own code (docs/errors.md).
#pragma once

#include "dtrun/base/error.h"
#include "options/called_as.h"

namespace dtrun::launcher {

inline constexpr int kExitUsage = 64;
inline constexpr int kExitUnreachable = 69;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitSystem = 71;
inline constexpr int kExitTemporary =
    75;  ///< EX_TEMPFAIL; a rank says so, too, that can go on later
inline constexpr int kExitConfig = 78;
inline constexpr int kExitLauncherFailed = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
// torchrun's codes, when dtrun is called by its name.
inline constexpr int kExitTorch = 1;
inline constexpr int kExitTorchUsage = 2;
inline constexpr int kExitSignal = 128;  ///< + the signal

/// The code of an error that ends dtrun before there are ranks, by the name that it was called.
int exit_code_of_error(const base::Error& error, CalledAs name);

}  // namespace dtrun::launcher
