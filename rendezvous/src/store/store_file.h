// StoreFile: the file of a FileStore: records one behind the other, locks, and who has it open.
// Not thread-safe.
//
// A record is a key and a value, each with its length before it (32 bits, this machine's byte
// order). PyTorch's FileStore writes the same: "/k" sets the key k, "-/k" deletes it; "refcount/"
// and "cleanup/" count who has come and gone. Ours alone are "+/q", an element pushed to the queue
// q, and "!/q", one popped. The first record is always one of "refcount/".
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/file_store.h"

namespace dtrun::rendezvous {

struct StoreRecord {
  std::string key;
  std::string value;
};

class StoreFile {
 public:
  /// Not open yet.
  explicit StoreFile(std::string path) : path_(std::move(path)) {}

  /// The file's lock, from construction to destruction. The kernel takes it from a process that
  /// dies, not from one that is stopped.
  class Lock {
   public:
    enum class Kind { shared, exclusive };
    /// Sleeps until then.
    using Pause = std::function<void(base::Deadline)>;
    /// flock(2) knows no deadline: while another process holds the lock it is tried again after
    /// pauses of at most 2 ms. @throws Error kTimeout
    Lock(const StoreFile& file, Kind kind, base::Deadline deadline, const Pause& pause);
    ~Lock();
    Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Lock& operator=(Lock&&) = delete;

   private:
    int fd_;
  };

  /// Opens the file, or makes it, and locks it exclusively. Until the lock is given back nobody can
  /// remove the file: whoever enters says in it that he is there before that.
  /// @throws Error kTimeout where another process holds the lock for so long
  Lock enter(FileStoreOptions::Leftover leftover, base::Deadline deadline);

  /// The whole records that came since the last call; call it under a lock. An incomplete record is
  /// left out.
  std::vector<StoreRecord> read_new();
  /// Under an exclusive lock, after read_new(). All or nothing, unless the process dies in it.
  void append(const std::vector<StoreRecord>& records);
  /// Under an exclusive lock: whether the path still leads to this file.
  bool is_in_place() const;
  /// Under an exclusive lock.
  void remove();

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  /// Whether other machines may change it.
  bool is_on_network() const { return on_network_; }

 private:
  void open();
  void check_is_store() const;
  bool alone();
  void mark_open();
  off_t size() const;
  void cut_to(off_t size) const;

  std::string path_;
  base::UniqueFd fd_;
  bool on_network_ = false;
  off_t position_ = 0;  ///< the end of the last whole record that was read
};

}  // namespace dtrun::rendezvous
