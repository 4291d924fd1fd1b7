// NodeConnection: one connection between two agents, on an EventLoop: whole messages in, whole
// messages out. Not thread-safe. Callbacks may destroy the connection.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "node_protocol.h"

namespace dtrun::launcher {

class NodeConnection {
 public:
  enum class Side { kAccepted, kConnected };  ///< who sends the preamble: the one that connected

  /// @param received what was read from the socket already
  NodeConnection(base::EventLoop& loop, Side side, base::UniqueFd socket,
                 std::string received = {});

  /// Once; messages that came already are delivered by way of the loop.
  void start(std::function<void(const NodeMessage&)> on_message,
             std::function<void(const std::string& why)> on_lost);
  void send(const NodeMessage& message);

 private:
  bool take_preamble();
  void on_readable();
  void deliver();
  void flush();
  void lose(const std::string& why);

  base::EventLoop& loop_;
  bool preamble_missing_;
  base::UniqueFd socket_;
  std::unique_ptr<base::FdWatch> watch_;
  std::string received_;
  std::string unsent_;
  std::function<void(const NodeMessage&)> on_message_;
  std::function<void(const std::string&)> on_lost_;
  // Tells a running deliver() that a callback has destroyed the connection.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace dtrun::launcher
