// A process in a network (and mount) namespace of its own, whose loopback it may take down.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <functional>

#include "dtrun/base/unique_fd.h"

namespace dtrun::testing_support {

inline constexpr int kNoOwnNetwork = 77;

enum class Link { up, down };
inline bool set_loopback(Link link) {
  const base::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags = static_cast<short>(link == Link::up ? request.ifr_flags | IFF_UP
                                                          : request.ifr_flags & ~IFF_UP);
  return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

/// Forks; the process that runs the body ends with it. False: no such namespaces can be had here.
inline bool in_own_network(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        !set_loopback(Link::up))
      ::_exit(kNoOwnNetwork);
    try {
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoOwnNetwork) return false;
  EXPECT_EQ(status, 0);
  return true;
}

}  // namespace dtrun::testing_support
