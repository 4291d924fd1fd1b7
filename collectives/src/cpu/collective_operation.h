// CollectiveOperation: carries out one rank's Schedule, bit by bit, without ever blocking. By
// parcels some of its transfers are no messages: what a post has, is taken from there.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "delivery_steps.h"
#include "dtrun/collectives/reduce_op.h"
#include "late_members.h"
#include "message.h"
#include "operation.h"
#include "parcels.h"
#include "schedule.h"

namespace dtrun::collectives::cpu {

class CollectiveOperation : public Operation {
 public:
  /// @param begun what has been done of it already; null: nothing
  CollectiveOperation(const std::shared_ptr<GroupEngine>& engine, Collective collective,
                      const Situation& situation, Way way, Schedule schedule,
                      const DeliverySteps* begun = nullptr);

  bool step(GroupChannels& channels) override;
  std::vector<int> missing() const override;
  bool relays() const override { return schedule_.relays; }
  bool by_messages() const override { return !parcels_; }
  std::uint64_t bytes() const override { return bytes_; }
  void let_go() override { scratch_.reset(); }
  std::span<const Buffer> reads() const override { return inputs_; }
  std::span<const Buffer> writes() const override { return outputs_; }

 private:
  struct Receive {
    int peer;
    std::span<std::byte> target;
    IncomingMessage message;
    bool is_checked = false;
    bool is_message = true;  ///< else its giver's post has to say whether it is one
    bool is_over = false;
  };

  void begin_step();
  void go_on_from(const DeliverySteps& begun);
  bool step_schedule(GroupChannels& channels);
  bool move_step(GroupChannels& channels);
  std::size_t step_send(GroupChannels& channels, OutgoingMessage& send);
  std::size_t step_receive(GroupChannels& channels, Receive& receive);
  std::size_t look_at_post(GroupChannels& channels, Receive& receive);
  void check(const Receive& receive) const;
  void do_local(const LocalWork& work);
  std::span<std::byte> resolve(const Slice& slice) const;

  const Schedule schedule_;
  const std::vector<Buffer> inputs_;
  const std::vector<Buffer> outputs_;
  const int size_;
  const std::size_t least_lent_;
  std::unique_ptr<std::byte[]> scratch_;
  const std::uint64_t bytes_;
  std::optional<Parcels> parcels_;
  LateMembers late_;
  std::size_t step_ = 0;
  bool step_begun_ = false;
  bool beside_done_ = false;  ///< the step's work beside its messages
  std::vector<OutgoingMessage> sends_;
  std::vector<Receive> receives_;
};

/// What a schedule of that call depends on. Borrows the machines.
CollectiveShape shape_of(const CollectiveView& collective, int rank, const Situation& situation,
                         Way way, const MachineLists& machines);

/// @param way parcels, messages, rounds, chunks or machines @param begun as CollectiveOperation's
std::shared_ptr<Operation> make_collective_operation(const std::shared_ptr<GroupEngine>& engine,
                                                     Collective collective,
                                                     const Situation& situation, Way way,
                                                     const DeliverySteps* begun = nullptr);

}  // namespace dtrun::collectives::cpu
