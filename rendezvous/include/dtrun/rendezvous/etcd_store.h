// EtcdStore: a Store in an etcd cluster, under a prefix: it outlives every process of the job, and
// the death of a minority of etcd's members. Thread-safe; not to be used on both sides of a fork.
//
// Made for rendezvous, not for the traffic of ranks: an operation is one or two round trips through
// a quorum (milliseconds), add() and append() to one key by many at once are tried again and again,
// and a value has at most 1.5 MiB. Waiting costs a watch, no polling. Every change is made exactly
// once, whatever becomes of the network and of etcd's members. docs/protocols.md has the keys.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/etcd_options.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {

struct EtcdStoreOptions {
  EtcdOptions etcd;
  std::string prefix = "/torch/elastic/store";
  /// How long this process's keys stay after its end; 0: until somebody removes them. etcd's
  /// shortest is about 2 s.
  std::chrono::seconds ttl{0};
  /// How long the store's own marks (PREFIX/w/) stay after the process was killed; for a store
  /// without a ttl.
  std::chrono::seconds marks_ttl{60};
  base::Deadline::Duration connect_timeout = std::chrono::seconds(300);
};

/// Connects, and sees that a majority of etcd is up. @throws Error kInvalidArgument; kConnection
/// naming etcd's members and what each last said; kProtocol when none of them is an etcd
std::shared_ptr<Store> connect_etcd_store(const EtcdStoreOptions& options);

}  // namespace dtrun::rendezvous
