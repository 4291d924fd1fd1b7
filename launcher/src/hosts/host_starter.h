// HostStarter: starts relays on several hosts at once, each with its part of the others, and hears
// from them how the job ended there. The dtrun that the user has started has one, and so has each
// relay with hosts below it. On one EventLoop.  No rank is started before every host is ready:
// until then a host that fails costs nothing, and all that fail are told together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/event_loop.h"
#include "hosts/host_link.h"
#include "hosts/host_order.h"

namespace dtrun::launcher {

struct HostStarterSetup {
  HostOrder order;                ///< its nodes are those to be started
  base::Environment environment;  ///< of the remote shells
  std::string own_path;           ///< of this dtrun
  /// Where the first node listens, if it is one of these: a port, A:B, or 0 for any.
  std::string head_ports = "0";
};

struct HostStarterCallbacks {
  std::function<void()> on_ready;  ///< every host is
  /// Hosts that are not, or that are lost later. Everything is being ended.
  std::function<void(const std::vector<HostFailure>&)> on_failures;
  std::function<void(int code)> on_end;  ///< once, last
};

class HostStarter {
 public:
  /// @throws Error kUnavailable where there is no such remote shell
  HostStarter(base::EventLoop& loop, HostSinks sinks, HostStarterSetup setup,
              HostStarterCallbacks callbacks);

  /// Where the first node listens, if it is none of these.
  void set_port(std::uint16_t port);
  /// Lets the ranks start.
  void go();
  void pass_signal(int signal_number);
  /// Ends everything on all of its hosts. on_end follows.
  void stop();

 private:
  struct Host {
    enum class State { kAwaited, kReady, kFailed };
    std::unique_ptr<HostLink> link;
    State state = State::kAwaited;
    bool gone = false;  // and on_gone() has heard of it
  };

  void start(const std::vector<HostNode>& nodes);
  base::ToolCommand command_for(const HostNode& node) const;
  void decide(std::size_t index, std::vector<HostFailure> failures);
  HostFailure failure_of(const Host& host) const;
  void give_up_waiting();
  void tell_failures();
  void on_gone(std::size_t index);
  void on_job_end(int code);
  void lose(const std::vector<HostFailure>& failures);
  void give_up_silent();
  void kill_shells();

  base::EventLoop& loop_;
  HostSinks sinks_;
  const HostStarterSetup setup_;
  HostStarterCallbacks callbacks_;
  const base::Deadline deadline_;  // for all hosts to be ready
  std::vector<Host> hosts_;
  std::vector<HostFailure> failures_;
  base::Timer join_timer_, tell_timer_, end_timer_;
  std::uint16_t port_ = 0;
  int code_ = 0;
  bool is_signalled_ = false;  ///< the user's signals have been passed on
  bool running_ = false;
  bool stopping_ = false;
};

}  // namespace dtrun::launcher
