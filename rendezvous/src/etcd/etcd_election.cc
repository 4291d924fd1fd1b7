#include "dtrun/rendezvous/etcd_election.h"

#include <thread>

#include "etcd/etcd_campaign.h"

namespace dtrun::rendezvous {

struct EtcdElection::Impl {
  Impl(base::EventLoop& loop, EtcdElectionSettings settings, EtcdElectionCallbacks callbacks)
      : campaign(std::move(settings), std::move(callbacks),
                 [&loop, alive = std::weak_ptr<int>(alive)](base::EventLoop::Callback callback) {
                   // Both this look and the destructor are on the loop's thread.
                   loop.post([alive, callback = std::move(callback)] {
                     if (!alive.expired()) callback();
                   });
                 }),
        thread([this] { campaign.run(); }) {}

  std::shared_ptr<int> alive = std::make_shared<int>();
  EtcdCampaign campaign;
  std::thread thread;
};

EtcdElection::EtcdElection(base::EventLoop& loop, EtcdElectionSettings settings,
                           EtcdElectionCallbacks callbacks) {
  if (settings.etcd.endpoints.empty())
    throw base::Error(base::ErrorCode::kInvalidArgument, "an election needs an endpoint of etcd",
                      "", "name one or more members: host:2379");
  impl_ = std::make_unique<Impl>(loop, std::move(settings), std::move(callbacks));
}

EtcdElection::~EtcdElection() {
  impl_->alive.reset();
  impl_->campaign.end();
  impl_->thread.join();
}

void EtcdElection::record_round(std::int64_t round, base::EventLoop::Callback done) {
  impl_->campaign.give({.kind = EtcdCampaign::Order::Kind::record_round,
                        .round = round,
                        .verdict = "",
                        .done = std::move(done)});
}

void EtcdElection::close(const std::string& verdict, base::EventLoop::Callback done) {
  impl_->campaign.give({.kind = EtcdCampaign::Order::Kind::close,
                        .round = 0,
                        .verdict = verdict,
                        .done = std::move(done)});
}

std::optional<std::int64_t> EtcdElection::held_epoch() const {
  return impl_->campaign.held_epoch();
}

}  // namespace dtrun::rendezvous
