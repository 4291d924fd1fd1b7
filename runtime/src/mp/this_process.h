// This process, as mp sees it: whether it is itself somebody's child, its default start method, and
// the children that it has started. Process-wide, since exit() must find the children, and Python's
// interface has one default start method. Thread-safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "started_process.h"

namespace dtrun::mp {

class ThisProcess {
 public:
  static ThisProcess& get();

  /// A child begins: it has no children, and is what the order says. In a copy of its parent, the
  /// parent's children are forgotten, not touched.
  static void begin_as_child(const Order& order);

  const std::string& name() const { return name_; }
  bool daemon() const { return daemon_; }
  /// main() has called run_if_child().
  bool is_announced() const { return announced_; }
  void announce() { announced_ = true; }

  std::string start_method();
  enum class Force { no, yes };
  /// @return false when it has been set already, and is not forced
  bool set_start_method(const std::string& method, Force force);

  /// "Process-3", in a child "Process-3:1".
  std::string next_child_name();
  void add_child(std::shared_ptr<StartedProcess> child);
  /// What exit() does: ends the daemonic children and joins the others.
  void end_children() noexcept;

 private:
  ThisProcess();
  std::vector<std::shared_ptr<StartedProcess>> children();
  void forget_ended_children();

  const pid_t owner_;
  ThisProcess* copied_from_ = nullptr;  // kept, untouched; the leak sanitizer sees it here
  std::string name_;
  bool daemon_ = false;
  std::atomic<bool> announced_ = false;
  std::mutex lock_;
  std::optional<std::string> start_method_;
  std::string inherited_start_method_ = "spawn";
  std::vector<std::shared_ptr<StartedProcess>> children_;
  int children_named_ = 0;
};

}  // namespace dtrun::mp
