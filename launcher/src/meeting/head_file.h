// HeadFile: the file through which the agents of a job find their head (store_type=file). The first
// agent to claim the path is the head; the file only says where it listens.
//
// The file is locked (flock) by its head alone, for as long as that lives. A file whose lock is
// free is left over from a dead head; the agent that gets the lock may put its own file in its
// place. A file appears whole (link or rename of one that was written and locked before), so a
// reader never sees half of one. Network file systems: Linux's NFS passes flock on to the server;
// where a mount keeps locks to the machine (local_lock, Lustre without -o flock), a second look,
// whether somebody answers at the address, protects a head that lives.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"
#include "meeting/head_record.h"

namespace dtrun::launcher {

/// Held by the head. The destructor removes the file.
class HeadFile {
 public:
  /// Where this agent would listen; called only when the path can be claimed.
  using Offer = std::function<HeadRecord()>;

  HeadFile() = default;
  HeadFile(HeadFile&& other) noexcept;
  HeadFile& operator=(HeadFile&& other) noexcept;
  ~HeadFile() { remove(); }

  /// Claims the path, or finds who has it. Blocks as long as the file system does.
  /// @return the record of the head that lives; nullopt: this is the head now
  /// @throws Error kSystem (no such folder, no right to write, disk full, no locks there), kUsage
  /// (the file is not of dtrun: it is never overwritten), kTimeout
  std::optional<HeadRecord> claim(const std::string& path, const Offer& offer,
                                  base::Deadline deadline);
  bool claimed() const { return fd_.valid(); }

 private:
  struct Draft;
  static std::unique_ptr<Draft> draft(const std::string& path, const Offer& offer);
  void remove() noexcept;

  std::string path_;
  base::UniqueFd fd_;
};

}  // namespace dtrun::launcher
