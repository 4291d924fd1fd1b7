// RemoteShell: the command that starts a dtrun on another host, and what is said of one that
// failed. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/exit_status.h"
#include "hosts/host_order.h"

namespace dtrun::launcher {

/// ssh, without questions and without a terminal.
/// @param persist how long its connections stay open for the next dtrun; 0: not at all
std::vector<std::string> default_remote_shell(base::Deadline::Duration join_timeout,
                                              base::Deadline::Duration persist = {});
/// Whether the text of an ssh configuration names ControlMaster, ControlPath or ControlPersist, for
/// whichever host: its user has decided what is shared.
bool configures_sharing(std::string_view ssh_config);
/// Where connections that stay open have their sockets, on the machine that such words are run on;
/// nothing: the words keep none. ssh itself does not make the folder.
std::string connection_folder(const std::vector<std::string>& remote_shell);
/// The same shell, which makes its connections for itself alone.
std::vector<std::string> without_kept_connections(std::vector<std::string> remote_shell);
/// The words of --remote-shell; '...' and "..." keep blanks. @throws Error kUsage
std::vector<std::string> split_remote_shell(std::string_view text);

/// How far a host had come when its remote shell ended, or was ended.
struct HostAttempt {
  std::string host;
  std::string shell;                       ///< its first word
  std::optional<base::ExitStatus> status;  ///< none: it was given up
  base::Deadline::Duration waited{};       ///< of one that was given up
  bool greeted = false;                    ///< dtrun had said its name
  std::string words{};                     ///< on its standard error
  std::string banner{};                    ///< on its standard output, before dtrun's name
  std::string remote_dtrun;
};

HostFailure failure_of_attempt(const HostAttempt& attempt);
/// For a host that was still awaited when others had failed.
HostFailure not_heard_of(const std::string& host);
/// For a host that has not ended, though the job ended on the others this long ago.
HostFailure silent_host(const std::string& host, base::Deadline::Duration waited);
HostFailure other_version(const std::string& host, const std::string& theirs);

/// Before the ranks run, and then.
enum class HostPhase { kStart, kJob };

/// All of them as one message, those that failed alike together.
std::string failure_text(const std::vector<HostFailure>& failures, HostPhase phase, int node_count);
/// Their common one, else that of hosts that cannot be reached.
int exit_code_of(const std::vector<HostFailure>& failures);

}  // namespace dtrun::launcher
