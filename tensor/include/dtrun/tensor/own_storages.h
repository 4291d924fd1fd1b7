// OwnStorages: what its thread allocates while it stands. A function that will be run twice may
// write in place to these alone: what was there before would be changed twice.
#pragma once

#include <unordered_set>

#include "dtrun/tensor/storage.h"

namespace dtrun::tensors {

/// For use by the thread that makes it. They may stand in one another.
class OwnStorages {
 public:
  OwnStorages();
  ~OwnStorages();
  OwnStorages(const OwnStorages&) = delete;
  OwnStorages& operator=(const OwnStorages&) = delete;

  /// Whether one stands on this thread, and the innermost has not seen this storage made.
  static bool lack(const Storage& storage) {
    return innermost_ != nullptr && !innermost_->made_.contains(&storage);
  }

 private:
  friend class Storage;
  static void note(const Storage& storage) {
    if (innermost_ != nullptr) [[unlikely]]
      note_in_all(storage);
  }
  static void note_in_all(const Storage& storage);

  static constinit thread_local OwnStorages* innermost_;
  OwnStorages* const around_;
  /// Some are gone. Their addresses are only ever met again as those of later ones.
  std::unordered_set<const Storage*> made_;
};

}  // namespace dtrun::tensors
