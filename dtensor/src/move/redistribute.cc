// Every step except an exchange is one collective on the group of its axis. The ranks of a line
// hold chunks of one box, so each rank knows what every other rank sends.
#include "move/redistribute.h"

#include <mutex>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "mesh/mesh_body.h"
#include "move/asked_spec.h"
#include "move/cause.h"
#include "move/exchange.h"
#include "move/move_log.h"
#include "move/move_observer.h"
#include "move/neutral.h"

namespace dtrun::dtensor {
namespace {

using tensors::DType;
using tensors::LocalTensor;
using tensors::Shape;

bool is_whole(const Layout& layout) {
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (layout.is_shard(axis)) return false;
  }
  return true;
}

LocalTensor empty_like(const LocalTensor& tensor, const Shape& shape) {
  return tensors::empty(shape, {.dtype = tensor.dtype(), .device = tensor.device()});
}

/// @param group of the step's axis
/// @param result of its shape after the step
collectives::Work start_direct(const DirectStep& step, const ProcessGroup& group,
                               const LocalTensor& result, const LocalTensor& local,
                               const collectives::CallOptions& options,
                               const base::CallSite& call) {
  if (step.kind == StepKind::all_gather)
    return group.all_gather_into_tensor(result, local, options, call);
  return step.kind == StepKind::all_reduce
             ? group.all_reduce_into_tensor(result, local, step.op, options, call)
             : group.reduce_scatter_tensor(result, local, step.op, options, call);
}

class StepRun {
 public:
  StepRun(const PlanSite& site, const Step& step, const LocalTensor& local,
          const collectives::CallOptions& options, const base::CallSite& call)
      : site_(site),
        step_(step),
        options_(options),
        call_(call),
        axis_(static_cast<std::size_t>(step.axis)),
        group_(site.mesh.group(step.axis)),
        local_(local) {}

  StartedStage start() {
    LocalTensor result = run();
    return {std::move(result), std::move(work_)};
  }

 private:
  LocalTensor run() {
    switch (step_.kind) {
      case StepKind::all_gather:
        return all_gather();
      case StepKind::all_to_all:
        return all_to_all();
      case StepKind::all_reduce:
        return all_reduce();
      case StepKind::reduce_scatter:
        return reduce_scatter();
      case StepKind::local_chunk:
        // A copy, so that the rest of the memory can be freed.
        return chunk(local_, step_.after, group_.rank()).clone();
      case StepKind::to_partial:
        return to_partial();
      case StepKind::exchange:
      case StepKind::relabel:
        break;
    }
    return local_;
  }

  LocalTensor all_gather() {
    LocalTensor whole = empty_like(local_, shape_after());
    work_ = are_rows(whole, step_.before)
                ? start_direct(whole)
                : group_.all_gather(chunks(whole, step_.before), local_, options_, call_);
    return whole;
  }

  LocalTensor all_to_all() {
    LocalTensor result = empty_like(local_, shape_after());
    work_ = are_rows(result, step_.before) && are_equal(local_, step_.after)
                ? group_.all_to_all_single(result, packed_for(result), {}, {}, options_, call_)
                : group_.all_to_all(chunks(result, step_.before), chunks(local_, step_.after),
                                    options_, call_);
    return result;
  }

  /// The chunks of the local part one after the other, in one copy: to send them from where they
  /// lie takes a view of each, which costs more while they are small and gains nothing beyond.
  LocalTensor packed_for(const LocalTensor& result) const {
    const auto dim = static_cast<std::size_t>(step_.after.dim(axis_));
    Shape shape = local_.shape();
    tensors::Strides strides = local_.strides();
    shape[dim] /= group_.size();
    strides.insert(strides.begin(), strides[dim] * shape[dim]);
    shape.insert(shape.begin(), group_.size());
    LocalTensor packed = empty_like(local_, result.shape());
    const LocalTensor by_rank(packed.storage(), packed.dtype(), shape,
                              tensors::contiguous_strides(shape), packed.offset());
    by_rank.copy_({local_.storage(), local_.dtype(), shape, strides, local_.offset()});
    return packed;
  }

