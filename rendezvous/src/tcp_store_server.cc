// One thread, one event loop. Every socket is non-blocking: a client that writes half a request or
// reads no answers costs its own buffers (bounded) and holds up nobody.
#include "dtrun/rendezvous/tcp_store_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "store_session.h"
#include "token_gate.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::UniqueFd;
namespace log = base::log;
constexpr log::Component kStore = log::Component::kStore;

constexpr std::size_t kReadBytes = 64 << 10;
// Then the clients that are there already get their turn.
constexpr int kAcceptsPerTurn = 256;
constexpr std::size_t kPiecesPerSend = 64;
constexpr Deadline::Duration kAcceptPause = std::chrono::milliseconds(100);

struct Connection;
using Connections = std::list<std::unique_ptr<Connection>>;
using Newcomers = std::list<Connection*>;

struct Connection : StoreSession {
  Connection(UniqueFd socket, StoreCore& core, const Settings& settings,
             std::vector<StoreSession*>& released)
      : StoreSession(core, settings, released), fd(std::move(socket)) {}

  UniqueFd fd;
  std::unique_ptr<base::FdWatch> watch;  // before fd goes
  Connections::iterator place;
  bool closed = false;
  bool writing = false;  // waits for the socket to take more
  bool paused = false;   // is not read until its answers are sent
  bool newcomer = true;  // stands in newcomers_
  bool proved = false;   // has the token, where one is demanded
  Newcomers::iterator newcomer_place;
  Deadline handshake = Deadline::never();
  std::string legacy_peer;  // where set: is counted in legacy_peers_
  bool spared = false;      // in legacy_peers_[legacy_peer].silent
};

// The connections of one address that speak the legacy dialect, and those allowed to stay silent
// because of them: PyTorch up to 2.0 opens a second one for watch callbacks and never writes to it.
struct LegacyPeer {
  std::size_t speaking = 0;
  std::list<Connection*> silent;
};

StoreSession::Settings settings_of(const TcpStoreServerOptions& options) {
  StoreSession::Settings settings;
  settings.limits = {options.max_key_bytes, options.max_value_bytes, options.max_keys_per_request};
  settings.legacy = options.legacy_numbering == LegacyNumbering::kTorch21
                        ? StoreDialect::kTorch21
                        : StoreDialect::kTorch19To20;
  return settings;
}

UniqueFd spare_descriptor() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

struct TcpStoreServer::Impl {
  Impl(base::EventLoop& event_loop, UniqueFd socket, TcpStoreServerOptions given)
      : loop(event_loop),
        options(std::move(given)),
        settings(settings_of(options)),
        listener(std::move(socket)),
        spare(spare_descriptor()),
        read_buffer(kReadBytes),
        accept_watch(loop, listener.get()),
        accept_pause(loop),
        handshake_timer(loop) {
    DT_CHECK(!options.token || !options.on_agent);
    if (options.token)
      gate.emplace(loop, *options.token,
                   TokenGate::Options{options.handshake_timeout, options.max_newcomers},
                   [this](UniqueFd fd, std::string bytes) { adopt(std::move(fd), bytes); });
    base::set_nonblocking(listener.get());
    resume_accepting();
  }

  void resume_accepting() {
    accept_watch.on_readable([this] { accept_all(); });
  }

