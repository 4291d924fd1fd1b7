// GroupContender: the collectives of a ProcessGroup, over whichever backend it has. Its ranks tell
// each other what they measured through the store, not through the backend that is measured.
#pragma once

#include <memory>
#include <string>

#include "bench/contender.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::bench {

class GroupContender : public Contender {
 public:
  /// @param device where the group's tensors lie
  GroupContender(collectives::ProcessGroup group, std::shared_ptr<rendezvous::Store> store,
                 tensors::Device device);

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  tensors::Device device() const override { return device_; }
  void prepare(const Call& call, const std::vector<Buffers>& buffers) override;
  void run(std::size_t buffer) override;
  void barrier() override { group_.barrier(); }
  std::vector<double> collect(const std::vector<double>& values) override;
  std::vector<double> share(const std::vector<double>& values) override;

 private:
  using Tensors = std::vector<tensors::LocalTensor>;

  collectives::CallOptions options_of(const Call& call) const;
  /// Of the store.
  std::string key_of(const std::string& what, int rank) const;

  collectives::ProcessGroup group_;
  std::shared_ptr<rendezvous::Store> store_;
  tensors::Device device_;
  std::uint64_t collected_ = 0;
  Call call_;
  collectives::CallOptions reduction_;  ///< of a call that reduces
  std::vector<Buffers> buffers_;
  std::vector<Tensors> parts_;  ///< of gather's outputs and scatter's inputs, per buffer
  /// Of send_recv, likewise: a program that exchanges in a loop keeps them, too.
  std::vector<std::vector<collectives::P2POp>> messages_;
};

}  // namespace dtrun::bench
