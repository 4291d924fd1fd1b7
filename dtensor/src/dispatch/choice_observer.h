// ChoiceObserver: while one stands, its thread tells it how each operator's rules were chosen; no
// plan of a call is remembered. What explanations are made of.
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
  /// Of this thread; null as a rule.
  static ChoiceObserver* innermost() { return innermost_; }

 private:
  static constinit thread_local ChoiceObserver* innermost_;
  ChoiceObserver* const outer_;
};

}  // namespace dtrun::dtensor
