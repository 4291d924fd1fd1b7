// DirectOperation: a collective whose members share memory, moved on bit by bit. Everybody meets by
// posts. Small ones are done then; in large ones every rank lays its bytes on its stage, step by
// step, and takes the others' from theirs.
#pragma once

#include <memory>
#include <vector>

#include "direct_shape.h"
#include "one_shot.h"
#include "operation.h"
#include "staged.h"

namespace dtrun::collectives::cpu {

class DirectOperation : public Operation {
 public:
  /// @param meeting the engine's @param one_shot what has been done of it already
  DirectOperation(std::shared_ptr<GroupEngine> engine, Meeting& meeting, Collective collective,
                  std::size_t shown_bytes, Way way, OneShot one_shot = {});

  bool step(GroupChannels& channels) override;
  std::vector<int> missing() const override;
  std::uint64_t bytes() const override { return bytes_; }
  bool by_messages() const override { return false; }

 private:
  bool advance();
  bool waits_for(int peer) const;

  Meeting& meeting_;
  const std::vector<Buffer> inputs_;
  const std::vector<Buffer> outputs_;
  const DirectShape shape_;
  const std::uint64_t bytes_;
  OneShot one_shot_;
  Staged staged_;
  bool met_ = false;
};

}  // namespace dtrun::collectives::cpu
