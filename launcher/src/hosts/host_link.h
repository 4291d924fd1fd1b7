// HostLink: the starter's side of one host: the remote shell that runs a relay there (host_order.h
// has what they say to each other), and the ranks' output that comes by it. On the starter's
// EventLoop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/line_relay.h"
#include "dtrun/base/tool_process.h"
#include "hosts/host_order.h"
#include "hosts/remote_shell.h"

namespace dtrun::launcher {

/// Where the output of all hosts goes.
struct HostSinks {
  base::OutputSink& out;
  base::OutputSink& err;
};

struct HostLinkCallbacks {
  std::function<void(std::uint16_t port)> on_greeting;  ///< the order may be sent
  std::function<void()> on_ready;
  std::function<void(std::vector<HostFailure>)> on_failures;  ///< of it and those below it
  std::function<void()> on_gone;  ///< once, last: end_code() is known, or attempt() says why not
};

class HostLink {
 public:
  enum class Stage { kStarting, kPreparing, kReady, kRunning, kGone };

  /// @param shell the whole command @param host for messages
  /// @throws SpawnError
  HostLink(base::EventLoop& loop, HostSinks sinks, std::string host, const base::ToolCommand& shell,
           HostLinkCallbacks callbacks);
  ~HostLink();

  /// @param port as of tell_port(); 0: it is not known yet
  void send_order(const HostOrder& order, std::uint16_t port);
  void tell_port(std::uint16_t port);
  void go();
  void pass_signal(int signal_number);
  /// Ends the relay's input: it ends all that it has started.
  void hang_up();
  /// To the remote shell here, not to the ranks there.
  void signal_shell(int signal_number);

  Stage stage() const { return stage_; }
  const std::string& host() const { return host_; }
  /// The job's exit code there; none: the connection broke, or the relay died.
  std::optional<int> end_code() const { return end_code_; }
  HostAttempt attempt(const std::string& remote_dtrun) const;

 private:
  void on_out(std::string_view bytes);
  std::size_t beginning_of_mark() const;
  void read_greeting(std::string_view bytes);
  void read_line(std::string_view line);
  void read_word(std::string_view word);
  void on_err(std::string_view bytes);
  void on_process_end(base::ExitStatus status);
  void finish_streams();
  void become_gone();

  base::EventLoop& loop_;
  HostSinks sinks_;
  const std::string host_;
  const std::string shell_;
  HostLinkCallbacks callbacks_;
  Stage stage_ = Stage::kStarting;
  bool greeted_ = false;
  std::string mark_;    // "\x1e<mark> "
  std::string banner_;  // before the greeting, and what stands on its line so far
  std::string unread_;  // of standard output: what may be a mark, and its line so far
  std::string words_;   // of standard error, the last
  std::optional<int> end_code_;
  std::optional<base::ExitStatus> status_;
  base::UniqueFd input_;
  std::unique_ptr<base::OutputSink> input_sink_;
  std::unique_ptr<base::LineRelay> out_, err_;
  base::Timer drain_timer_;
  std::unique_ptr<base::ToolProcess> process_;
  int streams_open_ = 2;
};

}  // namespace dtrun::launcher
