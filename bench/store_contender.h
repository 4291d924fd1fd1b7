// The servers that store_bench compares, each in a process of its own, on a port of its own.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/command.h"

namespace dtrun::bench {

class StoreContender {
 public:
  enum class Speaks { kStore, kEcho };

  /// Starts `command`, which prints its port and ends with its standard input. Does not come back
  /// from a failure.
  StoreContender(std::string name, Speaks speaks, const std::vector<std::string>& command,
                 const std::map<std::string, std::optional<std::string>>& environment = {});
  ~StoreContender();

  const std::string& name() const { return name_; }
  bool is_echo() const { return speaks_ == Speaks::kEcho; }
  std::uint16_t port() const { return port_; }
  pid_t pid() const { return command_.pid(); }
  /// Its resident memory, in bytes.
  double resident_bytes() const;

 private:
  std::string name_;
  Speaks speaks_;
  std::uint16_t port_ = 0;
  testing_support::Command command_;
};

/// While it lives, this thread and all of the server's share one core: what a round trip then takes
/// is the work of both, without the waking of another core.
class OneCore {
 public:
  explicit OneCore(const StoreContender& server);
  ~OneCore();
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  void bind_all(const cpu_set_t& cpus) const;

  const StoreContender& server_;
  cpu_set_t before_{};
};

/// As many descriptors as the system allows.
void raise_descriptor_limit();

/// As the length of an echo server's answer: one byte to every other connection.
inline constexpr std::uint32_t kToAllOthers = 0xffffffff;

/// Serves dtrun's store, or fixed answers, until standard input ends; prints the port first.
void serve_dtrun();
void serve_echo();

}  // namespace dtrun::bench
