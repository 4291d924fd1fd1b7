// FileStore: a Store in one file, for processes of one machine that have nothing else in common;
// its records are those of PyTorch's FileStore, and both may use one file at once. Thread-safe; not
// to be used on both sides of a fork.
//
// Every operation locks the file, so a process that is stopped inside one holds up the others. One
// that dies does not: its incomplete record is dropped. Waiting costs nothing (inotify), except on
// network file systems, which do not report changes of other machines: there the file is read every
// 50 ms.
#pragma once

#include <memory>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {

struct FileStoreOptions {
  std::string path;
  /// The file is removed when so many have closed the store and nobody has it open; 0: never.
  int workers = 0;
  /// The keys of a file that nobody has open, which an earlier job left behind. keep: they are in
  /// the store, as in PyTorch's. discard: they are not. Processes of PyTorch do not count as having
  /// it open. On network file systems, which cannot tell, the keys are always kept.
  enum class Leftover { keep, discard } leftover = Leftover::keep;
  /// How long opening may wait while another process holds the lock.
  base::Deadline::Duration open_timeout = std::chrono::seconds(300);
};

/// Creates the file where there is none. @throws Error kSystem; kTimeout; kInvalidArgument for a
/// file that is no store, which is left as it is
std::shared_ptr<Store> open_file_store(const FileStoreOptions& options);

}  // namespace dtrun::rendezvous