  void accept_all() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd) {
        turned_away = false;
        add(std::move(fd));
      } else if (errno == EAGAIN) {
        break;
      } else if (errno == EMFILE || errno == ENFILE) {
        if (!turn_one_away()) break;
      } else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
        pause_accepting();
        break;
      }
    }
    finish();
  }

  // Out of descriptors: the connection would stay in the backlog and the listener readable for
  // ever. With the spare one it is taken and closed; the client sees it and comes again. False:
  // there was none, which accept4 does not tell before it has a descriptor for it.
  bool turn_one_away() {
    spare.reset();
    UniqueFd refused(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const bool there_was_one = refused.valid();
    refused.reset();
    spare = spare_descriptor();
    if (!spare) pause_accepting();
    if (there_was_one && !std::exchange(turned_away, true))
      log::warning(kStore,
                   "no file descriptor left for another store client, {} are connected: raise the "
                   "limit (ulimit -n)",
                   connections.size());
    return there_was_one && spare;
  }

  void pause_accepting() {
    accept_watch.on_readable({});
    accept_pause.start(Deadline::after(kAcceptPause), [this] { resume_accepting(); });
  }

  // One that has proved that it has the token.
  void adopt(UniqueFd fd, std::string_view bytes) {
    Connection& connection = add(std::move(fd));
    connection.proved = true;
    if (!bytes.empty()) {
      connection.receive(bytes);
      after_input(connection);
    }
    finish();
  }

  Connection& add(UniqueFd fd) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (newcomers.size() >= options.max_newcomers)
      close(*newcomers.front(), "too many connections that say nothing");
    connections.push_back(std::make_unique<Connection>(std::move(fd), core, settings, released));
    Connection& connection = *connections.back();
    connection.place = std::prev(connections.end());
    connection.handshake = Deadline::after(options.handshake_timeout);
    connection.newcomer_place = newcomers.insert(newcomers.end(), &connection);
    if (newcomers.size() == 1) start_handshake_timer();
    connection.watch = std::make_unique<base::FdWatch>(loop, connection.fd.get());
    read_when_readable(connection);
    return connection;
  }

  void read_when_readable(Connection& connection) {
    connection.watch->on_readable([this, &connection] { read(connection); });
  }

  void read(Connection& connection) {
    const ssize_t n =
        ::recv(connection.fd.get(), read_buffer.data(), read_buffer.size(), MSG_DONTWAIT);
    if (n > 0 && !may_speak(connection)) {
      gate->note_refusal(base::peer_address(connection.fd.get()),
                         "it asks without having proved that it has the token");
      close(connection, "");
    } else if (n > 0) {
      connection.receive({read_buffer.data(), static_cast<std::size_t>(n)});
      after_input(connection);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      close(connection, n == 0 ? "" : strerrordesc_np(errno));
    }
    finish();
  }

  // Without a proof only the handshake may come.
  bool may_speak(const Connection& connection) const {
    return !gate || connection.proved || !connection.silent() ||
           static_cast<unsigned char>(read_buffer[0]) >= kFirstAgentByte;
  }

  void after_input(Connection& connection) {
    if (connection.state() == StoreSession::State::kAgent) return hand_over(connection);
    if (connection.established() && (connection.newcomer || connection.spared)) welcome(connection);
    progress(connection);
  }

  void welcome(Connection& connection) {
    leave_newcomers(connection);
    leave_legacy_peer(connection);
    if (!connection.is_legacy()) return;
    connection.legacy_peer = base::peer_address(connection.fd.get());
    ++legacy_peers[connection.legacy_peer].speaking;
  }

  void leave_newcomers(Connection& connection) {
    if (!connection.newcomer) return;
    connection.newcomer = false;
    newcomers.erase(connection.newcomer_place);
  }

  void hand_over(Connection& connection) {
    if ((!options.on_agent && !gate) || connection.proved)
      return close(connection, "an agent, and none is expected here");
    const int fd = connection.fd.get();
    connection.watch.reset();
    UniqueFd socket = std::move(connection.fd);
    std::string first_bytes = connection.first_bytes();
    close(connection, "");
    if (gate) return gate->take(std::move(socket), first_bytes);
    log::debug(kStore, "connection {} is an agent's", fd);
    options.on_agent(std::move(socket), std::move(first_bytes));
  }

  // Sends answers and, as far as they go out, serves what came in the meantime.
  void progress(Connection& connection) {
    while (true) {
      send(connection);
      if (connection.closed) return;
      if (connection.state() == StoreSession::State::kFailed)
        return close(connection, connection.failure());
      if (!connection.has_unserved() || !connection.output().empty()) break;
      connection.resume();
    }
    balance(connection);
  }

  void send(Connection& connection) {
    OutputQueue& output = connection.output();
    while (!output.empty()) {
      iovec pieces[kPiecesPerSend];
      msghdr message{};
      message.msg_iov = pieces;
      message.msg_iovlen = output.front(pieces, kPiecesPerSend);
      const ssize_t n = ::sendmsg(connection.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        output.pop(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != EINTR) {
        return close(connection, strerrordesc_np(errno));
      }
    }
  }

  // Which readiness matters now: of a client that does not read its answers, no requests are read.
  void balance(Connection& connection) {
    const bool writing = !connection.output().empty();
    if (writing && !connection.writing)
      connection.watch->on_writable([this, &connection] {
        progress(connection);
        finish();
      });
    if (!writing && connection.writing) connection.watch->on_writable({});
    connection.writing = writing;

    const bool paused = connection.stalled();
    if (paused && !connection.paused) connection.watch->on_readable({});
    if (!paused && connection.paused) read_when_readable(connection);
    connection.paused = paused;
  }

  // Not destroyed at once: callers further up still hold it; finish() does that.
  void close(Connection& connection, const std::string& why) {
    if (connection.closed) return;
    if (!why.empty())
      log::info(kStore, "closing the connection of {}: {}", base::peer_address(connection.fd.get()),
                why);
    connection.closed = true;
    leave_newcomers(connection);
    core.cancel(connection);
    connection.watch.reset();
    connection.fd.reset();
    closed.splice(closed.end(), connections, connection.place);
    leave_legacy_peer(connection);
  }

  void leave_legacy_peer(Connection& connection) {
    const auto found = legacy_peers.find(std::exchange(connection.legacy_peer, {}));
    if (found == legacy_peers.end()) return;
    LegacyPeer& peer = found->second;
    if (std::exchange(connection.spared, false)) {
      peer.silent.remove(&connection);
    } else {
      --peer.speaking;
    }
    if (peer.silent.size() > peer.speaking)
      return close(*peer.silent.front(), "the legacy client beside it is gone");
    if (peer.speaking == 0) legacy_peers.erase(found);
  }

  // Sends what was released by other clients' requests, and buries the dead. The end of every
  // callback.
  void finish() {
    for (std::size_t i = 0; i < released.size(); ++i) {
      Connection& connection = static_cast<Connection&>(*released[i]);
      if (!connection.closed) progress(connection);
    }
    released.clear();
    closed.clear();
  }

  void start_handshake_timer() {
    handshake_timer.start(newcomers.front()->handshake, [this] { end_handshakes(); });
  }

  void end_handshakes() {
    while (!newcomers.empty() && newcomers.front()->handshake.expired()) {
      Connection& connection = *newcomers.front();
      if (!spare_silent(connection)) close(connection, "it did not open the conversation in time");
    }
    if (!newcomers.empty()) start_handshake_timer();
    finish();
  }

  bool spare_silent(Connection& connection) {
    if (!connection.silent()) return false;
    const std::string address = base::peer_address(connection.fd.get());
    const auto found = legacy_peers.find(address);
    if (found == legacy_peers.end() || found->second.silent.size() >= found->second.speaking)
      return false;
    leave_newcomers(connection);
    connection.legacy_peer = address;
    connection.spared = true;
    found->second.silent.push_back(&connection);
    return true;
  }

  base::EventLoop& loop;
  const TcpStoreServerOptions options;
  const StoreSession::Settings settings;
  UniqueFd listener;
  UniqueFd spare;
  bool turned_away = false;  // and said so; until one is accepted again
  std::vector<char> read_buffer;
  StoreCore core;
  std::vector<StoreSession*> released;
  std::map<std::string, LegacyPeer> legacy_peers;
  Newcomers newcomers;  // oldest first
  Connections closed;
  Connections connections;
  base::FdWatch accept_watch;
  base::Timer accept_pause;
  base::Timer handshake_timer;
  std::optional<TokenGate> gate;
};

TcpStoreServer::TcpStoreServer(base::EventLoop& loop, UniqueFd listener,
                               TcpStoreServerOptions options)
    : impl_(std::make_unique<Impl>(loop, std::move(listener), std::move(options))) {}

TcpStoreServer::~TcpStoreServer() = default;

std::uint16_t TcpStoreServer::port() const {
  return base::local_port(impl_->listener.get());
}

}  // namespace dtrun::rendezvous
