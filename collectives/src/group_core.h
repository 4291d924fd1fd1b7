// GroupCore: what the copies of a ProcessGroup share: its options, its backends and the count of
// its calls. One thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "call_meter.h"
#include "dtrun/collectives/backend_spec.h"
#include "dtrun/collectives/process_group.h"
#include "make_backend.h"

namespace dtrun::collectives {

/// The subgroups of a group that calls with the same ranks share. They stay as long as the group:
/// if one rank let go of one earlier than the others, they would not agree on whether a call makes
/// it anew. Thread-safe; whoever asks for a group waits only for those who make the same.
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

class GroupCore {
 public:
  /// @param options of this group; the store lives as long as the group, for splits that meet there
  GroupCore(GroupOptions options, BackendSpec spec, BackendSet backends);

  const GroupOptions& options() const { return options_; }
  const BackendSpec& spec() const { return spec_; }
  int rank() const { return options_.rank; }
  int size() const { return size_; }
  /// Of calls that name none.
  base::Deadline::Duration timeout() const {
    return base::Deadline::Duration(timeout_.load(std::memory_order_relaxed));
  }
  void set_timeout(base::Deadline::Duration timeout) {
    timeout_.store(timeout.count(), std::memory_order_relaxed);
  }

  /// nullptr: tensors of that device type are refused.
  Backend* backend_of(tensors::DeviceType type) const {
    return type == tensors::DeviceType::cuda ? backends_.cuda.get() : backends_.cpu.get();
  }
  /// For what has no tensors: the cpu's where there is one.
  Backend& main_backend() const { return backends_.cpu ? *backends_.cpu : *backends_.cuda; }
  /// @throws Error kInvalidArgument for an undefined tensor, or one whose device has no backend
  Backend& backend_for(const LocalTensor& tensor, std::string_view what) const {
    if (tensor.defined()) [[likely]]
      if (Backend* const backend = backend_of(tensor.device().type)) return *backend;
    refuse(tensor, what);
  }
  /// @throws the same, for the device
  Backend& backend_for(tensors::Device device, std::string_view what) const {
    if (Backend* const backend = backend_of(device.type)) [[likely]]
      return *backend;
    refuse(device, what);
  }
  GroupShape shape(tensors::DeviceType type) const {
    return {rank(), size(), type, spec_.of(type)};
  }

  /// Counts the call. Collectives of all backends have one order, messages another.
  Fingerprint next_fingerprint(OpKind kind, const base::CallSite& site) {
    if (last_site_.file_name() != site.file_name() || last_site_.line() != site.line())
      remember(site);
    Fingerprint print = last_print_;
    const bool message = kind == OpKind::send || kind == OpKind::receive;
    print.sequence = message ? ++messages_ : ++collectives_;
    print.kind = kind;
    return print;
  }
  /// Tells the members, whichever backend they wait in, that this rank's call is wrong.
  void reject(const Fingerprint& fingerprint, const base::Error& error) const;
  /// Any thread. @throws Error kUsage in a forked child
  void abort(const std::string& reason) const;
  /// @throws Error kAborted after leave()
  void require_open(OpKind kind) const {
    if (left_.load(std::memory_order_acquire)) require_open(op_kind_name(kind));
  }
  void require_open(const char* call) const;

  TransportCounters counters() const;
  std::optional<std::int64_t> bytes_to_send(const PlannedCall& call) const;
  CallMeter& meter() const { return *meter_; }
  /// The call is counted already.
  CallTimer timer_of(OpKind kind) const { return {meter_, kind}; }
  std::vector<int> machines() const;
  /// @throws Error kUnavailable
  std::shared_ptr<tensors::HostAllocator> shared_memory() const;
  /// As all backends can tell together.
  std::vector<int> ended_ranks() const;
  void leave();

  /// The groups that were made of this one's ranks and are shared.
  SubgroupTable& subgroups() { return subgroups_; }
  /// Of the calls of shrink().
  struct Shrinks {
    std::uint64_t next = 0;      ///< attempt
    std::vector<int> survivors;  ///< of the last one that went well; empty: there was none
  };
  Shrinks& shrinks() { return shrinks_; }

 private:
  [[noreturn]] void refuse(const LocalTensor& tensor, std::string_view what) const;
  [[noreturn]] void refuse(tensors::Device device, std::string_view what) const;
  void remember(const base::CallSite& site);

  const GroupOptions options_;
  const int size_;
  const BackendSpec spec_;
  const BackendSet backends_;
  std::atomic<base::Deadline::Duration::rep> timeout_;
  std::uint64_t collectives_ = 0;
  std::uint64_t messages_ = 0;
  /// Loops call from one line, and writing its text takes as long as a small collective.
  base::CallSite last_site_;
  Fingerprint last_print_;  ///< has its text, and nothing else
  const std::shared_ptr<CallMeter> meter_ = std::make_shared<CallMeter>();
  SubgroupTable subgroups_;
  Shrinks shrinks_;
  std::atomic<bool> left_ = false;  ///< a waiting thread may leave for another one
};

/// @throws Error kInvalidArgument unless it is more than nothing
void require_timeout(base::Deadline::Duration timeout, std::string_view whose);

}  // namespace dtrun::collectives