  LocalTensor all_reduce() {
    LocalTensor result = empty_like(local_, local_.shape());
    work_ = start_direct(result, step_.before.reduce_op(axis_));
    return result;
  }

  LocalTensor reduce_scatter() {
    LocalTensor result = empty_like(local_, shape_after());
    const ReduceOp op = step_.before.reduce_op(axis_);
    work_ = are_rows(local_, step_.after)
                ? start_direct(result, op)
                : group_.reduce_scatter(result, chunks(local_, step_.after), op, options_, call_);
    return result;
  }

  collectives::Work start_direct(const LocalTensor& result, ReduceOp op = ReduceOp::sum) const {
    return dtensor::start_direct({step_.kind, step_.axis, op}, group_, result, local_, options_,
                                 call_);
  }

  LocalTensor to_partial() {
    const ReduceOp op = step_.after.reduce_op(axis_);
    if (step_.before.is_replicate(axis_)) {
      // A copy, as on the other ranks: otherwise a later write would change the source on some
      // ranks only.
      if (group_.rank() == 0 || op == ReduceOp::avg) return local_.clone();
      return neutral_like(local_, shape_after(), op);
    }
    LocalTensor result = neutral_like(local_, shape_after(), op);
    chunk(result, step_.before, group_.rank()).copy_(local_);
    return result;
  }

  /// Of this rank's part.
  const Shape& shape_after() {
    if (is_whole(step_.after)) return site_.global_shape;
    // Of the last step, mostly the only one, the part is known.
    if (site_.to != nullptr && site_.to->layout == step_.after) return site_.to->box.shape;
    const DeviceMesh& mesh = site_.mesh;
    computed_ = local_box(site_.global_shape, mesh.shape(), mesh.coordinate(), step_.after).shape;
    return computed_;
  }

  /// Whether all ranks' chunks of `tensor` under `layout` are of one size.
  bool are_equal(const LocalTensor& tensor, const Layout& layout) const {
    return !layout.is_ragged(axis_) && tensor.size(layout.dim(axis_)) % group_.size() == 0;
  }
  /// Whether they also are rows: the collective then takes the tensor, without a view of each.
  bool are_rows(const LocalTensor& tensor, const Layout& layout) const {
    return layout.dim(axis_) == 0 && are_equal(tensor, layout);
  }

  /// The part of `tensor`, as a view, that a rank of the axis holds under `layout`.
  LocalTensor chunk(const LocalTensor& tensor, const Layout& layout, int rank) const {
    const int dim = layout.dim(axis_);
    const Chunk chunk = layout.chunk(axis_, tensor.size(dim), group_.size(), rank);
    return tensor.narrow(dim, chunk.offset, chunk.size);
  }
  std::vector<LocalTensor> chunks(const LocalTensor& tensor, const Layout& layout) const {
    std::vector<LocalTensor> chunks;
    chunks.reserve(static_cast<std::size_t>(group_.size()));
    for (int i = 0; i < group_.size(); ++i) chunks.push_back(chunk(tensor, layout, i));
    return chunks;
  }

  const PlanSite& site_;
  const Step& step_;
  const collectives::CallOptions& options_;
  const base::CallSite& call_;
  const std::size_t axis_;
  const ProcessGroup& group_;
  const LocalTensor& local_;
  Shape computed_;  ///< where no spec has it
  collectives::Work work_;
};

StartedStage start_step(const PlanSite& site, const Step& step, const LocalTensor& local,
                        const collectives::CallOptions& options, const base::CallSite& call) {
  if (step.kind == StepKind::exchange) return start_exchange(site, step, local, options, call);
  return StepRun(site, step, local, options, call).start();
}

/// Another rank called something else: this one says in words what it called.
void tell_own_side(const PlanSite& site, const std::vector<Step>& steps, tensors::DType dtype,
                   const base::Error& error) {
  if (error.code() != base::ErrorCode::kDisagreement) return;
  const Cause* const cause = Cause::outermost();
  const std::string own =
      "this rank, " + std::to_string(site.mesh.rank()) + " of the mesh, was in " +
      (cause == nullptr ? "a redistribution" : cause->to_string()) + " of " +
      std::string(tensors::dtype_short_name(dtype)) + tensors::shape_to_string(site.global_shape) +
      " from " + steps.front().before.to_string() + " to " + steps.back().after.to_string();
  if (site.spec == nullptr || !site.spec->has_guessed_shape) {
    throw base::Error(error.code(), error.summary(), error.why() + "; " + own, error.remedy());
  }
  throw base::Error(error.code(), error.summary(),
                    error.why() + "; " + own +
                        "; from_local was not given the global shape and took it that all " +
                        "ranks have parts of equal shape, as this rank's " +
                        tensors::shape_to_string(site.spec->box.shape),
                    "where the parts differ, give from_local the shape, {.shape = ..., .has_shape "
                    "= true}, or each "
                    "rank's size: Shard(dim, {sizes})");
}

LocalTensor zeros_of_plan(const PlanSite& site, const std::vector<Step>& steps,
                          const LocalTensor& local) {
  const Box box =
      local_box(site.global_shape, site.mesh.shape(), site.mesh.coordinate(), steps.back().after);
  return tensors::zeros(box.shape, {.dtype = local.dtype(), .device = local.device()});
}

}  // namespace

