// SharedOperation: a collective whose members share memory, in flight: a SharedPlan, carried out
// step by step. Where that ends because the buffers lie elsewhere, it goes on by messages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "late_members.h"
#include "operation.h"
#include "shared_plan.h"
#include "shared_steps.h"

namespace dtrun::collectives::cpu {

class SharedOperation : public Operation {
 public:
  /// @param situation @param way as SharedPlan's @param steps what has been done of it already
  SharedOperation(const std::shared_ptr<GroupEngine>& engine, Collective collective,
                  const Situation& situation, Way way, SharedSteps steps = {});

  bool step(GroupChannels& channels) override;
  std::vector<int> missing() const override;
  std::uint64_t bytes() const override { return bytes_; }
  bool by_messages() const override { return false; }
  void let_go() override {
    if (rest_) rest_->let_go();
  }
  bool shows_memory() const override { return plan_.meets_all() && steps_.shown() && !rest_; }
  std::span<const Buffer> reads() const override { return inputs_; }
  std::span<const Buffer> writes() const override { return outputs_; }

 private:
  bool step_rest(GroupChannels& channels);
  void begin_rest();

  Meeting& meeting_;
  const Situation situation_;
  const std::vector<Buffer> inputs_;
  const std::vector<Buffer> outputs_;
  const SharedPlan plan_;
  const std::uint64_t bytes_;
  SharedSteps steps_;
  std::shared_ptr<Operation> rest_;  ///< by messages; in no queue of the engine's
  LateMembers late_;
  bool is_told_ = false;   ///< that it goes in place
  bool is_taken_ = false;  ///< all steps are done
  int void_by_ = -1;       ///< the member whose buffers were read, and are no more to be used
};

}  // namespace dtrun::collectives::cpu
