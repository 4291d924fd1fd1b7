#include "local_link.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::collectives::cpu {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::system_error;
using base::UniqueFd;

namespace {

constexpr std::uint64_t kMagic = 0x6b6e694c6e757274;  // "trunLink"

/// The first bytes on a link, in both directions, with the heap's fd beside them.
struct Hello {
  std::uint64_t magic = kMagic;
  std::uint64_t token = 0;
  std::uint64_t span = 0;
  std::uint64_t root_block = 0;
  std::int32_t rank = 0;
  std::int32_t reserved = 0;
};

struct Address {
  sockaddr_un value{};
  socklen_t size = 0;
};
Address abstract_address(const std::string& name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  // sun_path[0] stays 0: abstract.
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

void wait_readable(int fd, Deadline deadline, const std::string& what) {
  pollfd entry{fd, POLLIN, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw system_error(fmt::format("wait for {}", what));
    if (ready == 0 && deadline.expired())
      throw Error(ErrorCode::kTimeout, fmt::format("waited in vain for {}", what),
                  "a rank on this machine stopped while the group was being made");
  }
}

/// @return false: the peer has closed the connection
bool send_hello(int fd, const Hello& hello, int heap_fd) {
  iovec part{const_cast<Hello*>(&hello), sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &heap_fd, sizeof(int));
  const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return false;
  if (sent != static_cast<ssize_t>(sizeof(hello)))
    throw system_error("send a shared-memory descriptor to a local peer");
  return true;
}

struct Received {
  Hello hello;
  UniqueFd heap;
};
/// nullopt: no hello of ours.
std::optional<Received> receive_hello(int fd, Deadline deadline, const std::string& peer) {
  wait_readable(fd, deadline, "the shared memory of " + peer);
  Received received;
  iovec part{&received.hello, sizeof(received.hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int heap_fd = -1;
    std::memcpy(&heap_fd, CMSG_DATA(header), sizeof(int));
    received.heap = UniqueFd(heap_fd);
  }
  if (size != static_cast<ssize_t>(sizeof(Hello)) || !received.heap ||
      received.hello.magic != kMagic)
    return std::nullopt;
  return received;
}

LocalLink make_link(UniqueFd connection, Received received) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    throw system_error("ask who a local peer is");
  LocalLink link;
  link.heap = PeerHeap(base::SharedMemory::map(std::move(received.heap), received.hello.span));
  link.root_block = received.hello.root_block;
  link.pid = credentials.pid;
  base::set_nonblocking(connection.get());
  link.connection = std::move(connection);
  return link;
}

bool same_user(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == ::geteuid();
}

class Linker {
 public:
  explicit Linker(const LinkOptions& options)
      : options_(options),
        links_(options.cards.size()),
        reached_(options.cards.size()),
        connections_(options.cards.size()) {}

  LocalLinks run() {
    const std::string row = connect_to_lower_ranks();
    reached_[static_cast<std::size_t>(options_.rank)] = row;
    if (is_candidate_of_anybody()) options_.store.set(row_key(options_.rank), row);
    accept_higher_ranks();
    for (std::size_t rank = 0; rank < connections_.size(); ++rank) {
      if (!connections_[rank]) continue;
      std::optional<Received> received = receive_hello(connections_[rank].get(), options_.deadline,
                                                       describe_member(options_.cards[rank]));
      if (!received) throw_died(rank);
      links_[rank] = make_link(std::move(connections_[rank]), std::move(*received));
      if (rank != 0) reached_[rank] = get_row(static_cast<int>(rank));
    }
    return {std::move(links_), std::move(reached_)};
  }

 private:
  static std::string row_key(int rank) { return fmt::format("reached/{}", rank); }

  const Card& me() const { return options_.cards[static_cast<std::size_t>(options_.rank)]; }

  bool is_candidate(std::size_t rank) const {
    return static_cast<int>(rank) != options_.rank && !me().local_socket.empty() &&
           !options_.cards[rank].local_socket.empty() &&
           options_.cards[rank].locality == me().locality;
  }
  bool is_candidate_of_anybody() const {
    for (std::size_t rank = 0; rank < options_.cards.size(); ++rank)
      if (is_candidate(rank)) return true;
    return false;
  }

  [[noreturn]] void throw_died(std::size_t rank) const {
    options_.record.set_victim_of(options_.cards[rank].global_rank);
    throw Error(ErrorCode::kPeerFailed, fmt::format("{} died while the group was being made",
                                                    describe_member(options_.cards[rank])));
  }

  Hello my_hello() const {
    Hello hello;
    hello.token = options_.cards[0].token;
    hello.span = options_.heap.span();
    hello.root_block = options_.root_block;
    hello.rank = options_.rank;
    return hello;
  }

  /// @return one character per lower rank: '1' reached, '0' not
  std::string connect_to_lower_ranks() {
    std::string row;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(options_.rank); ++rank) {
      UniqueFd fd = is_candidate(rank) ? connect_to(options_.cards[rank]) : UniqueFd();
      row += fd ? '1' : '0';
      if (fd && !send_hello(fd.get(), my_hello(), options_.heap.fd())) throw_died(rank);
      connections_[rank] = std::move(fd);
    }
    return row;
  }

  static UniqueFd connect_to(const Card& card) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) throw system_error("make a Unix socket");
    const Address address = abstract_address(card.local_socket);
    const int result =
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.value), address.size);
    // Whatever stands between (namespaces, a security module): such a peer is reached by TCP.
    if (result != 0) fd.reset();
    return fd;
  }

  std::string get_row(int rank) const {
    try {
      return options_.store.get(row_key(rank), options_.deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      throw Error(ErrorCode::kTimeout,
                  fmt::format("{} came, but stopped or ended before the group was made",
                              describe_member(options_.cards[static_cast<std::size_t>(rank)])),
                  "", "look at that rank's output");
    }
  }

  void accept_higher_ranks() {
    std::size_t expected = 0;
    for (std::size_t rank = static_cast<std::size_t>(options_.rank) + 1;
         rank < options_.cards.size(); ++rank) {
      if (!is_candidate(rank)) continue;
      reached_[rank] = get_row(static_cast<int>(rank));
      expected += reached_[rank][static_cast<std::size_t>(options_.rank)] == '1';
    }
    while (expected != 0) expected -= accept_one();
  }

  bool accept_one() {
    wait_readable(options_.listener.fd.get(), options_.deadline, "a local peer to connect");
    UniqueFd fd(::accept4(options_.listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd && errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
      throw base::system_error("accept a peer of this machine",
                               "raise the limit of open files (ulimit -n)");
    // An abstract socket has no file permissions: strangers are sent away here.
    if (!fd || !same_user(fd.get())) return false;
    std::optional<Received> received = receive_hello(fd.get(), options_.deadline, "a local peer");
    if (!received || received->hello.token != options_.cards[0].token) return false;
    const std::size_t rank = static_cast<std::size_t>(received->hello.rank);
    if (rank >= links_.size() || links_[rank]) return false;
    if (!send_hello(fd.get(), my_hello(), options_.heap.fd())) throw_died(rank);
    links_[rank] = make_link(std::move(fd), std::move(*received));
    return true;
  }

  const LinkOptions& options_;
  std::vector<std::optional<LocalLink>> links_;
  std::vector<std::string> reached_;
  std::vector<UniqueFd> connections_;
};

}  // namespace

std::string locality_here() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) throw system_error("look at /proc/self/ns/net");
  return fmt::format("{}/{}", boot_id, network.st_ino);
}

LocalListener listen_locally() {
  std::random_device random;
  LocalListener listener;
  listener.name = fmt::format("dtrun-{:08x}{:08x}{:08x}", random(), random(), random());
  listener.fd = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.fd) throw system_error("make a Unix socket");
  const Address address = abstract_address(listener.name);
  if (::bind(listener.fd.get(), reinterpret_cast<const sockaddr*>(&address.value), address.size) !=
          0 ||
      ::listen(listener.fd.get(), SOMAXCONN) != 0)
    throw system_error("listen on a Unix socket");
  return listener;
}

LocalLinks link_local_peers(const LinkOptions& options) {
  return Linker(options).run();
}

}  // namespace dtrun::collectives::cpu
