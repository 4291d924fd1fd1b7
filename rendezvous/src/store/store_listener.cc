#include "store/store_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::rendezvous {
namespace {

constexpr base::Deadline::Duration kPause = std::chrono::milliseconds(100);

}  // namespace

StoreListener::StoreListener(base::EventLoop& loop, EpollSet& set, base::UniqueFd socket)
    : set_(set), socket_(std::move(socket)), pause_(loop) {
  base::set_nonblocking(fd());
  // Connections inherit it: a system call less for each.
  const int on = 1;
  ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!set_.add(fd(), EPOLLIN, this))
    throw base::system_error("cannot watch the store's listening socket");
}

StoreListener::Next StoreListener::next() {
  while (true) {
    base::UniqueFd connection(::accept4(fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection) return {Outcome::kTaken, std::move(connection)};
    if (errno == EMFILE || errno == ENFILE)
      return {is_awaited() ? Outcome::kNoDescriptor : Outcome::kNoneThere, {}};
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno != EAGAIN) pause();
    return {Outcome::kNoneThere, {}};
  }
}

// accept4 does not tell before it has a descriptor for one.
bool StoreListener::is_awaited() const {
  pollfd waiting{fd(), POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

// The connection would stay in the backlog and the listener readable for ever.
bool StoreListener::turn_one_away() {
  bool there_was_one = false;
  const bool have_spare = spare_.lend([&] {
    there_was_one = base::UniqueFd(::accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC)).valid();
  });
  if (!have_spare) pause();
  return there_was_one && have_spare;
}

void StoreListener::pause() {
  set_.change(fd(), 0, this);
  pause_.start(base::Deadline::after(kPause), [this] { set_.change(fd(), EPOLLIN, this); });
}

}  // namespace dtrun::rendezvous