LocalTensor run_plan(const PlanSite& site, const std::vector<Step>& steps,
                     const LocalTensor& local) {
  if (steps.empty()) return local;
  const tensors::DType dtype = local.dtype();
  if (!site.mesh.has_this_rank()) [[unlikely]]
    return local;
  if (MoveObserver::any() && !MoveObserver::allow({site, steps, dtype})) [[unlikely]]
    return zeros_of_plan(site, steps, local);
  log_move({site, steps, dtype});
  const base::CallSite call = Cause::site_of_call();
  try {
    LocalTensor moved = start_step(site, steps.front(), local, {}, call).result;
    for (std::size_t i = 1; i < steps.size(); ++i) {
      LocalTensor next = start_step(site, steps[i], moved, {}, call).result;
      moved = std::move(next);
    }
    return moved;
  } catch (const base::Error& error) {
    tell_own_side(site, steps, dtype, error);
    throw;
  }
}

std::vector<Step> plan_on(const PlanSite& site, const Layout& from, const Layout& to,
                          tensors::DType dtype) {
  const CostModel costs{.item_bytes = static_cast<std::int64_t>(tensors::item_size(dtype)),
                        .links = site.mesh.body()->links};
  return plan_redistribute(site.global_shape, site.mesh.shape(), from, to, costs);
}

/// The mesh remembers it.
PlanTable::Plan plan_between(const PlanSite& site, const Spec& from, const Spec& to) {
  MeshBody& body = *site.mesh.body();
  PlanTable::Plan plan;
  // A spec of an equal mesh may be freed while this mesh's table still refers to it.
  const bool is_remembered = to.body()->mesh().body().get() == &body;
  if (is_remembered) {
    const std::lock_guard lock(body.mutex);
    plan = body.plans.get(from.body(), to.body());
  }
  if (!plan) {
    plan = std::make_shared<const std::vector<Step>>(
        plan_on(site, from.layout(), to.layout(), from.dtype()));
    const std::lock_guard lock(body.mutex);
    if (is_remembered) body.plans.put(from.body(), to.body(), plan);
  }
  return plan;
}

AskedMove asked_move(std::string_view call, const base::CallSite& site, const Spec& from,
                     const Placements& placements, const ShardOrder& order) {
  const DeviceMesh& mesh = from.body()->mesh();
  MeshBody& body = *mesh.body();
  if (order.empty()) {
    const std::lock_guard lock(body.mutex);
    const PlanTable::Asked* const known = body.plans.asked(from.body(), placements);
    if (known != nullptr) return {Spec(known->to->share_locked()), known->plan};
  }
  Spec to = asked_spec(call, site, mesh, placements, from.shape(), from.dtype(), order);
  PlanTable::Plan plan = plan_between({mesh, from.shape(), from.body()}, from, to);
  const std::lock_guard lock(body.mutex);
  if (order.empty()) body.plans.note_asked(from.body(), placements, {to.body(), plan, placements});
  return {std::move(to), std::move(plan)};
}

