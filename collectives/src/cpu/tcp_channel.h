// TCP channels: one connection per direction, group and lane, non-blocking; the side that sends
// has connected. So a receiving side that closes with bytes unread resets nothing that it has sent
// itself.
#pragma once

#include "channel.h"
#include "data_hello.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::collectives::cpu {

class TcpSendChannel : public SendChannel {
 public:
  /// @param fd connecting or connected, non-blocking; @param hello goes out first
  TcpSendChannel(base::UniqueFd fd, const DataHello& hello) : fd_(std::move(fd)), hello_(hello) {}
  std::size_t write(Bytes first, Bytes second) override;
  bool broken() const override { return broken_; }

 private:
  base::UniqueFd fd_;
  DataHello hello_;
  std::size_t hello_done_ = 0;
  bool broken_ = false;
};

class TcpReceiveChannel : public ReceiveChannel {
 public:
  explicit TcpReceiveChannel(base::UniqueFd fd) : fd_(std::move(fd)) {}
  std::size_t read(std::span<std::byte> target) override;
  bool broken() const override { return broken_; }

 private:
  base::UniqueFd fd_;
  bool broken_ = false;
};

}  // namespace dtrun::collectives::cpu
