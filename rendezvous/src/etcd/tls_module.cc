// The module libdtrun-tls.so: TlsSession by Asio's ssl stream over memory.
#include <arpa/inet.h>
#include <fmt/core.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "dtrun/base/error.h"
#include "etcd/tls_session.h"

namespace dtrun::rendezvous {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using base::Error;
using base::ErrorCode;
using boost::system::error_code;

/// The stream below the TLS: what came and was not read yet, and what is to be sent.
class Memory {
 public:
  using lowest_layer_type = Memory;
  using executor_type = asio::io_context::executor_type;

  explicit Memory(asio::io_context& context) : executor_(context.get_executor()) {}
  lowest_layer_type& lowest_layer() { return *this; }
  const lowest_layer_type& lowest_layer() const { return *this; }
  executor_type get_executor() const { return executor_; }

  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers, error_code& error) {
    error = came.empty() ? asio::error::would_block : error_code();
    const std::size_t size = asio::buffer_copy(buffers, asio::buffer(came));
    came.erase(0, size);
    return size;
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers, error_code& error) {
    error = {};
    const std::size_t had = to_send.size();
    to_send.resize(had + asio::buffer_size(buffers));
    return asio::buffer_copy(asio::buffer(to_send) + had, buffers);
  }

  std::string came;
  std::string to_send;

 private:
  const executor_type executor_;
};

void check_file(const error_code& error, const char* what, const std::string& path,
                const char* remedy) {
  if (!error) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot use {} '{}'", what, path),
              error.message(), remedy);
}

ssl::context make_context(const EtcdOptions& options) {
  ssl::context context(ssl::context::tls_client);
  context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                      ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  context.set_verify_mode(ssl::verify_peer);
  error_code error;
  if (options.ca_cert.empty()) {
    context.set_default_verify_paths(error);
  } else {
    context.load_verify_file(options.ca_cert, error);
    check_file(error, "ca_cert", options.ca_cert, "name a PEM file with the CA's certificate");
  }
  if (options.ssl_cert.empty()) return context;
  context.use_certificate_chain_file(options.ssl_cert, error);
  check_file(error, "ssl_cert", options.ssl_cert, "name a PEM file with the client's certificate");
  const std::string& key = options.ssl_cert_key.empty() ? options.ssl_cert : options.ssl_cert_key;
  context.use_private_key_file(key, ssl::context::pem, error);
  check_file(error, "ssl_cert_key", key, "name a PEM file with the key that belongs to ssl_cert");
  return context;
}

bool is_address(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

class AsioTlsSession : public TlsSession {
 public:
  AsioTlsSession(const EtcdOptions& options, std::string host)
      : host_(std::move(host)), context_(make_context(options)), stream_(Memory(io_), context_) {
    // Without the host's name, any certificate of the CA would be accepted.
    stream_.set_verify_callback([this, checks_host = ssl::host_name_verification(host_)](
                                    bool preverified, ssl::verify_context& context) {
      const bool is_accepted = checks_host(preverified, context);
      const int reason = X509_STORE_CTX_get_error(context.native_handle());
      if (!is_accepted)
        refused_ = preverified ? "hostname mismatch" : X509_verify_cert_error_string(reason);
      return is_accepted;
    });
    // The server may have a certificate for each of its names; an address is none.
    const bool is_told = is_address(host_) ||
                         (host_.size() <= kLongestName &&
                          SSL_set_tlsext_host_name(stream_.native_handle(), host_.c_str()) == 1);
    if (!is_told)
      throw Error(
          ErrorCode::kUsage,
          fmt::format("the certificate of '{:.64}' cannot be asked for by that name", host_), "",
          "name the host as its certificate does, by 255 letters at the most");
  }

  bool handshake() override {
    error_code error;
    stream_.handshake(ssl::stream_base::client, error);
    return !waits(error);
  }
  void feed(std::string_view bytes) override { stream_.next_layer().came += bytes; }
  std::string take_output() override { return std::exchange(stream_.next_layer().to_send, {}); }
  void write(std::string_view plain) override {
    while (!plain.empty()) {
      error_code error;
      plain.remove_prefix(stream_.write_some(asio::buffer(plain), error));
      // Part of a request would never be sent.
      if (waits(error))
        throw Error(ErrorCode::kProtocol, fmt::format("TLS with {} fails", host_),
                    "it begins the handshake anew within a connection");
    }
  }
  std::size_t read(char* data, std::size_t size) override {
    error_code error;
    const std::size_t got = stream_.read_some(asio::buffer(data, size), error);
    ended_ = ended_ || error == asio::error::eof;
    if (!ended_) waits(error);
    return got;
  }
  bool ended() const override { return ended_; }

 private:
  static constexpr std::size_t kLongestName = 255;

  /// Whether it only waits for bytes. @throws Error kProtocol where it has failed
  bool waits(const error_code& error) const {
    if (!error) return false;
    if (error == asio::error::would_block) return true;
    if (!refused_.empty())
      throw Error(ErrorCode::kProtocol, fmt::format("{}'s certificate is not accepted", host_),
                  refused_,
                  "name the CA that signed it with ca_cert, and the endpoint as the certificate "
                  "does");
    throw Error(ErrorCode::kProtocol, fmt::format("TLS with {} fails", host_), error.message(),
                "check that it speaks https (protocol=http where not), and whether it wants a "
                "certificate (ssl_cert, ssl_cert_key)");
  }

  const std::string host_;
  asio::io_context io_;  ///< Asio demands one; nothing runs in it
  ssl::context context_;
  ssl::stream<Memory> stream_;
  std::string refused_;  ///< why the certificate is not accepted
  bool ended_ = false;
};

}  // namespace

extern "C" TlsSession* dtrun_open_tls_session(const EtcdOptions& options, const std::string& host) {
  return new AsioTlsSession(options, host);
}

}  // namespace dtrun::rendezvous
