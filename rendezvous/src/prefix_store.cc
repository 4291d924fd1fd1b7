#include "dtrun/rendezvous/prefix_store.h"

#include "dtrun/base/check.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using Keys = std::vector<std::string>;

class PrefixStore : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {}

  void set(const std::string& key, std::string_view value) override {
    store_->set(prefix_ + key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return store_->get(prefix_ + key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return store_->try_get(prefix_ + key);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return store_->add(prefix_ + key, delta);
  }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return store_->compare_set(prefix_ + key, expected, desired);
  }
  bool check(const Keys& keys) override { return store_->check(prefixed(keys)); }
  void wait(const Keys& keys, Deadline deadline) override {
    store_->wait(prefixed(keys), deadline);
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(prefix_ + key); }
  std::int64_t num_keys() override { return store_->num_keys(); }
  void append(const std::string& key, std::string_view value) override {
    store_->append(prefix_ + key, value);
  }
  Keys multi_get(const Keys& keys, Deadline deadline) override {
    return store_->multi_get(prefixed(keys), deadline);
  }
  void multi_set(const std::vector<std::pair<std::string, std::string>>& pairs) override {
    std::vector<std::pair<std::string, std::string>> longer = pairs;
    for (auto& [key, value] : longer) key.insert(0, prefix_);
    store_->multi_set(longer);
  }
  void queue_push(const std::string& key, std::string_view value) override {
    store_->queue_push(prefix_ + key, value);
  }
  std::string queue_pop(const std::string& key, Deadline deadline) override {
    return store_->queue_pop(prefix_ + key, deadline);
  }
  std::int64_t queue_len(const std::string& key) override {
    return store_->queue_len(prefix_ + key);
  }
  Keys list_keys() override {
    Keys result;
    for (const std::string& key : store_->list_keys())
      if (key.starts_with(prefix_)) result.push_back(key.substr(prefix_.size()));
    return result;
  }
  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override {
    store_->barrier(prefix_ + key, world, deadline);
  }

 private:
  Keys prefixed(const Keys& keys) const {
    Keys result;
    result.reserve(keys.size());
    for (const std::string& key : keys) result.push_back(prefix_ + key);
    return result;
  }

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  DT_CHECK(store != nullptr);
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

}  // namespace dtrun::rendezvous
