// Munge: the realm of the machines whose munged have one key, as those of a Slurm cluster do. The
// first Munge opens libmunge; it is never linked. A call asks the munged of this machine and waits
// for its answer: 0.05 ms, 1 ms on a busy machine, seconds where munged hangs. So it must not be
// called on an event loop. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/realm.h"

namespace dtrun::rendezvous {

struct MungeOptions {
  std::string socket{};  ///< munged's; empty: where libmunge looks for it
  std::string library = "libmunge.so.2";
  /// After a seal() that failed none is tried for so long. A failure takes 2 s where munged was
  /// killed and 10 s where it is stopped: too long to repeat for each of many newcomers.
  base::Deadline::Duration rest = std::chrono::seconds(10);
};

/// munged takes connections on this machine, and libmunge is here. Asks it for nothing.
bool munge_runs(const MungeOptions& options);

class Munge final : public Realm {
 public:
  /// Seals something, to find out early.
  /// @throws Error kUnavailable (no libmunge, no munged)
  explicit Munge(MungeOptions options = {});
  ~Munge() override;
  Munge(const Munge&) = delete;
  Munge& operator=(const Munge&) = delete;

  Sealed seal() override;
  Opened open(const std::string& credential) override;
  uid_t own_user() const override;

 private:
  struct Library;
  class Context;
  const std::string socket_;
  const base::Deadline::Duration rest_time_;
  const std::unique_ptr<const Library> library_;
  std::mutex mutex_;  // of the two below
  base::Deadline rest_ = base::Deadline::after({});
  std::string last_failure_;
};

}  // namespace dtrun::rendezvous
