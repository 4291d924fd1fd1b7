// TCP channels: one connection, the only one of its direction, group and lane or one of several
// (striped_channel.h); non-blocking; the side that sends has connected. So a receiving side that
// closes with bytes unread resets nothing that it has sent itself. It is read where ReadySockets
// says that something has come, or that it may be tried.
#pragma once

#include <memory>
#include <span>

#include "channel.h"
#include "data_hello.h"
#include "dtrun/base/unique_fd.h"
#include "ready_sockets.h"

namespace dtrun::collectives::cpu {

class TcpSendChannel : public SendChannel {
 public:
  /// @param fd connecting or connected, non-blocking; @param hello goes out first
  /// @throws Error kSystem
  TcpSendChannel(base::UniqueFd fd, const DataHello& hello, ReadySockets& sockets)
      : fd_(std::move(fd)),
        readiness_(sockets.add(fd_.get(), ReadySockets::Direction::out)),
        hello_(hello) {}
  std::size_t write(Bytes first, Bytes second) override;
  /// Also where all is written: the peer may not have read it.
  bool broken() const override { return broken_ || readiness_.has_ended(); }

 private:
  base::UniqueFd fd_;
  const Readiness& readiness_;
  DataHello hello_;
  std::size_t hello_done_ = 0;
  bool broken_ = false;
};

class TcpReceiveChannel : public ReceiveChannel {
 public:
  /// @throws Error kSystem
  TcpReceiveChannel(base::UniqueFd fd, ReadySockets& sockets)
      : fd_(std::move(fd)), readiness_(sockets.add(fd_.get(), ReadySockets::Direction::in)) {}
  std::size_t read(std::span<std::byte> target) override;
  std::size_t most_at_once() const override { return kMostAhead; }
  bool has(std::size_t bytes) override;
  const std::byte* front(std::size_t bytes) override {
    return unread_.size() >= bytes ? unread_.data() : nullptr;
  }
  void read_behind(std::size_t shown, std::span<std::byte> target) override {
    unread_ = unread_.subspan(shown);
    take_ahead(target);
  }
  bool broken() const override { return broken_; }

 private:
  std::size_t take_ahead(std::span<std::byte> target);
  /// More becomes unread_, behind what is.
  void read_ahead();
  // As recv. What the target has no room for becomes unread_.
  ssize_t receive(std::span<std::byte> target);
  /// By way of unread_: for short targets.
  ssize_t receive_ahead(std::span<std::byte> target);

  /// A header comes together with the payload behind it, if that is short.
  static constexpr std::size_t kAheadBytes = 4096;
  /// The same where a short message is awaited whole.
  static constexpr std::size_t kMostAhead = (8 << 10) + 128;

  base::UniqueFd fd_;
  Readiness& readiness_;
  bool broken_ = false;
  std::unique_ptr<std::byte[]> ahead_{new std::byte[kMostAhead]};
  std::span<std::byte> unread_;  ///< of what was read ahead
};

}  // namespace dtrun::collectives::cpu
