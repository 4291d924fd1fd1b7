// One thread (but for the answers to hundreds that are released at once: send_pool.h), one event
// loop, one descriptor that it watches: the EpollSet's. Every socket is
// non-blocking: a client that writes half a request or reads no answers costs its own buffers
// (bounded) and holds up nobody. Answers go out at once, those to all requests of one read in one
// system call. Nobody's name is ever resolved.
#include "dtrun/rendezvous/tcp_store_server.h"

#include <fmt/core.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dtrun/base/check.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "proof/token_gate.h"
#include "store/legacy_peers.h"
#include "store/send_pool.h"
#include "store/served_client.h"
#include "store/store_listener.h"
#include "wire/epoll_set.h"
#include "wire/linger.h"
#include "wire/rate_limited_log.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::UniqueFd;
using std::chrono::steady_clock;
constexpr base::log::Component kStore = base::log::Component::kStore;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kEventsPerTurn = 256;
// Then the clients that are there already get their turn; likewise after so many megabytes of
// answers to one of them.
constexpr int kAcceptsPerTurn = 256;
constexpr int kResumesPerTurn = 4;
constexpr std::size_t kPiecesPerSend = 64;
constexpr std::size_t kSentPerTurn = 4 << 20;
// From so many on, those whom one request releases are answered by several threads.
constexpr std::size_t kManyReleased = 512;
constexpr int kSendFlags = MSG_NOSIGNAL | MSG_DONTWAIT;

StoreService::Settings settings_of(const TcpStoreServerOptions& options) {
  StoreService::Settings settings;
  settings.limits = {options.max_key_bytes, options.max_value_bytes, options.max_keys_per_request};
  settings.most_bytes = options.max_store_bytes;
  switch (options.legacy_numbering) {
    case LegacyNumbering::kNone:
      settings.legacy.reset();
      break;
    case LegacyNumbering::kTorch19To20:
      settings.legacy = StoreDialect::kTorch19To20;
      break;
    case LegacyNumbering::kTorch21:
      settings.legacy = StoreDialect::kTorch21;
  }
  return settings;
}

// Three quarters: this process needs some for other things.
std::size_t by_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return std::max<std::size_t>(limit.rlim_cur / 4 * 3, 1);
}

}  // namespace

struct TcpStoreServer::Impl {
  Impl(base::EventLoop& loop, UniqueFd socket, TcpStoreServerOptions given)
      : options(std::move(given)),
        service(settings_of(options)),
        listener(loop, sockets, std::move(socket)),
        read_buffer(kReadBytes),
        watch(loop, sockets.fd()),
        handshake_timer(loop),
        strangers(kStore) {
    if (options.token)
      gate.emplace(loop, *options.token, options.handshake_timeout,
                   [this](UniqueFd fd, std::string bytes) { adopt(std::move(fd), bytes); });
    watch.on_readable([this] { take_turn(); });
  }

  void take_turn() {
    std::array<epoll_event, kEventsPerTurn> events;
    linger.wake(steady_clock::now());
    std::span<epoll_event> ready = sockets.ready(events);
    while (!ready.empty()) {
      serve_all(ready);
      ready = await_next(events);
    }
    linger.rest(steady_clock::now());
  }

  // Does not spin if sleeping is better. The core is yielded to other threads meanwhile.
  std::span<epoll_event> await_next(std::span<epoll_event> events) {
    const auto answered = steady_clock::now();
    for (auto now = answered; linger.goes_on(answered, now); now = steady_clock::now()) {
      if (const auto ready = sockets.ready(events); !ready.empty()) {
        linger.paid();
        return ready;
      }
      ::sched_yield();
    }
    return {};
  }

  void serve_all(std::span<epoll_event> events) {
    in_turn = true;
    for (const epoll_event& event : events) {
      if (event.data.ptr == &listener) {
        accept_all();
      } else {
        serve(*static_cast<ServedClient*>(event.data.ptr), event.events);
      }
      answer_released();
    }
    in_turn = false;
    bury();
    if (options.on_shrunk) see_whether_it_shrank();
  }

  void see_whether_it_shrank() {
    const StoreMemory& memory = service.core.memory();
    most_held = std::max(most_held, memory.used());
    if (most_held - memory.used() <= memory.most() / 16) return;
    most_held = memory.used();
    options.on_shrunk();
  }

