#include "dtrun/dtensor/move/strict_scope.h"

#include <algorithm>

#include "dtrun/base/error.h"
#include "move/argument_error.h"
#include "move/cause.h"
#include "move/legal_layouts.h"
#include "move/move_observer.h"

namespace dtrun::dtensor {
namespace {

std::string call_that_brings(const Placements& placements) {
  std::string text;
  for (const Placement& placement : placements) {
    text += text.empty() ? "" : ", ";
    if (placement.is_shard()) text += "Shard(" + std::to_string(placement.dim()) + ")";
    if (placement.is_replicate()) text += "Replicate()";
    if (placement.is_partial()) {
      text +=
          "Partial(ReduceOp::" + std::string(collectives::reduce_op_name(placement.reduce_op())) +
          ")";
    }
  }
  return "redistribute({" + text + "})";
}

[[noreturn]] void refuse_move(const Movement& move, const Cause& cause) {
  const bool is_numbered = cause.argument() >= 0;
  const std::string which =
      is_numbered ? "argument " + std::to_string(cause.argument() + 1) : "a tensor";
  std::string collectives;
  for (const Step& step : move.steps) {
    if (!is_collective(step.kind)) continue;
    collectives += std::string(collectives.empty() ? "" : ", ") + step_kind_name(step.kind) +
                   " along " + step.along(move.site.mesh.axis_names());
  }
  const LegalLayouts* const layouts = LegalLayouts::innermost();
  const std::string legal = layouts == nullptr ? "" : "; " + layouts->nearest();
  const ArgumentError refusal(base::ErrorCode::kInvalidArgument,
                              cause.to_string() + " would communicate, which nobody asked for",
                              which + ", " + std::string(tensors::dtype_short_name(move.dtype)) +
                                  tensors::shape_to_string(move.site.global_shape) +
                                  " that lies as " + move.steps.front().before.to_string() +
                                  ", has to become " + move.steps.back().after.to_string() + " (" +
                                  collectives + ")",
                              call_that_brings(move.steps.back().after.placements()) +
                                  " it before, or end the StrictScope" + legal);
  if (is_numbered) throw refusal;
  throw base::Error(refusal);
}

[[noreturn]] void refuse_blocks(const BlockMovement& move, const Cause& cause) {
  const std::string dim = std::to_string(move.dim);
  throw base::Error(
      base::ErrorCode::kInvalidArgument,
      cause.to_string() + " would communicate, which nobody asked for",
      "elements of " + move.spec.to_string() +
          " would come to other ranks (all_to_all), because dim " + dim + " is cut",
      "redistribute() it before so that no axis cuts dim " + dim + ", or end the StrictScope");
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
