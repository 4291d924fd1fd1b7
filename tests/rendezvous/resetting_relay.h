// ResettingRelay: a box on the way between agents and their head: passes on what both say, and ends
// all connections by a reset (RST) to either side when it is told to.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/socket.h"

namespace dtrun::rendezvous {

class ResettingRelay {
 public:
  explicit ResettingRelay(std::uint16_t head)
      : head_(head),
        listener_(base::listen_tcp("127.0.0.1", 0)),
        told_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { run(); }) {}
  ~ResettingRelay() {
    over_ = true;
    reset();
    thread_.join();
  }
  std::uint16_t port() const { return base::local_port(listener_.get()); }
  void reset() { ::eventfd_write(told_.get(), 1); }

 private:
  using Way = std::pair<base::UniqueFd, base::UniqueFd>;

  void run() {
    while (!over_) {
      std::vector<pollfd> watched{{told_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Way& way : ways_)
        for (const int fd : {way.first.get(), way.second.get()}) watched.push_back({fd, POLLIN, 0});
      ::poll(watched.data(), watched.size(), -1);
      eventfd_t count = 0;
      if (::eventfd_read(told_.get(), &count) == 0) {
        reset_all();
        continue;
      }
      if (watched[1].revents != 0) take_connection();
      std::size_t at = 2;
      for (auto way = ways_.begin(); at < watched.size(); at += 2) {
        const bool there = (watched[at].revents == 0 || pass(way->first, way->second)) &&
                           (watched[at + 1].revents == 0 || pass(way->second, way->first));
        way = there ? std::next(way) : ways_.erase(way);
      }
    }
  }
  void take_connection() {
    base::UniqueFd agent(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ways_.emplace_back(
        std::move(agent),
        base::connect_tcp("127.0.0.1", head_, base::Deadline::after(std::chrono::seconds(30))));
  }
  static bool pass(const base::UniqueFd& from, const base::UniqueFd& to) {
    char bytes[4096];
    const ssize_t n = ::recv(from.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 && ::send(to.get(), bytes, static_cast<std::size_t>(n), MSG_NOSIGNAL) == n;
  }
  void reset_all() {
    const linger at_once{1, 0};
    for (const Way& way : ways_)
      for (const int fd : {way.first.get(), way.second.get()})
        ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ways_.clear();
  }

  const std::uint16_t head_;
  const base::UniqueFd listener_, told_;
  std::list<Way> ways_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace dtrun::rendezvous
