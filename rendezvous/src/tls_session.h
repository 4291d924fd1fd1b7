// TlsSession: the client's side of one TLS connection as a transformation of bytes; whoever owns it
// moves them. OpenSSL is opened when the first session is made, so that programs that never speak
// https start without it. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "dtrun/rendezvous/etcd_options.h"

namespace dtrun::rendezvous {

class TlsSession {
 public:
  /// @param host whose certificate is expected: a name or an address
  /// @throws Error kUnavailable where there is no OpenSSL; kInvalidArgument for the options' files
  TlsSession(const EtcdOptions& options, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// A step of the handshake; true when it is done. @throws Error kProtocol
  bool handshake();
  /// Bytes that came from the peer.
  void feed(std::string_view bytes);
  /// Bytes to send to the peer.
  std::string take_output();
  /// @throws Error kProtocol
  void write(std::string_view plain);
  /// As many bytes as can be had now; 0: feed more, or the peer said goodbye.
  /// @throws Error kProtocol
  std::size_t read(char* data, std::size_t size);
  bool ended() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::rendezvous
