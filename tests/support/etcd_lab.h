// EtcdLab: a real etcd cluster of 1 or 3 members on the loopback, from tests/lab/etcd, in a folder
// of its own. Needs etcd (scripts/install-packages --lab); where it cannot start, reason() says
// why. Up in half a second: list the program with dtrun_etcd_test(), which CTest runs whole.
#pragma once

#include <string>
#include <vector>

#include "dtrun/base/socket.h"
#include "support/command.h"

namespace dtrun::testing_support {

class EtcdLab {
 public:
  explicit EtcdLab(int members);
  ~EtcdLab();
  EtcdLab(const EtcdLab&) = delete;
  EtcdLab& operator=(const EtcdLab&) = delete;

  /// Why there is no cluster; empty: there is one.
  const std::string& reason() const { return reason_; }
  const std::vector<base::HostPort>& endpoints() const { return endpoints_; }

  /// "kill", "stop" (SIGSTOP) or "cont"; member 1, 2, ...
  void signal(const std::string& what, int member);
  /// Starts the members that were killed.
  void start();

 private:
  CommandResult script(std::vector<std::string> command);

  std::string folder_;
  std::string reason_;
  std::vector<base::HostPort> endpoints_;
};

}  // namespace dtrun::testing_support

#define REQUIRE_ETCD(lab) \
  if (!(lab).reason().empty()) GTEST_SKIP() << "no etcd here: " << (lab).reason()
