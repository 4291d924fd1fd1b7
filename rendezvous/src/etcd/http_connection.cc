#include "etcd/http_connection.h"

#include <fmt/core.h>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
namespace http = boost::beast::http;

}  // namespace

struct HttpConnection::Reply {
  http::response_parser<http::string_body> parser;
  std::size_t searched = 0;  ///< of a stream: bytes of the body in which there is no line's end

  std::string& body() { return parser.get().body(); }
};

HttpConnection::HttpConnection(const base::HostPort& server, const EtcdOptions& options,
                               const Interrupt& interrupt, Deadline deadline)
    : server_(server.to_string()), wire_(server, options, interrupt, deadline) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::send(const char* method, const std::string& target, const std::string& token,
                          const std::string& body, Deadline deadline) {
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", method, target, server_);
  // A member that has lost the others ends its watches instead of keeping silent.
  if (!body.empty())
    request += fmt::format(
        "Content-Type: application/json\r\nGrpc-Metadata-Hasleader: true\r\nContent-Length: "
        "{}\r\n",
        body.size());
  if (!token.empty()) request += fmt::format("Authorization: {}\r\n", token);
  request += "\r\n";
  wire_.send_all(request + body, deadline);
}

// Waits for bytes and parses them; Came::end when the reply is whole.
WireStream::Came HttpConnection::receive(Reply& reply, Deadline deadline, int wake_fd) {
  if (received_.empty()) {
    const WireStream::Came came = wire_.receive_some(received_, deadline, wake_fd);
    if (came == WireStream::Came::nothing) return came;
    if (came == WireStream::Came::end) {
      boost::system::error_code error;
      if (reply.parser.got_some()) reply.parser.put_eof(error);
      if (reply.parser.is_done() && !error) return came;
      throw Error(ErrorCode::kConnection, fmt::format("lost {}", server_),
                  "it closed the connection");
    }
  }
  boost::system::error_code error;
  std::size_t used = 0;
  do {
    const std::size_t step = reply.parser.put(boost::asio::buffer(received_) + used, error);
    used += step;
    if (step == 0 && !error) break;
  } while (!error && !reply.parser.is_done() && used < received_.size());
  received_.erase(0, used);
  constexpr std::size_t kLongestField = 1 << 20;
  if (error == http::error::need_more && received_.size() < kLongestField) {
    error = {};
    // Only bytes that are no whole field yet make it wait for more: others may have brought a line.
    if (used == 0) {
      const WireStream::Came came = wire_.receive_some(received_, deadline, wake_fd);
      if (came == WireStream::Came::end)
        throw Error(ErrorCode::kConnection, fmt::format("lost {}", server_),
                    "it closed the connection in the middle of a reply");
      return came;
    }
  }
  if (error)
    throw Error(ErrorCode::kProtocol, fmt::format("what {} sends is no reply of etcd's", server_),
                error == http::error::body_limit
                    ? fmt::format("it is longer than {} bytes", kMaxReplyBytes)
                    : fmt::format("no HTTP: {}", error.message()),
                "check the endpoint, and whether it speaks https (protocol=https)");
  return reply.parser.is_done() ? WireStream::Came::end : WireStream::Came::bytes;
}

HttpReply HttpConnection::whole_reply(Deadline deadline) {
  Reply reply;
  reply.parser.eager(true);
  reply.parser.body_limit(kMaxReplyBytes);
  while (receive(reply, deadline, -1) != WireStream::Came::end) continue;
  return {reply.parser.get().result_int(), std::move(reply.body())};
}

HttpReply HttpConnection::post(const std::string& target, const std::string& token,
                               const std::string& body, Deadline deadline) {
  send("POST", target, token, body, deadline);
  return whole_reply(deadline);
}

HttpReply HttpConnection::get(const std::string& target, Deadline deadline) {
  send("GET", target, "", "", deadline);
  return whole_reply(deadline);
}

std::optional<HttpReply> HttpConnection::open_stream(const std::string& target,
                                                     const std::string& token,
                                                     const std::string& body, Deadline deadline) {
  send("POST", target, token, body, deadline);
  stream_ = std::make_unique<Reply>();
  stream_->parser.eager(true);
  stream_->parser.body_limit(boost::none);  // of the whole; next_line() bounds a line
  WireStream::Came came = WireStream::Came::bytes;
  while (!stream_->parser.is_header_done() && came != WireStream::Came::end)
    came = receive(*stream_, deadline, -1);
  if (stream_->parser.get().result_int() == 200) return std::nullopt;
  while (!stream_->parser.is_done() && stream_->body().size() < kMaxReplyBytes)
    receive(*stream_, deadline, -1);
  return HttpReply{stream_->parser.get().result_int(), std::move(stream_->body())};
}

std::optional<std::string> HttpConnection::next_line(Deadline deadline, int wake_fd) {
  std::string& body = stream_->body();
  while (true) {
    const std::size_t end = body.find('\n', stream_->searched);
    if (end != std::string::npos) {
      std::string line = body.substr(0, end);
      body.erase(0, end + 1);
      stream_->searched = 0;
      return line;
    }
    stream_->searched = body.size();
    if (body.size() > kMaxReplyBytes)
      throw Error(ErrorCode::kProtocol, fmt::format("what {} sends is no reply of etcd's", server_),
                  fmt::format("a line is longer than {} bytes", kMaxReplyBytes));
    if (stream_->parser.is_done())
      throw Error(ErrorCode::kConnection, fmt::format("lost {}", server_), "it ended its reply");
    if (receive(*stream_, deadline, wake_fd) == WireStream::Came::nothing) return std::nullopt;
  }
}

}  // namespace dtrun::rendezvous
