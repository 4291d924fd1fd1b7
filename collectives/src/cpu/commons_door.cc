#include "commons_door.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "membership.h"

namespace dtrun::collectives::cpu {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::system_error;
using base::UniqueFd;

namespace {

constexpr char kWelcome = 'c';

struct Address {
  sockaddr_un value{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};
Address abstract_address(const std::string& name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  // sun_path[0] stays 0, which makes the address abstract.
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

UniqueFd unix_socket(int flags) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) throw system_error("make a Unix socket");
  return fd;
}

UniqueFd listen_as(const std::string& name) {
  UniqueFd fd = unix_socket(SOCK_NONBLOCK);
  const Address address = abstract_address(name);
  if (::bind(fd.get(), address.get(), address.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0)
    throw system_error("listen on a Unix socket");
  return fd;
}

// An abstract socket has no file permissions, so the peer's user is checked here.
bool is_same_user(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == ::geteuid();
}

void send_descriptor(int fd, int descriptor) {
  char byte = kWelcome;
  iovec part{&byte, 1};
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
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  // Cannot block: the send buffer of a new connection is empty. An error means that the peer has
  // gone, and is ignored.
  static_cast<void>(::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

UniqueFd receive_descriptor(int fd) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (size != 1 || byte != kWelcome || header == nullptr || header->cmsg_type != SCM_RIGHTS)
    return UniqueFd();
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return UniqueFd(descriptor);
}

bool wait_readable(int fd, Deadline deadline) {
  pollfd entry{fd, POLLIN, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR)
      throw system_error("wait for the memory of this machine's ranks");
    if (ready == 0 && deadline.expired()) return false;
  }
}

/// The size is in the key: ranks with different sizes do not share memory, and the comparison of
/// their cards names the disagreement.
std::string key_of(const CommonsDoor::Place& place) {
  const std::string machine = place.machine.empty() ? "" : "/" + place.machine;
  return fmt::format("commons/{}/{}/{}{}", locality_here(), ::geteuid(), place.ranks, machine);
}

std::string random_name() {
  std::random_device random;
  return fmt::format("dtrun-{:08x}{:08x}{:08x}", random(), random(), random());
}

}  // namespace

std::string locality_here() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) throw system_error("look at /proc/self/ns/net");
  return fmt::format("{}/{}", boot_id, network.st_ino);
}

CommonsDoor::CommonsDoor(const Place& place, Company company) {
  if (company == Company::alone) {
    make(place.ranks);
    return;
  }
  // The socket listens before its name is published: others connect as soon as they know it.
  const std::string name = random_name();
  door_ = listen_as(name);
  const std::string plate = fmt::format("{}\nrank {} (pid {} on {})", name, place.global_rank,
                                        ::getpid(), base::host_name());
  const std::string first = place.store.compare_set(key_of(place), "", plate, place.deadline);
  if (first == plate) {
    name_ = name;
    make(place.ranks);
  } else {
    door_.reset();
    if (enter(first, place)) {
      name_ = first.substr(0, first.find('\n'));
    } else {
      make(place.ranks);
    }
  }
  if (name_.empty()) return;
  life_sign_ = LifeSign::give(*commons_, place.world_rank);
  if (life_sign_) return;
  // Another process claims the same rank. The cards will tell; until then this one uses memory of
  // its own.
  name_.clear();
  make(place.ranks);
}

void CommonsDoor::make(int ranks) {
  commons_.emplace(Commons::create(ranks));
}

bool CommonsDoor::enter(const std::string& plate, const Place& place) {
  const std::string name = plate.substr(0, plate.find('\n'));
  const std::string owner = plate.substr(std::min(plate.size(), name.size() + 1));
  UniqueFd fd = unix_socket(0);
  const Address address = abstract_address(name);
  if (::connect(fd.get(), address.get(), address.size) != 0 || !is_same_user(fd.get())) {
    base::log::debug(base::log::Component::kCollectives,
                     "the shared memory of {} cannot be reached: this rank goes by TCP", owner);
    return false;
  }
  if (!wait_readable(fd.get(), place.deadline))
    throw Error(ErrorCode::kTimeout,
                fmt::format("waited in vain for {}, which has made the shared memory of this "
                            "machine's ranks",
                            owner),
                "it stopped while the group was being made", "look at that rank's output");
  UniqueFd descriptor = receive_descriptor(fd.get());
  if (!descriptor) throw_if_refused(place.store, place.deadline);
  if (!descriptor)
    throw Error(ErrorCode::kPeerFailed,
                fmt::format("{}, which has made the shared memory of this machine's ranks, died "
                            "while the group was being made",
                            owner),
                "", "look at that rank's output; where it lives, raise the limit of open files");
  commons_.emplace(Commons::open(std::move(descriptor), place.ranks));
  return true;
}

bool CommonsDoor::answer(base::SpareFd& spare) {
  // 0, or the errno of why nobody was answered.
  const auto answer_one = [this] {
    const UniqueFd visitor(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!visitor) return errno;
    if (is_same_user(visitor.get())) send_descriptor(visitor.get(), commons_->fd());
    return 0;
  };
  int error = answer_one();
  if ((error == EMFILE || error == ENFILE) && !spare.lend([&] { error = answer_one(); }))
    return false;
  return error == 0 || error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

}  // namespace dtrun::collectives::cpu
