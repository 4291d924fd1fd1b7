// EtcdWatch: the changes of some keys from a revision on, none lost, in order within each entry of
// the list of keys, and none twice but those of a transaction whose telling broke off: a broken
// stream is opened again, at another member if need be, where it ended. Uses the client, on the
// client's thread, and must not outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dtrun/base/backoff.h"
#include "etcd/etcd_client.h"

namespace dtrun::rendezvous {

class EtcdWatch {
 public:
  /// @param from the first revision whose changes are told: one more than that of the range that
  /// was read before
  EtcdWatch(EtcdClient& client, const std::vector<EtcdKeys>& keys, std::int64_t from);

  struct News {
    std::vector<EtcdEvent> events;
    /// etcd has forgotten revisions that were asked for: read the keys again and begin anew.
    bool forgotten = false;
  };
  /// Waits for changes; none at the deadline, or when `wake_fd` became readable (-1: none).
  /// @throws Error as EtcdClient, when etcd cannot be reached until the deadline
  News next(base::Deadline deadline, int wake_fd = -1);

 private:
  struct Range {
    EtcdKeys keys;
    std::int64_t from = 0;
  };
  void open(base::Deadline deadline);
  std::optional<News> take(const std::string& line);

  EtcdClient& client_;
  std::vector<Range> ranges_;  ///< number i is watch i + 1 of the stream
  EtcdClient::Stream stream_;
  base::Deadline::Clock::time_point heard_;
  /// Before a stream that broke is opened again.
  base::Backoff backoff_{std::chrono::milliseconds(10), std::chrono::seconds(1)};
};

}  // namespace dtrun::rendezvous
