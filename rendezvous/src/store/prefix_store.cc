#include "dtrun/rendezvous/prefix_store.h"

#include "dtrun/base/check.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;

class PrefixStore : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {}

  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    store_->set(prefix_ + key, value, deadline);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return store_->get(prefix_ + key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return store_->try_get(prefix_ + key, deadline);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Deadline deadline) override {
    return store_->add(prefix_ + key, delta, deadline);
  }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired, Deadline deadline) override {
    return store_->compare_set(prefix_ + key, expected, desired, deadline);
  }
  bool check(const Keys& keys, Deadline deadline) override {
    return store_->check(prefixed(keys), deadline);
  }
  void wait(const Keys& keys, Deadline deadline) override {
    store_->wait(prefixed(keys), deadline);
  }
  bool delete_key(const std::string& key, Deadline deadline) override {
    return store_->delete_key(prefix_ + key, deadline);
  }
  std::int64_t num_keys(Deadline deadline) override { return store_->num_keys(deadline); }
  void append(const std::string& key, std::string_view value, Deadline deadline) override {
    store_->append(prefix_ + key, value, deadline);
  }
  Keys multi_get(const Keys& keys, Deadline deadline) override {
    return store_->multi_get(prefixed(keys), deadline);
  }
  void multi_set(const Pairs& pairs, Deadline deadline) override {
    Pairs longer = pairs;
    for (auto& [key, value] : longer) key.insert(0, prefix_);
    store_->multi_set(longer, deadline);
  }
  void queue_push(const std::string& key, std::string_view value, Deadline deadline) override {
    store_->queue_push(prefix_ + key, value, deadline);
  }
  std::string queue_pop(const std::string& key, Deadline deadline) override {
    return store_->queue_pop(prefix_ + key, deadline);
  }
  std::int64_t queue_len(const std::string& key, Deadline deadline) override {
    return store_->queue_len(prefix_ + key, deadline);
  }
  Keys list_keys(Deadline deadline) override {
    Keys result;
    for (const std::string& key : store_->list_keys(deadline))
      if (key.starts_with(prefix_)) result.push_back(key.substr(prefix_.size()));
    return result;
  }
  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override {
    store_->barrier(prefix_ + key, world, deadline);
  }

  Deadline::Duration timeout() const override { return store_->timeout(); }
  void set_timeout(Deadline::Duration timeout) override { store_->set_timeout(timeout); }
  std::shared_ptr<Store> underlying_store() const override { return store_; }

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
