// EpollSet: many descriptors behind one, which an EventLoop watches. It is not Asio's reactor
// because of memory: an Asio socket with a pending wait takes 434 bytes of heap (Boost 1.81,
// mallinfo2), more than the 400 bytes that an idle connection of the store takes in all. Here a
// connection costs only the kernel's record. Not thread-safe.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {

class EpollSet {
 public:
  /// @throws Error kSystem
  EpollSet();

  int fd() const { return fd_.get(); }
  /// `tag` comes back with the events. False: the system has no room for one more.
  bool add(int fd, std::uint32_t events, void* tag) { return add(fd, events, epoll_data{tag}); }
  void change(int fd, std::uint32_t events, void* tag) { change(fd, events, epoll_data{tag}); }
  /// The same with a number, for what may be gone when its events come.
  bool add(int fd, std::uint32_t events, std::uint64_t tag) {
    return add(fd, events, epoll_data{.u64 = tag});
  }
  void change(int fd, std::uint32_t events, std::uint64_t tag) {
    change(fd, events, epoll_data{.u64 = tag});
  }
  void remove(int fd);
  /// The descriptors that are ready now, as many as fit. Does not wait.
  std::span<epoll_event> ready(std::span<epoll_event> events);

 private:
  bool add(int fd, std::uint32_t events, epoll_data tag);
  void change(int fd, std::uint32_t events, epoll_data tag);

  base::UniqueFd fd_;
};

}  // namespace dtrun::rendezvous
