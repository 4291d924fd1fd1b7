#include "dtrun/dtensor/move/strict_scope.h"

#include <algorithm>

#include "dtrun/base/error.h"
#include "move/argument_error.h"
#include "move/cause.h"
#include "move/legal_layouts.h"
#include "move/move_observer.h"

namespace dtrun::dtensor {
namespace {

std::string list_of(const auto& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "{" + text + "}";
}

std::string call_of(const Placement& placement) {
  if (placement.is_replicate()) return "Replicate()";
  if (placement.is_partial()) {
    return "Partial(ReduceOp::" + std::string(collectives::reduce_op_name(placement.reduce_op())) +
           ")";
  }
  return "Shard(" + std::to_string(placement.dim()) +
         (placement.is_ragged() ? ", " + list_of(placement.sizes()) : "") + ")";
}

/// The order of the axes that cut a dim, where it is not theirs.
std::string order_text(const Layout& layout) {
  std::string text;
  for (const auto& [dim, axes] : layout.order()) {
    if (std::ranges::is_sorted(axes)) continue;
    text += (text.empty() ? "" : ", ") + ("{" + std::to_string(dim)) + ", " + list_of(axes) + "}";
  }
  return text.empty() ? "" : ", {" + text + "}";
}

std::string call_that_brings(const Layout& layout) {
  std::string text;
  for (const Placement& placement : layout.placements())
    text += (text.empty() ? "" : ", ") + call_of(placement);
  return "redistribute({" + text + "}" + order_text(layout) + ")";
}

std::string what_it_takes() {
  const LegalLayouts* const layouts = LegalLayouts::outermost();
  return layouts == nullptr ? "" : "; " + layouts->nearest();
}

[[noreturn]] void refuse_move(const Movement& move, const Cause& cause) {
  const Cause* const operand = Cause::operand();
  const bool is_its_own = operand != nullptr && operand->op() == cause.op();
  const Layout &from = move.steps.front().before, &to = move.steps.back().after;
  std::string collectives;
  for (const Step& step : move.steps) {
    if (!is_collective(step.kind)) continue;
    collectives += std::string(collectives.empty() ? "" : ", ") + step_kind_name(step.kind) +
                   " along " + step.along(move.site.mesh.axis_names());
  }
  std::string legal = what_it_takes();
  if (legal.empty() && is_its_own)
    legal = "; " + cause.to_string() + " takes it as " + to.to_string();
  const ArgumentError refusal(
      base::ErrorCode::kInvalidArgument,
      cause.to_string() + " would communicate, which nobody asked for",
      (operand == nullptr ? "a tensor that it makes" : operand->argument_of(cause)) + ", " +
          std::string(tensors::dtype_short_name(move.dtype)) +
          tensors::shape_to_string(move.site.global_shape) + " that lies as " + from.to_string() +
          ", has to become " + to.to_string() + " (" + collectives + ")",
      (is_its_own ? call_that_brings(to) + " it before" : "redistribute() its operands before") +
          ", or end the StrictScope" + legal);
  if (operand != nullptr) throw refusal;
  throw base::Error(refusal);
}

[[noreturn]] void refuse_blocks(const BlockMovement& move, const Cause& cause) {
  const std::string dim = std::to_string(move.dim);
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    cause.to_string() + " would communicate, which nobody asked for",
                    "elements of " + move.spec.to_string() +
                        " would come to other ranks (all_to_all), because dim " + dim + " is cut",
                    "redistribute() it before so that no axis cuts dim " + dim +
                        ", or end the StrictScope" + what_it_takes());
}

class StrictObserver : public MoveObserver {
 public:
  bool on_move(const Movement& move) override {
    const Cause* const cause = Cause::outermost();
    const bool sends =
        std::ranges::any_of(move.steps, [](const Step& step) { return is_collective(step.kind); });
    if (sends && cause != nullptr && !cause->is_asked()) refuse_move(move, *cause);
    return true;
  }
  /// A move to another mesh is always asked for, so it is allowed.
  bool on_crossing(const CrossMovement&) override { return true; }
  bool on_blocks(const BlockMovement& move) override {
    const Cause* const cause = Cause::outermost();
    if (cause != nullptr && !cause->is_asked()) refuse_blocks(move, *cause);
    return true;
  }
};

}  // namespace

StrictScope::StrictScope() : observer_(std::make_unique<StrictObserver>()) {}
StrictScope::~StrictScope() = default;

}  // namespace dtrun::dtensor
