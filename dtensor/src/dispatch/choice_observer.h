// ChoiceObserver: while it lives, it is told how the rules of each operator of its thread were
// chosen, and plans are not cached. Explanations are made with it.
#pragma once

#include <string_view>

#include "dispatch/choice.h"
#include "dispatch/rules.h"
#include "dtrun/dtensor/mesh/device_mesh.h"

namespace dtrun::dtensor {

struct ChoiceMade {
  std::string_view op;
  const DeviceMesh& mesh;
  const Rules& rules;
  const std::vector<Layout>& layouts;  ///< what the operands are
  const sharding::Choice& choice;
  const Meta& output;
};

class ChoiceObserver {
 public:
  ChoiceObserver() : outer_(innermost_) { innermost_ = this; }
  virtual ~ChoiceObserver() { innermost_ = outer_; }
  ChoiceObserver(const ChoiceObserver&) = delete;
  ChoiceObserver& operator=(const ChoiceObserver&) = delete;

  virtual void on_choice(const ChoiceMade& made) = 0;
  /// The observer of this thread; usually null.
  static ChoiceObserver* innermost() { return innermost_; }

 private:
  static constinit thread_local ChoiceObserver* innermost_;
  ChoiceObserver* const outer_;
};

}  // namespace dtrun::dtensor