LocalTensor pattern_of(const Shape& shape, DType dtype) {
  const std::int64_t count = tensors::numel(shape);
  const std::size_t bytes = static_cast<std::size_t>(count) * tensors::item_size(dtype);
  return LocalTensor::dense(tensors::Storage::wrap(nullptr, bytes, tensors::kCpu, {}), dtype, shape,
                            count);
}

AskedMove with_direct_step(const Spec& from, AskedMove move) {
  move.direct.reset();
  if (move.plan->size() != 1 || from.is_outside()) return move;
  const Step& step = move.plan->front();
  const auto axis = static_cast<std::size_t>(step.axis);
  const int ranks = from.body()->mesh().size(step.axis);
  const auto are_rows = [&](const Layout& layout, const Spec& whole) {
    return layout.dim(axis) == 0 && !layout.is_ragged(axis) &&
           whole.local_box().shape[0] % ranks == 0;
  };
  const bool reduces = step.kind == StepKind::all_reduce ||
                       (step.kind == StepKind::reduce_scatter && are_rows(step.after, from));
  if (!reduces && (step.kind != StepKind::all_gather || !are_rows(step.before, move.to)))
    return move;
  const ReduceOp op = reduces ? step.before.reduce_op(axis) : ReduceOp::sum;
  move.direct = {{step.kind, step.axis, op}, pattern_of(move.to.local_box().shape, from.dtype())};
  return move;
}

LocalTensor run_move(const Spec& from, const AskedMove& move, const LocalTensor& local) {
  const PlanSite site{from.body()->mesh(), from.shape(), from.body(), move.to.body()};
  if (!move.direct || MoveObserver::any()) return run_plan(site, *move.plan, local);
  log_move({site, *move.plan, local.dtype()});
  try {
    const LocalTensor& pattern = move.direct->pattern;
    LocalTensor result =
        pattern.over(tensors::Storage::allocate(pattern.storage()->bytes(), local.device()));
    MeshLine& line = *site.mesh.body()->lines[static_cast<std::size_t>(move.direct->axis)];
    start_direct(*move.direct, line.group(), result, local, {}, Cause::site_of_call());
    return result;
  } catch (const base::Error& error) {
    tell_own_side(site, *move.plan, local.dtype(), error);
    throw;
  }
}

LocalTensor redistribute_local(const Spec& from, const Spec& to, const LocalTensor& local) {
  const PlanSite site{from.body()->mesh(), from.shape(), from.body(), to.body()};
  return run_plan(site, *plan_between(site, from, to), local);
}

PendingMove::Stages stages_of(const Spec& spec, const PlanTable::Plan& plan) {
  PendingMove::Stages stages;
  if (spec.is_outside()) return stages;
  for (const Step& step : *plan) {
    const auto start = [spec, plan, &step, call = Cause::site_of_call()](
                           const LocalTensor& local, const collectives::CallOptions& options) {
      const DeviceMesh mesh = spec.mesh();
      return start_step({mesh, spec.shape(), spec.body()}, step, local, options, call);
    };
    stages.push_back({is_collective(step.kind), start});
  }
  return stages;
}

PendingMove start_redistribute(const Spec& from, const Spec& to, const LocalTensor& local) {
  const DeviceMesh mesh = from.mesh();
  const PlanSite site{mesh, from.shape(), from.body()};
  const PlanTable::Plan plan = plan_between(site, from, to);
  const Movement move{site, *plan, from.dtype()};
  if (plan->empty() || from.is_outside()) return {{}, local};
  if (MoveObserver::any() && !MoveObserver::allow(move))
    return {{}, zeros_of_plan(site, *plan, local)};
  log_move(move);
  const auto tell = [from, plan](const base::Error& error) {
    const DeviceMesh on = from.mesh();
    tell_own_side({on, from.shape(), from.body()}, *plan, from.dtype(), error);
  };
  return {stages_of(from, plan), local, {.async = true}, tell};
}

LocalTensor redistribute_local(const PlanSite& site, const Layout& from, const Layout& to,
                               const LocalTensor& local) {
  return run_plan(site, plan_on(site, from, to, local.dtype()), local);
}

}  // namespace dtrun::dtensor
