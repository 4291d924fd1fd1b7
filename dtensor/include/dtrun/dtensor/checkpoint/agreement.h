// Agreement: how the ranks of a save or a load come to one verdict. Each says what it has found;
// all hear all of it. Collective; for one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::dtensor::dcp {

class Agreement {
 public:
  virtual ~Agreement() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Each rank's text, in the order of the ranks.
  virtual std::vector<std::string> exchange(const std::string& own) = 0;
  /// A group of the same ranks, whose messages may carry what they read for each other; null: there
  /// is none.
  virtual const collectives::ProcessGroup* carrier() const { return nullptr; }
};

/// Of this process alone.
class AloneAgreement : public Agreement {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> exchange(const std::string& own) override { return {own}; }
};

/// By collectives of the group.
class GroupAgreement : public Agreement {
 public:
  explicit GroupAgreement(collectives::ProcessGroup group) : group_(std::move(group)) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<std::string> exchange(const std::string& own) override;
  const collectives::ProcessGroup* carrier() const override { return &group_; }

 private:
  const collectives::ProcessGroup group_;
};

/// Through a store, whatever the ranks' groups do meanwhile. The ranks give the same name; those
/// that make several of one name make equally many. After an exchange that failed the next ones
/// fail, too.
class StoreAgreement : public Agreement {
 public:
  /// @param timeout of an exchange, in which a rank may wait for another one's disk
  StoreAgreement(std::shared_ptr<rendezvous::Store> store, const std::string& name, int rank,
                 int size, base::Deadline::Duration timeout = std::chrono::minutes(30));
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> exchange(const std::string& own) override;

 private:
  std::string key(std::int64_t round, int rank) const;

  const std::shared_ptr<rendezvous::Store> store_;
  const std::string name_;
  const int rank_;
  const int size_;
  const base::Deadline::Duration timeout_;
  std::int64_t round_ = 0;
  bool is_lost_ = false;  ///< an exchange has failed: the others may be in another round
};

/// Does the work on each rank, and exchanges what it gives. Where it throws on a rank, the first
/// such rank's Error is thrown on all of them, naming it.
std::vector<std::string> together(Agreement& agreement, const std::function<std::string()>& work);

}  // namespace dtrun::dtensor::dcp
