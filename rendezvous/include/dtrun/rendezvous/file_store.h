// FileStore: a Store in one file, for processes of one machine that have nothing else in common;
// its records are those of PyTorch's FileStore, and both may use one file at once. Thread-safe; not
// to be used on both sides of a fork.
//
// Every operation locks the file, so a process that is stopped inside one holds up the others; one
// that dies does not: what it had not written to the end is dropped. Waiting costs nothing
// (inotify) but on network file systems, which do not tell of other machines' changes: there the
// file is looked at every 50 ms.
#pragma once

#include <memory>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {

struct FileStoreOptions {
  std::string path;
  /// After so many have closed the store, and nobody has it open, the file is removed; 0: never.
  int workers = 0;
  /// What a file holds that nobody has open: of an earlier job that did not end well. keep: its
  /// keys are in the store, as in PyTorch's. discard: they are not. Processes of PyTorch's do not
  /// count as having it open. Network file systems cannot tell: there it is always kept.
  enum class Leftover { keep, discard } leftover = Leftover::keep;
  /// For opening it, where another process holds its lock.
  base::Deadline::Duration open_timeout = std::chrono::seconds(300);
};

/// Creates the file where there is none. @throws Error kSystem; kTimeout; kInvalidArgument for a
/// file that is no store, which is left as it is
std::shared_ptr<Store> open_file_store(const FileStoreOptions& options);

}  // namespace dtrun::rendezvous
