// The ceiling of the machine: a server that understands nothing. A connection's first eight bytes
// say how long a question is and how long its answer; for each question it sends that many zeros,
// or, where the length is kToAllOthers, one zero to every other connection.
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "dtrun/base/cpu_list.h"
#include "dtrun/base/socket.h"
#include "store_contender.h"

namespace dtrun::bench {
namespace {

struct Peer {
  int fd = -1;
  std::uint32_t question = 0;  // 0: not told yet
  std::uint32_t answer = 0;
  std::size_t got = 0;   // of the question
  std::size_t owed = 0;  // of answers
  bool behind = false;   // the socket takes no more
};

class EchoServer {
 public:
  EchoServer() : listener_(base::listen_tcp("127.0.0.1", 0)), epoll_(::epoll_create1(0)) {
    base::set_nonblocking(listener_.get());
    watch(EPOLL_CTL_ADD, 0, EPOLLIN, &input_);
    watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, &listening_);
    zeros_.resize(8 << 20);
  }

  std::uint16_t port() const { return base::local_port(listener_.get()); }

  void run() {
    epoll_event events[256];
    while (true) {
      const int count = ::epoll_wait(epoll_.get(), events, 256, -1);
      for (int i = 0; i < count; ++i) {
        Peer* peer = static_cast<Peer*>(events[i].data.ptr);
        if (peer == &input_) return;
        if (peer == &listening_) {
          accept_all();
        } else {
          serve(peer, events[i].events);
        }
      }
    }
  }

 private:
  void watch(int action, int fd, std::uint32_t events, Peer* peer) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = peer;
    ::epoll_ctl(epoll_.get(), action, fd, &event);
  }

  void accept_all() {
    for (int fd; (fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK)) >= 0;) {
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      Peer* peer = new Peer;
      peer->fd = fd;
      watch(EPOLL_CTL_ADD, fd, EPOLLIN, peer);
      peers_.push_back(peer);
    }
  }

  void serve(Peer* peer, std::uint32_t events) {
    if (events & EPOLLOUT) return pay(peer);
    const ssize_t size = ::recv(peer->fd, buffer_, sizeof buffer_, 0);
    if (size <= 0) {
      ::close(peer->fd);
      std::erase(peers_, peer);
      delete peer;
      return;
    }
    peer->got += static_cast<std::size_t>(size);
    if (peer->question == 0) {
      std::memcpy(&peer->question, buffer_, 4);
      std::memcpy(&peer->answer, buffer_ + 4, 4);
      peer->got -= 8;
    }
    if (peer->got < peer->question) return;
    if (peer->answer == kToAllOthers) return tell_all_but(peer);
    peer->owed += peer->got / peer->question * peer->answer;
    peer->got %= peer->question;
    pay(peer);
  }

  // By as many threads as help: a send is work of the sender's CPU.
  void tell_all_but(Peer* asker) {
    constexpr std::size_t kShare = 32;
    asker->got = 0;
    std::atomic<std::size_t> next = 0;
    const auto tell_some = [&] {
      for (std::size_t i; (i = next.fetch_add(kShare)) < peers_.size();)
        for (std::size_t j = i; j < std::min(i + kShare, peers_.size()); ++j)
          if (peers_[j] != asker) ::send(peers_[j]->fd, zeros_.data(), 1, MSG_NOSIGNAL);
    };
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < base::allowed_cpus().size(); ++i) helpers.emplace_back(tell_some);
    tell_some();
  }

  void pay(Peer* peer) {
    const ssize_t sent = ::send(peer->fd, zeros_.data(), peer->owed, MSG_NOSIGNAL);
    if (sent > 0) peer->owed -= static_cast<std::size_t>(sent);
    const bool behind = peer->owed > 0;
    if (behind != peer->behind) watch(EPOLL_CTL_MOD, peer->fd, behind ? EPOLLOUT : EPOLLIN, peer);
    peer->behind = behind;
  }

  base::UniqueFd listener_;
  base::UniqueFd epoll_;
  Peer input_, listening_;
  std::vector<Peer*> peers_;
  std::vector<char> zeros_;
  char buffer_[64 << 10];
};

}  // namespace

void serve_echo() {
  const auto server = std::make_unique<EchoServer>();
  fmt::print("{}\n", server->port());
  std::fflush(stdout);
  server->run();
}

}  // namespace dtrun::bench