  void accept_all() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      StoreListener::Next next = listener.next();
      switch (next.outcome) {
        case StoreListener::Outcome::kTaken:
          turned_away = false;
          read(admit(std::move(next.connection)));
          break;
        case StoreListener::Outcome::kNoDescriptor:
          if (!make_room("no file descriptor is left") && !turn_one_away()) return;
          break;
        case StoreListener::Outcome::kNoneThere:
          return;
      }
    }
  }

  bool turn_one_away() {
    const bool there_was_one = listener.turn_one_away();
    if (there_was_one && !std::exchange(turned_away, true))
      base::log::warning(kStore,
                         "no file descriptor left for another store client, {} are connected: "
                         "raise the limit (ulimit -n)",
                         clients.size());
    return there_was_one;
  }

  ServedClient& admit(UniqueFd fd) {
    if (is_full_of_strangers()) make_room("too many others say nothing, too");
    ServedClient& client = clients.emplace_back(service, std::move(fd));
    client.place = std::prev(clients.end());
    client.since = Deadline::Clock::now();
    client.newcomer_place = newcomers.insert(newcomers.end(), &client);
    if (newcomers.size() == 1) start_handshake_timer();
    if (sockets.add(client.fd.get(), EPOLLIN, &client)) {
      client.watched = EPOLLIN;
    } else {
      refuse(client, ::strerrordesc_np(errno));
    }
    return client;
  }

  // One that has proved that it has the token.
  void adopt(UniqueFd fd, std::string_view bytes) {
    ServedClient& client = admit(std::move(fd));
    client.proved = true;
    if (!client.closed && !bytes.empty()) {
      client.receive(bytes);
      after_input(client);
    }
    bury();
  }

  bool is_full_of_strangers() {
    const std::size_t strangers_here = newcomers.size() + (gate ? gate->size() : 0);
    if (strangers_here < most_strangers) return false;
    most_strangers = options.max_newcomers > 0 ? options.max_newcomers : by_descriptors();
    return strangers_here >= most_strangers;
  }

  // Among clients that have not shown who they are, the one that has been here longest must go. Its
  // bytes are read first, because they may not have been looked at yet.
  bool make_room(const std::string& why) {
    const auto longest = newcomers.empty() ? Deadline::Clock::now() : newcomers.front()->since;
    if (gate && gate->part_with_one_since(longest)) return true;
    if (options.part_with_agent_since && options.part_with_agent_since(longest)) return true;
    if (newcomers.empty()) return false;
    ServedClient& oldest = *newcomers.front();
    read(oldest);
    if (oldest.newcomer) refuse(oldest, why + ", and it says nothing");
    return true;
  }

  void serve(ServedClient& client, std::uint32_t events) {
    if (client.closed) return;
    if (events & EPOLLIN) {
      read(client);
    } else if (events & (EPOLLERR | EPOLLHUP)) {
      return close(client, "it is gone");
    }
    if (!client.closed && (events & EPOLLOUT)) progress(client);
  }

  void read(ServedClient& client) {
    if (client.closed) return;
    const ssize_t n = ::recv(client.fd.get(), read_buffer.data(), read_buffer.size(), MSG_DONTWAIT);
    if (n > 0 && !may_speak(client)) {
      refuse(client, "it asks without having proved that it has the token" + options.token_advice);
    } else if (n > 0) {
      client.receive({read_buffer.data(), static_cast<std::size_t>(n)});
      after_input(client);
    } else if (n == 0) {
      client.ended = true;
      progress(client);
    } else if (errno != EAGAIN && errno != EINTR) {
      close(client, ::strerrordesc_np(errno));
    }
  }

  // Without a proof only the handshake may come.
  bool may_speak(const ServedClient& client) const {
    return !gate || client.proved || !client.silent() ||
           static_cast<unsigned char>(read_buffer[0]) >= kFirstAgentByte;
  }

  void after_input(ServedClient& client) {
    if (client.state() == StoreSession::State::kAgent) return lead_to_door(client);
    if (client.established() && (client.newcomer || client.spared)) welcome(client);
    progress(client);
  }

  void welcome(ServedClient& client) {
    if (client.newcomer && options.on_client) options.on_client();
    leave_newcomers(client);
    leave_legacy_peer(client);
    if (client.is_legacy()) legacy_peers.add_speaking(client);
  }

  void leave_newcomers(ServedClient& client) {
    if (std::exchange(client.newcomer, false)) newcomers.erase(client.newcomer_place);
  }

  void leave_legacy_peer(ServedClient& client) {
    if (ServedClient* alone = legacy_peers.leave(client))
      close(*alone, "the legacy client beside it is gone");
  }

  // A handshake begins alike at both doors, and says its purpose soon.
  void lead_to_door(ServedClient& client) {
    if ((!options.on_agent && !gate) || client.proved)
      return refuse(client, "it is an agent, and none is expected here");
    if (!options.on_agent) return hand_over(client, Door::kGate);
    if (!gate) return hand_over(client, Door::kAgents);
    const std::optional<std::string_view> purpose = purpose_in(client.first_bytes());
    if (!purpose) return progress(client);
    hand_over(client, *purpose == kStorePurpose ? Door::kGate : Door::kAgents);
  }

  enum class Door { kAgents, kGate };
  void hand_over(ServedClient& client, Door door) {
    unwatch(client);
    UniqueFd socket = std::move(client.fd);
    std::string first_bytes = client.first_bytes();
    const auto since = client.since;
    if (door == Door::kGate) {
      close(client, "it is at the gate");
      return gate->take(std::move(socket), first_bytes, since);
    }
    close(client, "it is an agent's");
    options.on_agent(std::move(socket), std::move(first_bytes));
  }

  // Sends answers and, as far as they go out, serves what came in the meantime.
  void progress(ServedClient& client) {
    for (int resumed = 0;; ++resumed) {
      send(client);
      if (client.closed) return;
      client.limit_memory();
      if (client.state() == StoreSession::State::kFailed) return refuse(client, client.failure());
      if (!client.has_unserved() || !client.output().empty() || resumed == kResumesPerTurn) break;
      client.resume();
    }
    // One that sends no more gets what it has asked for, whole; whether one that waits still lives
    // nobody could tell.
    if (client.ended && client.output().empty() && !client.has_unserved())
      return close(client, "it ended the connection");
    watch_for_what_matters(client);
  }

  // So much of it that the others do not wait long for their turn.
  void send(ServedClient& client) {
    OutputQueue& output = client.output();
    std::size_t left = kSentPerTurn;
    while (!output.empty() && left > 0) {
      iovec pieces[kPiecesPerSend];
      msghdr message{};
      message.msg_iov = pieces;
      message.msg_iovlen = output.front(pieces, kPiecesPerSend);
      // Nearly always there is one piece, and then this is the quicker call.
      const ssize_t n = message.msg_iovlen == 1
                            ? ::send(client.fd.get(), pieces[0].iov_base,
                                     std::min(pieces[0].iov_len, left), kSendFlags)
                            : ::sendmsg(client.fd.get(), &message, kSendFlags);
      if (n >= 0) {
        output.pop(static_cast<std::size_t>(n));
        left -= std::min(left, static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != EINTR) {
        return close(client, ::strerrordesc_np(errno));
      }
    }
  }

  // As long as a client does not read its answers, its requests are not read.
  void watch_for_what_matters(ServedClient& client) {
    const bool has_more = !client.output().empty() || client.has_unserved();
    const std::uint32_t wanted = (client.stalled() || client.ended ? 0u : EPOLLIN) |
                                 (has_more ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
    if (wanted != client.watched) sockets.change(client.fd.get(), wanted, &client);
    client.watched = wanted;
  }

  void unwatch(ServedClient& client) {
    if (std::exchange(client.watched, 0) != 0) sockets.remove(client.fd.get());
  }

  // The faults of strangers and broken clients are logged at a limited rate.
  void refuse(ServedClient& client, const std::string& why) {
    strangers.warning(
        fmt::format("closing the connection of {}: {}", base::peer_address(client.fd.get()), why));
    close(client, "");
  }

  // Not destroyed at once: callers further up still hold it; bury() does that.
  void close(ServedClient& client, const char* why) {
    if (client.closed) return;
    base::log::debug(kStore, "connection {} is over: {}", client.fd.get(), why);
    client.closed = true;
    leave_newcomers(client);
    service.core.cancel(client);
    unwatch(client);
    client.fd.reset();
    closed.splice(closed.end(), clients, client.place);
    leave_legacy_peer(client);
  }

  // Answers the clients that other clients' requests have released.
  void answer_released() {
    if (service.released.size() >= kManyReleased) send_to_released();
    for (std::size_t i = 0; i < service.released.size(); ++i) {
      ServedClient& client = static_cast<ServedClient&>(*service.released[i]);
      if (!client.closed) progress(client);
    }
    service.released.clear();
  }

  // The end of all that is called from outside.
  void bury() {
    answer_released();
    if (!in_turn) closed.clear();
  }

  // The first piece of each one's answers, by several threads. What becomes of those that take no
  // more is progress()'s affair, which tries once more.
  void send_to_released() {
    std::vector<PendingSend> sends;
    std::vector<ServedClient*> receivers;
    for (StoreSession* session : service.released) {
      ServedClient& client = static_cast<ServedClient&>(*session);
      iovec piece{};
      // A client that was released twice is in the list twice.
      if (client.closed || client.output().empty() || std::exchange(client.in_batch, true))
        continue;
      receivers.push_back(&client);
      client.output().front(&piece, 1);
      sends.push_back({client.fd.get(), {static_cast<char*>(piece.iov_base), piece.iov_len}});
    }
    send_pool.send_all(sends);
    for (std::size_t i = 0; i < sends.size(); ++i) {
      receivers[i]->in_batch = false;
      receivers[i]->output().pop(sends[i].sent);
    }
  }

  Deadline time_of(const ServedClient& newcomer) const {
    return Deadline::at(newcomer.since + options.handshake_timeout);
  }

  void start_handshake_timer() {
    handshake_timer.start(time_of(*newcomers.front()), [this] { end_handshakes(); });
  }

  // Bytes that came while the server was stopped are read before a client counts as silent, and
  // that time counts for no client.
  void end_handshakes() {
    const auto now = Deadline::Clock::now();
    in_turn = true;
    while (!newcomers.empty() && time_of(*newcomers.front()).when() <= now) {
      ServedClient& client = *newcomers.front();
      const bool was_away = now - time_of(client).when() > TokenGate::kWasAway;
      read(client);
      if (client.closed || !client.newcomer) continue;
      if (legacy_peers.spare(client)) {
        leave_newcomers(client);
      } else if (was_away) {
        client.since = now;
        newcomers.splice(newcomers.end(), newcomers, client.newcomer_place);
      } else {
        refuse(client, "it did not open the conversation in time");
      }
    }
    in_turn = false;
    if (!newcomers.empty()) start_handshake_timer();
    bury();
  }

  // Requests of the old store's clients must not reach the new store, even those that have not been
  // read yet. Clients that have sent nothing may stay, and so may agents.
  void start_over() {
    while (UniqueFd connection = listener.next().connection) admit(std::move(connection));
    std::vector<ServedClient*> all;
    for (ServedClient& client : clients) all.push_back(&client);
    for (ServedClient* client : all)
      if (!client->closed && !may_stay(*client)) close(*client, "the store starts over");
    bury();
    service.core.clear();
  }

  bool may_stay(const ServedClient& client) {
    if (!client.newcomer || !client.silent()) return false;
    unsigned char first = 0;
    const ssize_t n = ::recv(client.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 ? errno == EAGAIN : n == 1 && first >= kFirstAgentByte;
  }

  const TcpStoreServerOptions options;
  StoreService service;
  EpollSet sockets;
  StoreListener listener;
  bool turned_away = false;  // and said so; until one is accepted again
  Linger linger;
  bool in_turn = false;  // events may still point to what is closed
  std::vector<char> read_buffer;
  SendPool send_pool;
  LegacyPeers legacy_peers;
  std::list<ServedClient*> newcomers;  // oldest first
  std::size_t most_held = 0;           // of the memory, since the last on_shrunk()
  std::size_t most_strangers = 0;      // newcomers and those at the gate; looked up when reached
  std::list<ServedClient> closed;
  std::list<ServedClient> clients;
  base::FdWatch watch;
  base::Timer handshake_timer;
  RateLimitedLog strangers;
  std::optional<TokenGate> gate;
};

TcpStoreServer::TcpStoreServer(base::EventLoop& loop, UniqueFd listener,
                               TcpStoreServerOptions options)
    : impl_(std::make_unique<Impl>(loop, std::move(listener), std::move(options))) {}

TcpStoreServer::~TcpStoreServer() = default;

std::uint16_t TcpStoreServer::port() const {
  return base::local_port(impl_->listener.fd());
}

void TcpStoreServer::start_over() {
  impl_->start_over();
}

}  // namespace dtrun::rendezvous
