// What dtrun exits with when it is not a rank's own code (docs/errors.md).
#pragma once

namespace dtrun::launcher {

inline constexpr int kExitUsage = 64;
inline constexpr int kExitUnreachable = 69;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitSystem = 71;
inline constexpr int kExitLauncherFailed = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignal = 128;  ///< + the signal

}  // namespace dtrun::launcher
