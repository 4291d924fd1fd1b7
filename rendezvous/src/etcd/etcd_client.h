// EtcdClient: calls to one etcd cluster over one kept connection, through the JSON gateway. Every
// call goes from member to member until one answers or its deadline passes.
//
// A call whose answer is lost is made again: it may be carried out twice. Send only what may be, or
// guard it by a condition (etcd_writer.h).
//
// One thread at a time; the interrupt, which may be raised from any thread, ends every call with an
// Error kAborted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "etcd/etcd_messages.h"
#include "etcd/http_connection.h"

namespace dtrun::rendezvous {

struct EtcdLease {
  std::int64_t id = 0;
  std::chrono::seconds ttl{0};
};

class EtcdClient {
 public:
  /// Connects when first needed. Both must outlive it.
  EtcdClient(const EtcdOptions& options, const Interrupt& interrupt);

  // Every call: @throws Error kConnection naming the members, how long it tried and each one's last
  // answer; kProtocol when none of them is an etcd with its gateway; kInvalidArgument for what etcd
  // refuses; kAborted.

  /// Returns the revision that it made.
  std::int64_t put(const std::string& key, std::string_view value, std::int64_t lease,
                   base::Deadline deadline);
  struct RangeReply {
    std::int64_t revision = 0;
    EtcdRange range;
  };
  RangeReply range(const EtcdKeys& keys, const EtcdRangeOptions& options, base::Deadline deadline);
  /// Returns how many keys there were.
  std::int64_t remove(const EtcdKeys& keys, base::Deadline deadline);
  EtcdTxnReply txn(const EtcdTxn& txn, base::Deadline deadline);

  EtcdLease grant_lease(std::chrono::seconds ttl, base::Deadline deadline);
  /// The time to live from now on; 0: there is no such lease any more.
  std::chrono::seconds keep_lease_alive(std::int64_t id, base::Deadline deadline);
  /// As keep_lease_alive(), without prolonging it.
  std::chrono::seconds lease_time_to_live(std::int64_t id, base::Deadline deadline);
  void revoke_lease(std::int64_t id, base::Deadline deadline);

  struct Stream {
    std::unique_ptr<HttpConnection> connection;
    std::size_t member = 0;  ///< which of the endpoints it is to
  };
  /// A call with an endless answer, on a connection of its own.
  Stream open_stream(const std::string& path, const std::string& body, base::Deadline deadline);
  /// A round trip that needs a living majority of members.
  void probe(base::Deadline deadline);
  /// How often the last call was sent; more than once: it may have been carried out though the
  /// last answer is a refusal.
  int times_sent() const { return times_sent_; }
  /// The member that answered last.
  std::size_t member() const { return current_; }
  /// "host:2379, host2:2379"
  std::string members() const;
  const Interrupt& interrupt() const { return interrupt_; }

 private:
  class Attempts;
  boost::json::object call(const std::string& path, const std::string& body,
                           base::Deadline deadline);
  /// Goes from member to member until `attempt` returns.
  void until_answered(base::Deadline deadline,
                      const std::function<void(base::Deadline attempt_deadline)>& attempt);
  std::string post(const std::string& path, const std::string& body, base::Deadline deadline);
  void log_in(HttpConnection& connection, base::Deadline deadline);
  std::unique_ptr<HttpConnection> connect(base::Deadline deadline);
  base::Error refusal(const HttpReply& reply, base::Deadline deadline);
  base::Error no_gateway(const HttpReply& reply, base::Deadline deadline);

  const EtcdOptions& options_;
  const Interrupt& interrupt_;
  std::size_t current_;
  int times_sent_ = 0;
  std::unique_ptr<HttpConnection> connection_;
  std::string token_;
};

}  // namespace dtrun::rendezvous
