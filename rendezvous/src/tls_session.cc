#include "tls_session.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/opensslv.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
// A member's type, so it has a name outside this file.
struct SslContextDelete {
  void operator()(SSL_CTX* context) const;
};
using SslContext = std::unique_ptr<SSL_CTX, SslContextDelete>;

namespace {

using base::Error;
using base::ErrorCode;

// What is called of libssl and of libcrypto, which comes with it.
struct OpenSsl {
#define DT_OPENSSL_FUNCTIONS(X)                                                              \
  X(TLS_client_method)                                                                       \
  X(SSL_CTX_new)                                                                             \
  X(SSL_CTX_free)                                                                            \
  X(SSL_CTX_ctrl)                                                                            \
  X(SSL_CTX_set_verify)                                                                      \
  X(SSL_CTX_load_verify_locations)                                                           \
  X(SSL_CTX_set_default_verify_paths) X(SSL_CTX_use_certificate_chain_file)                  \
      X(SSL_CTX_use_PrivateKey_file) X(SSL_new) X(SSL_free) X(SSL_set_bio)                   \
          X(SSL_set_connect_state) X(SSL_ctrl) X(SSL_set1_host) X(SSL_get0_param)            \
              X(X509_VERIFY_PARAM_set1_ip_asc) X(SSL_do_handshake) X(SSL_read) X(SSL_write)  \
                  X(SSL_get_error) X(SSL_get_verify_result) X(X509_verify_cert_error_string) \
                      X(ERR_get_error) X(ERR_error_string_n) X(ERR_clear_error) X(BIO_new)   \
                          X(BIO_s_mem) X(BIO_read) X(BIO_write) X(BIO_ctrl_pending)
#define DT_DECLARE(name) decltype(&::name) name = nullptr;
  DT_OPENSSL_FUNCTIONS(DT_DECLARE)
#undef DT_DECLARE
  std::string missing;  ///< why it cannot be used; empty: it can
};

constexpr const char* kLibrary = OPENSSL_VERSION_MAJOR >= 3 ? "libssl.so.3" : "libssl.so.1.1";

OpenSsl open_openssl() {
  OpenSsl table;
  const base::DynamicLibrary library({kLibrary});
  if (!library.opened()) {
    table.missing = library.reason();
    return table;
  }
#define DT_FIND(name)                   \
  if (!library.find(#name, table.name)) \
    table.missing = fmt::format("{} has no {}", kLibrary, #name);
  DT_OPENSSL_FUNCTIONS(DT_FIND)
#undef DT_FIND
  return table;
}

const OpenSsl& openssl() {
  static const OpenSsl table = open_openssl();
  if (!table.missing.empty())
    throw Error(ErrorCode::kUnavailable, "https needs OpenSSL, which cannot be opened",
                table.missing, "install libssl, or use etcd over http");
  return table;
}

std::string last_reason() {
  const unsigned long code = openssl().ERR_get_error();
  if (code == 0) return "no reason is given";
  char text[256] = "";
  openssl().ERR_error_string_n(code, text, sizeof text);
  return text;
}

Error bad_file(const char* what, const std::string& path, const char* remedy) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("cannot use {} '{}'", what, path),
               last_reason(), remedy);
}

bool is_address(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

SslContext make_context(const EtcdOptions& options) {
  const OpenSsl& ssl = openssl();
  SslContext context(ssl.SSL_CTX_new(ssl.TLS_client_method()));
  if (!context) throw Error(ErrorCode::kUnavailable, "OpenSSL makes no TLS context", last_reason());
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  ssl.SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  ssl.ERR_clear_error();
  if (options.ca_cert.empty()) {
    ssl.SSL_CTX_set_default_verify_paths(context.get());
  } else if (ssl.SSL_CTX_load_verify_locations(context.get(), options.ca_cert.c_str(), nullptr) !=
             1) {
    throw bad_file("ca_cert", options.ca_cert, "name a PEM file with the CA's certificate");
  }
  if (options.ssl_cert.empty()) return context;
  if (ssl.SSL_CTX_use_certificate_chain_file(context.get(), options.ssl_cert.c_str()) != 1)
    throw bad_file("ssl_cert", options.ssl_cert, "name a PEM file with the client's certificate");
  const std::string& key = options.ssl_cert_key.empty() ? options.ssl_cert : options.ssl_cert_key;
  if (ssl.SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1)
    throw bad_file("ssl_cert_key", key, "name a PEM file with the key that belongs to ssl_cert");
  return context;
}

}  // namespace

void SslContextDelete::operator()(SSL_CTX* context) const { openssl().SSL_CTX_free(context); }

struct TlsSession::Impl {
  SslContext context;
  SSL* session = nullptr;
  BIO* from_peer = nullptr;  // both belong to the session
  BIO* to_peer = nullptr;
  std::string host;
  bool ended = false;

  ~Impl() {
    if (session != nullptr) openssl().SSL_free(session);
  }

  // What a call's result means; throws unless it only waits for bytes.
  void look_at(int result) {
    const OpenSsl& ssl = openssl();
    const int error = ssl.SSL_get_error(session, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
    if (error == SSL_ERROR_ZERO_RETURN) {
      ended = true;
      return;
    }
    const long verdict = ssl.SSL_get_verify_result(session);
    const std::string why = last_reason();
    if (verdict != X509_V_OK)
      throw Error(ErrorCode::kProtocol, fmt::format("{}'s certificate is not accepted", host),
                  ssl.X509_verify_cert_error_string(verdict),
                  "name the CA that signed it with ca_cert, and the endpoint as the certificate "
                  "does");
    throw Error(ErrorCode::kProtocol, fmt::format("TLS with {} fails", host), why,
                "check that it speaks https (protocol=http where not), and whether it wants a "
                "certificate (ssl_cert, ssl_cert_key)");
  }
};

TlsSession::TlsSession(const EtcdOptions& options, const std::string& host)
    : impl_(std::make_unique<Impl>()) {
  const OpenSsl& ssl = openssl();
  impl_->host = host;
  impl_->context = make_context(options);
  impl_->session = ssl.SSL_new(impl_->context.get());
  impl_->from_peer = ssl.BIO_new(ssl.BIO_s_mem());
  impl_->to_peer = ssl.BIO_new(ssl.BIO_s_mem());
  ssl.SSL_set_bio(impl_->session, impl_->from_peer, impl_->to_peer);
  ssl.SSL_set_connect_state(impl_->session);
  // Without it the certificate of anybody whom the CA knows would do.
  const bool is_demanded =
      is_address(host)
          ? ssl.X509_VERIFY_PARAM_set1_ip_asc(ssl.SSL_get0_param(impl_->session), host.c_str()) == 1
          : ssl.SSL_set1_host(impl_->session, host.c_str()) == 1 &&
                ssl.SSL_ctrl(impl_->session, SSL_CTRL_SET_TLSEXT_HOSTNAME,
                             TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str())) == 1;
  if (!is_demanded)
    throw Error(ErrorCode::kUsage,
                fmt::format("the certificate of '{:.64}' cannot be asked for by that name", host),
                last_reason(), "name the host as its certificate does, by 255 letters at the most");
}

TlsSession::~TlsSession() = default;

bool TlsSession::handshake() {
  openssl().ERR_clear_error();
  const int result = openssl().SSL_do_handshake(impl_->session);
  if (result == 1) return true;
  impl_->look_at(result);
  return false;
}

void TlsSession::feed(std::string_view bytes) {
  // A memory BIO takes all.
  openssl().BIO_write(impl_->from_peer, bytes.data(), static_cast<int>(bytes.size()));
}

std::string TlsSession::take_output() {
  std::string bytes(openssl().BIO_ctrl_pending(impl_->to_peer), '\0');
  if (!bytes.empty())
    openssl().BIO_read(impl_->to_peer, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

void TlsSession::write(std::string_view plain) {
  openssl().ERR_clear_error();
  while (!plain.empty()) {
    constexpr std::size_t kStep = 1 << 20;
    const auto step = static_cast<int>(std::min(plain.size(), kStep));
    const int taken = openssl().SSL_write(impl_->session, plain.data(), step);
    if (taken <= 0) return impl_->look_at(taken);
    plain.remove_prefix(static_cast<std::size_t>(taken));
  }
}

std::size_t TlsSession::read(char* data, std::size_t size) {
  openssl().ERR_clear_error();
  const int got = openssl().SSL_read(impl_->session, data, static_cast<int>(size));
  if (got > 0) return static_cast<std::size_t>(got);
  impl_->look_at(got);
  return 0;
}

bool TlsSession::ended() const {
  return impl_->ended;
}

}  // namespace dtrun::rendezvous
