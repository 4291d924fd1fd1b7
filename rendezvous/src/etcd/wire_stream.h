// WireStream: bytes to and from one server, over TCP or TLS, each step with a deadline and open to
// interruption. One thread at a time. Its socket is not Asio's: a blocking Asio stream can neither
// be interrupted by another thread nor end at a deadline, an asynchronous one needs a loop and its
// headers (1.3 s of compile time a unit) for what is one poll() on three descriptors here. TLS is
// Asio's ssl stream (tls_session.h), HTTP is Beast's parser.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/etcd_options.h"
#include "etcd/tls_session.h"
#include "wire/interrupt.h"

namespace dtrun::rendezvous {

class WireStream {
 public:
  /// One attempt at each address of the server, and TLS's handshake where the options say https.
  /// @throws Error kConnection, kTimeout, kProtocol (TLS), kAborted (interrupted)
  WireStream(const base::HostPort& server, const EtcdOptions& options, const Interrupt& interrupt,
             base::Deadline deadline);

  void send_all(std::string_view bytes, base::Deadline deadline);
  enum class Came { bytes, end, nothing };
  /// Appends what has come, at least one byte.
  /// @param wake_fd ends the wait, with Came::nothing, when it is readable; -1: none
  /// @return Came::end when the server has closed. @throws Error kTimeout; kConnection where TLS
  /// was cut short
  Came receive_some(std::string& into, base::Deadline deadline, int wake_fd = -1);

 private:
  void shake_hands(base::Deadline deadline);
  void send_raw(std::string_view bytes, base::Deadline deadline);
  Came receive_raw(std::string& into, base::Deadline deadline, int wake_fd);

  std::string server_;
  const Interrupt& interrupt_;
  base::UniqueFd fd_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace dtrun::rendezvous
