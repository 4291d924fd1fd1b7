// Striped channels: several TCP connections from one rank to another, of one group and lane, as one
// channel, for networks that give one connection less than the link has. Headers and short payloads
// keep their order on the first connection; the stripes of a large payload go on all of them
// (stripes.h). The end of one connection is the end of the channel.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "channel.h"
#include "stripes.h"
#include "tcp_channel.h"

namespace dtrun::collectives::cpu {

class StripedSendChannel : public SendChannel {
 public:
  /// @param connect makes the connection of that number: the first at once, each other one for its
  /// first stripe
  using Connect = std::function<std::unique_ptr<TcpSendChannel>(std::size_t connection)>;
  StripedSendChannel(std::size_t connections, Connect connect);
  void begin(std::size_t payload) override { stripes_.begin(payload); }
  /// @throws what connect throws
  std::size_t write(Bytes first, Bytes second) override;
  bool broken() const override;

 private:
  const Connect connect_;
  std::vector<std::unique_ptr<TcpSendChannel>> connections_;
  Stripes stripes_;
};

class StripedReceiveChannel : public ReceiveChannel {
 public:
  explicit StripedReceiveChannel(std::size_t connections)
      : connections_(connections), stripes_(connections) {}
  /// They come in any order.
  void attach(std::size_t connection, std::unique_ptr<TcpReceiveChannel> channel) {
    connections_[connection] = std::move(channel);
  }
  void begin(std::size_t payload) override { stripes_.begin(payload); }
  std::size_t read(std::span<std::byte> target) override;
  // Of what is not striped.
  std::size_t most_at_once() const override {
    return connections_[0] ? connections_[0]->most_at_once() : 0;
  }
  bool has(std::size_t bytes) override {
    return !stripes_.active() && connections_[0] && connections_[0]->has(bytes);
  }
  const std::byte* front(std::size_t bytes) override { return connections_[0]->front(bytes); }
  void read_behind(std::size_t shown, std::span<std::byte> target) override {
    connections_[0]->read_behind(shown, target);
  }
  bool broken() const override;

 private:
  std::vector<std::unique_ptr<TcpReceiveChannel>> connections_;  ///< null: it has not come
  Stripes stripes_;
};

}  // namespace dtrun::collectives::cpu
