// EpollSet: many descriptors behind one, which is readable when one of them is ready: an EventLoop
// watches that one. A connection costs the kernel's record of it and nothing here. Not thread-safe.
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
  bool add(int fd, std::uint32_t events, void* tag);
  void change(int fd, std::uint32_t events, void* tag);
  void remove(int fd);
  /// Those that are ready now, as many as fit; waits for none.
  std::span<epoll_event> ready(std::span<epoll_event> events);

 private:
  base::UniqueFd fd_;
};

}  // namespace dtrun::rendezvous
