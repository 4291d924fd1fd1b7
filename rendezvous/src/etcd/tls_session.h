// TlsSession: the client's side of one TLS connection as a transformation of bytes; whoever owns it
// moves them. Asio's ssl stream over memory, in the module libdtrun-tls.so, which is opened with
// the first session: programs that never speak https start without OpenSSL. Not thread-safe.
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
  /// @throws Error kUnavailable without the module or OpenSSL; kInvalidArgument for the options'
  /// files; kUsage for a host that no certificate can name
  static std::unique_ptr<TlsSession> open(const EtcdOptions& options, const std::string& host);
  virtual ~TlsSession() = default;

  /// A step of the handshake; true when it is done. @throws Error kProtocol
  virtual bool handshake() = 0;
  /// Bytes that came from the peer.
  virtual void feed(std::string_view bytes) = 0;
  /// Bytes to send to the peer.
  virtual std::string take_output() = 0;
  /// @throws Error kProtocol
  virtual void write(std::string_view plain) = 0;
  /// As many bytes as can be had now; 0: feed more, or the peer said goodbye.
  /// @throws Error kProtocol
  virtual std::size_t read(char* data, std::size_t size) = 0;
  virtual bool ended() const = 0;
};

/// The function of the module. The caller owns the result.
using OpenTlsSession = TlsSession* (*)(const EtcdOptions& options, const std::string& host);
inline constexpr const char* kOpenTlsSession = "dtrun_open_tls_session";

}  // namespace dtrun::rendezvous
