// GlooStore: our Store, as gloo wants one for its rendezvous. Every wait keeps to one deadline.
#pragma once

#include <gloo/rendezvous/store.h>

#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::collectives::gloo_backend {

class GlooStore : public ::gloo::rendezvous::Store {
 public:
  GlooStore(std::shared_ptr<rendezvous::Store> store, base::Deadline deadline)
      : store_(std::move(store)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(prefixed(key), {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(prefixed(key), deadline_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    std::vector<std::string> ours;
    for (const std::string& key : keys) ours.push_back(prefixed(key));
    store_->wait(ours, deadline_);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  static std::string prefixed(const std::string& key) { return "gloo/context/" + key; }

  const std::shared_ptr<rendezvous::Store> store_;
  const base::Deadline deadline_;
};

}  // namespace dtrun::collectives::gloo_backend
