// Where the things of an EtcdStore stand in etcd. Pure.
//   PREFIX/k/KEY               a key's value; KEY as it is, any bytes
//   PREFIX/q/NAME/ID           an element of the queue NAME; who was created first is first. NAME
//   is
//                              escaped as in a URL, so that no '/' is in it
//   PREFIX/w/STORE/WRITER      what a writer has done last (etcd_writer.h)
#pragma once

#include <string>
#include <string_view>

#include "etcd/etcd_messages.h"

namespace dtrun::rendezvous {

class EtcdStoreKeys {
 public:
  /// @param store told from all others at this prefix
  EtcdStoreKeys(std::string prefix, std::string store)
      : prefix_(std::move(prefix)), store_(std::move(store)) {}

  std::string value(const std::string& key) const { return prefix_ + "/k/" + key; }
  EtcdKeys all_values() const { return EtcdKeys::with_prefix(prefix_ + "/k/"); }
  /// The key whose value stands there.
  std::string key_of(const std::string& value_key) const {
    return value_key.substr(prefix_.size() + 3);
  }
  EtcdKeys queue(const std::string& name) const { return EtcdKeys::with_prefix(folder(name)); }
  EtcdKeys all_queues() const { return EtcdKeys::with_prefix(prefix_ + "/q/"); }
  std::string element(const std::string& name, std::int64_t id) const {
    return folder(name) + store_ + "." + std::to_string(id);
  }
  std::string mark(std::int64_t writer) const {
    return prefix_ + "/w/" + store_ + "/" + std::to_string(writer);
  }
  EtcdKeys all_marks() const { return EtcdKeys::with_prefix(prefix_ + "/w/" + store_ + "/"); }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string folder(const std::string& name) const {
    return prefix_ + "/q/" + etcd_escape(name) + "/";
  }

  std::string prefix_;
  std::string store_;
};

}  // namespace dtrun::rendezvous
