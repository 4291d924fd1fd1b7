#include "hosts/host_starter.h"

#include <fmt/core.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "dtrun/base/child_process.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "options/exit_code.h"
#include "output/notice.h"
#include "output/private_folder.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::log::Component;

// After the first failure the other hosts get this long to fail, too, so that one error names all.
constexpr auto kTellingTime = std::chrono::seconds(3);
// How long the remote shells may take to end: before the ranks run, and beyond the ranks' own time.
constexpr auto kHangUpTime = std::chrono::seconds(2), kEndTime = std::chrono::seconds(5);

// The exit code of the other nodes' dtruns when a node is gone, and when its relay has stopped its
// dtrun because the shell has ended. They may hear of either before this one does.
constexpr int kOfAGoneNode = 1, kOfAStoppedNode = kExitSignal + SIGTERM;

constexpr const char* kWithoutKeeping = "--ssh_persist=0 needs no folder";

std::string find_shell(const std::string& name, const std::string& search_path) {
  try {
    return base::find_program(name, search_path);
  } catch (const base::SpawnError& error) {
    throw base::Error(base::ErrorCode::kUnavailable,
                      fmt::format("there is no remote shell '{}'", name), error.why(),
                      "install it, or name another: --remote_shell=COMMAND");
  }
}

// Whoever could put a socket there would be given programs and their environment.
void make_connection_folder(const std::string& folder) {
  make_own_folder(folder, kWithoutKeeping);
  if (::chmod(folder.c_str(), 0700) != 0)
    throw base::system_error(fmt::format("close the folder {} to others", folder), kWithoutKeeping);
  // ssh ends where it cannot make its socket.
  std::string probe = folder + "/probe-XXXXXX";
  const base::UniqueFd made(::mkstemp(probe.data()));
  if (!made) throw base::system_error(fmt::format("make a file in {}", folder), kWithoutKeeping);
  ::unlink(probe.c_str());
}

HostStarterSetup with_a_folder_for_connections(HostStarterSetup setup) {
  std::vector<std::string>& words = setup.order.remote_shell;
  const std::string folder = connection_folder(words);
  if (folder.empty()) return setup;
  try {
    make_connection_folder(folder);
  } catch (const base::Error& error) {
    base::log::warning(Component::kLauncher, "ssh's connections are not kept: {}", error.what());
    words = without_kept_connections(std::move(words));
  }
  return setup;
}

}  // namespace

HostStarter::HostStarter(base::EventLoop& loop, HostSinks sinks, HostStarterSetup setup,
                         HostStarterCallbacks callbacks)
    : loop_(loop),
      sinks_(sinks),
      setup_(with_a_folder_for_connections(std::move(setup))),
      callbacks_(std::move(callbacks)),
      deadline_(Deadline::after(setup_.order.join_timeout)),
      join_timer_(loop),
      tell_timer_(loop),
      end_timer_(loop) {
  join_timer_.start(deadline_, [this] { give_up_waiting(); });
  for (const std::vector<HostNode>& nodes : divided(setup_.order.nodes, setup_.order.fanout))
    start(nodes);
}

void HostStarter::start(const std::vector<HostNode>& nodes) {
  Host& host = hosts_.emplace_back();
  const std::size_t index = hosts_.size() - 1;
  HostLinkCallbacks callbacks;
  callbacks.on_greeting = [this, index, nodes](std::uint16_t port) {
    if (port != 0) set_port(port);
    HostOrder order = setup_.order;
    order.nodes = nodes;
    // Each level of the tree gets less time than the one above, so that the nearest dtrun gives a
    // host up and names it.
    order.join_timeout = deadline_.remaining() * 9 / 10;
    hosts_[index].link->send_order(order, port_);
  };
  callbacks.on_ready = [this, index] { decide(index, {}); };
  callbacks.on_failures = [this, index](std::vector<HostFailure> failures) {
    decide(index, std::move(failures));
  };
  callbacks.on_gone = [this, index] { on_gone(index); };
  const base::ToolCommand command = command_for(nodes.front());
  base::log::info(Component::kLauncher, "host {} is started by {}, with {} below it",
                  nodes.front().host, command.path, nodes.size() - 1);
  host.link =
      std::make_unique<HostLink>(loop_, sinks_, nodes.front().host, command, std::move(callbacks));
}

base::ToolCommand HostStarter::command_for(const HostNode& node) const {
  std::vector<std::string> words = {setup_.own_path};
  if (node.place == HostPlace::kRemote) {
    words = setup_.order.remote_shell;
    words.push_back(node.host);
    words.push_back(setup_.order.remote_dtrun);
  }
  words.push_back(node.node_rank == 0 ? "--remote-agent=" + setup_.head_ports : "--remote-agent");
  const std::string search =
      setup_.environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  return {find_shell(words.front(), search),
          {words.begin() + 1, words.end()},
          setup_.environment.as_strings()};
}

