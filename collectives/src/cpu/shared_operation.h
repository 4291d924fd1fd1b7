// SharedOperation: a collective whose members share memory, in flight: a SharedPlan, carried out
// step by step.
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
  bool shows_memory() const override { return plan_.way() == Way::stages && steps_.shown(); }
  std::span<const Buffer> reads() const override { return inputs_; }
  std::span<const Buffer> writes() const override { return outputs_; }

 private:
  Meeting& meeting_;
  const std::vector<Buffer> inputs_;
  const std::vector<Buffer> outputs_;
  const SharedPlan plan_;
  const std::uint64_t bytes_;
  SharedSteps steps_;
  LateMembers late_;
  bool is_told_ = false;   ///< that it goes in place
  bool is_taken_ = false;  ///< all steps are done
  int void_by_ = -1;       ///< the member whose buffers were read, and are no more to be used
};

}  // namespace dtrun::collectives::cpu
