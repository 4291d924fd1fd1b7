// SubgroupTable: the subgroups of a group that calls with the same ranks share. They stay as long
// as the group: if one rank let go of one earlier than the others, they would not agree on whether
// a call makes it anew. Thread-safe; whoever asks for a group waits only for those who make the
// same.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "dtrun/collectives/process_group.h"

namespace dtrun::collectives {

class SubgroupTable {
 public:
  using RankLists = std::vector<std::vector<int>>;

  /// @param make is called on the first call with those lists, and on the next one where it threw
  template <typename Make>
  ProcessGroup get(const RankLists& lists, Make make) {
    const std::shared_ptr<Entry> entry = entry_of(lists);
    const std::lock_guard lock(entry->mutex);
    if (!entry->is_made) entry->group = make();
    entry->is_made = true;
    return entry->group;
  }

 private:
  struct Entry {
    std::mutex mutex;
    bool is_made = false;
    ProcessGroup group;  ///< invalid where this rank is in no list
  };

  std::shared_ptr<Entry> entry_of(const RankLists& lists) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Entry>& entry = entries_[lists];
    if (!entry) entry = std::make_shared<Entry>();
    return entry;
  }

  std::mutex mutex_;
  std::map<RankLists, std::shared_ptr<Entry>> entries_;
};

}  // namespace dtrun::collectives