void HostStarter::set_port(std::uint16_t port) {
  port_ = port;
  for (const Host& host : hosts_)
    if (host.link->stage() != HostLink::Stage::kStarting) host.link->tell_port(port);
}

void HostStarter::go() {
  running_ = true;
  join_timer_.cancel();
  for (const Host& host : hosts_) host.link->go();
}

void HostStarter::pass_signal(int signal_number) {
  is_signalled_ = true;
  for (const Host& host : hosts_) host.link->pass_signal(signal_number);
}

void HostStarter::stop() {
  if (stopping_) return;
  stopping_ = true;
  join_timer_.cancel();
  tell_timer_.cancel();
  for (const Host& host : hosts_) {
    host.link->hang_up();
    if (!running_) host.link->signal_shell(SIGTERM);
  }
  const Deadline::Duration patience =
      running_ ? setup_.order.grace + kEndTime : Deadline::Duration(kHangUpTime);
  end_timer_.start(Deadline::after(patience), [this] { kill_shells(); });
}

void HostStarter::decide(std::size_t index, std::vector<HostFailure> failures) {
  base::log::info(Component::kLauncher, "host {} is {}", hosts_[index].link->host(),
                  failures.empty() ? "ready" : "not ready");
  const bool was_ready = hosts_[index].state == Host::State::kReady;
  hosts_[index].state = failures.empty() ? Host::State::kReady : Host::State::kFailed;
  // A host that was ready fails because another one has.
  if (was_ready && !failures_.empty()) failures.clear();
  if (!failures.empty() && failures_.empty())
    tell_timer_.start(Deadline::after(kTellingTime), [this] { tell_failures(); });
  std::ranges::move(failures, std::back_inserter(failures_));
  if (std::ranges::find(hosts_, Host::State::kAwaited, &Host::state) != hosts_.end()) return;
  if (failures_.empty()) return callbacks_.on_ready();
  tell_failures();
}

HostFailure HostStarter::failure_of(const Host& host) const {
  HostAttempt attempt = host.link->attempt(setup_.order.remote_dtrun);
  attempt.waited = setup_.order.join_timeout;
  return failure_of_attempt(attempt);
}

void HostStarter::give_up_waiting() {
  for (Host& host : hosts_) {
    if (host.state != Host::State::kAwaited) continue;
    host.state = Host::State::kFailed;
    failures_.push_back(failure_of(host));
  }
  tell_failures();
}

void HostStarter::tell_failures() {
  if (stopping_) return;
  for (const Host& host : hosts_)
    if (host.state == Host::State::kAwaited) failures_.push_back(not_heard_of(host.link->host()));
  const auto place = [&](const HostFailure& failure) {
    return std::ranges::find(setup_.order.nodes, failure.host, &HostNode::host);
  };
  std::ranges::stable_sort(failures_, {}, place);
  code_ = exit_code_of(failures_);
  callbacks_.on_failures(failures_);
  stop();
}

void HostStarter::on_gone(std::size_t index) {
  Host& host = hosts_[index];
  host.gone = true;
  const auto code = host.link->end_code();
  if (running_ && code) {
    on_job_end(*code);
  } else if (running_ && !stopping_) {
    lose({failure_of(host)});
    stop();
  } else if (!stopping_ && host.state != Host::State::kFailed) {
    decide(index, {failure_of(host)});
  }
  // Wait for the remaining remote shells.
  if (!std::ranges::all_of(hosts_, &Host::gone)) return;
  end_timer_.cancel();
  callbacks_.on_end(code_);
}

// The job is over, and the agents of the other hosts know it.
void HostStarter::on_job_end(int code) {
  if (code == 0) return;
  if (code_ == 0) code_ = code;
  if (!stopping_)
    end_timer_.start(Deadline::after(setup_.order.grace + kEndTime), [this] { give_up_silent(); });
}

void HostStarter::lose(const std::vector<HostFailure>& failures) {
  callbacks_.on_failures(failures);
  const bool is_of_the_loss = code_ == kOfAGoneNode || (code_ == kOfAStoppedNode && !is_signalled_);
  if (code_ == 0 || is_of_the_loss) code_ = exit_code_of(failures);
}

// The connection to a host that is cut off does not end. The dtrun on that host is cut off as well,
// and ends its ranks by itself.
void HostStarter::give_up_silent() {
  std::vector<HostFailure> failures;
  for (const Host& host : hosts_)
    if (!host.gone)
      failures.push_back(silent_host(host.link->host(), setup_.order.grace + kEndTime));
  lose(failures);
  stop();
  end_timer_.start(Deadline::after(kHangUpTime), [this] { kill_shells(); });
}

void HostStarter::kill_shells() {
  for (const Host& host : hosts_) host.link->signal_shell(SIGKILL);
}

}  // namespace dtrun::launcher
