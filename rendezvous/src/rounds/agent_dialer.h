// AgentDialer: one attempt to connect, without ever blocking its loop: the name is looked up on a
// thread, then all its addresses, of both families, are tried, the next one soon after the last
// where that does not answer; the first that takes the connection wins. Destroying it ends the
// attempt. Belongs to its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/background_call.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {

class AgentDialer {
 public:
  /// The socket, or an invalid one and why. Called once, from the loop; may destroy the dialer.
  using Callback = std::function<void(base::UniqueFd socket, const std::string& why)>;

  AgentDialer(base::EventLoop& loop, std::string host, std::uint16_t port,
              base::Deadline::Duration limit, Callback on_end);

 private:
  struct Attempt {
    base::UniqueFd socket;
    std::unique_ptr<base::FdWatch> watch;  // before its socket goes
  };
  using Attempts = std::list<Attempt>;

  void try_next();
  void look_at(Attempts::iterator attempt);
  void end(base::UniqueFd socket);

  base::EventLoop& loop_;
  const std::uint16_t port_;
  Callback on_end_;
  std::vector<std::string> addresses_;  // numeric; those not tried yet, the next one last
  std::string why_;                     // of the last failure
  Attempts attempts_;
  base::Timer limit_;
  base::Timer stagger_;
  std::unique_ptr<base::BackgroundCall> lookup_;
};

}  // namespace dtrun::rendezvous
