#include "descriptor_message.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::mp {
namespace {

constexpr std::size_t kMostFds = 8;

// Room for a message; lives as long as its msghdr is used.
struct Envelope {
  int number = 0;
  iovec data{&number, sizeof number};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr header{};

  explicit Envelope(std::size_t fds) {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (fds == 0) return;
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds * sizeof(int));
  }
};

base::UniqueFd above_standard_streams(int fd) {
  base::UniqueFd owned(fd);
  if (fd > STDERR_FILENO) return owned;
  return base::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

}  // namespace

std::pair<base::UniqueFd, base::UniqueFd> make_message_sockets() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    throw base::system_error("make a pair of sockets", "raise the limit of open files (ulimit -n)");
  base::UniqueFd first = above_standard_streams(fds[0]);
  return {std::move(first), above_standard_streams(fds[1])};
}

bool send_message(int socket, int number, const std::vector<int>& fds) {
  DT_CHECK(fds.size() <= kMostFds);
  Envelope envelope(fds.size());
  envelope.number = number;
  if (!fds.empty()) {
    cmsghdr* const item = CMSG_FIRSTHDR(&envelope.header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(item), fds.data(), fds.size() * sizeof(int));
  }
  while (::sendmsg(socket, &envelope.header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return false;
    throw base::system_error("send descriptors to another process");
  }
  return true;
}

std::optional<DescriptorMessage> receive_message(int socket) {
  Envelope envelope(kMostFds);
  ssize_t n = 0;
  while ((n = ::recvmsg(socket, &envelope.header, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (n < 0 && errno != ECONNRESET)
    throw base::system_error("receive descriptors from another process",
                             "raise the limit of open files (ulimit -n)");
  if (n <= 0) return std::nullopt;
  DescriptorMessage message;
  message.number = envelope.number;
  const cmsghdr* const item = CMSG_FIRSTHDR(&envelope.header);
  if (item == nullptr || item->cmsg_type != SCM_RIGHTS) return message;
  const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof fd);
    message.fds.emplace_back(fd);
  }
  return message;
}

}  // namespace dtrun::mp
