// HttpConnection: requests of HTTP/1.1 to one server over one kept connection, and replies: whole,
// or line by line as they come. After any Error it must be thrown away. Boost.Beast stays inside
// http_connection.cc. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "etcd/wire_stream.h"

namespace dtrun::rendezvous {

struct HttpReply {
  unsigned status = 0;
  std::string body;
};

class HttpConnection {
 public:
  /// No reply and no line of one is longer: what comes is memory before anybody has looked at it.
  static constexpr std::size_t kMaxReplyBytes = 24 << 20;

  /// @throws Error as WireStream
  HttpConnection(const base::HostPort& server, const EtcdOptions& options,
                 const Interrupt& interrupt, base::Deadline deadline);
  ~HttpConnection();

  /// @param token of the header Authorization; empty: none
  /// @throws Error kConnection, kTimeout; kProtocol when it is no HTTP that comes back; kAborted
  HttpReply post(const std::string& target, const std::string& token, const std::string& body,
                 base::Deadline deadline);
  HttpReply get(const std::string& target, base::Deadline deadline);

  /// A request whose reply is read by next_line(). A reply that is no 200 is returned, whole.
  std::optional<HttpReply> open_stream(const std::string& target, const std::string& token,
                                       const std::string& body, base::Deadline deadline);
  /// The next line without its end; nullopt when `wake_fd` was readable first.
  /// @throws Error kTimeout; kConnection at the reply's end
  std::optional<std::string> next_line(base::Deadline deadline, int wake_fd);

 private:
  struct Reply;
  void send(const char* method, const std::string& target, const std::string& token,
            const std::string& body, base::Deadline deadline);
  HttpReply whole_reply(base::Deadline deadline);
  WireStream::Came receive(Reply& reply, base::Deadline deadline, int wake_fd);

  std::string server_;
  WireStream wire_;
  std::string received_;  ///< and not yet looked at
  std::unique_ptr<Reply> stream_;
};

}  // namespace dtrun::rendezvous
