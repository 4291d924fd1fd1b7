// StoreListener: takes the connections off a listening socket, also when the process has no
// descriptor left for them. Owned by a TcpStoreServer, on its thread.
#pragma once

#include <cstdint>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/spare_fd.h"
#include "dtrun/base/unique_fd.h"
#include "wire/epoll_set.h"

namespace dtrun::rendezvous {

class StoreListener {
 public:
  /// Watches `socket`, bound and listening, in `set`; its events bear this object's address.
  StoreListener(base::EventLoop& loop, EpollSet& set, base::UniqueFd socket);

  int fd() const { return socket_.get(); }

  enum class Outcome { kTaken, kNoneThere, kNoDescriptor };
  struct Next {
    Outcome outcome;
    base::UniqueFd connection;
  };
  /// The next connection, non-blocking and without delay (TCP_NODELAY).
  Next next();
  /// Instead, after kNoDescriptor: takes one and closes it, so that its client sees it and comes
  /// again. False: there was none, or not even that is possible now.
  bool turn_one_away();

 private:
  // Somebody is in the backlog.
  bool is_awaited() const;
  // Looks again after a while, when the system could not do what it was asked.
  void pause();

  EpollSet& set_;
  base::UniqueFd socket_;
  base::SpareFd spare_;
  base::Timer pause_;
};

}  // namespace dtrun::rendezvous
