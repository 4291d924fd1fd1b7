#include "parallel/shard_unit.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

namespace {

/// What the whole parameters of one forward come from: its backward averages their gradients into
/// the parts. It has no edges: the leaves are filled when the averages are there.
class UnshardNode : public Node {
 public:
  UnshardNode(std::shared_ptr<ShardRun> run, std::shared_ptr<ShardUnit> unit, Shown purpose)
      : Node(0),
        run_(std::move(run)),
        unit_(std::move(unit)),
        purpose_(purpose),
        depth_(backward_depth()) {
    sequence_ = next_sequence();
  }
  std::string_view name() const override { return "fully_shard"; }
  bool fills_other_leaves() const override { return true; }
  void release() override {}
  std::span<const Edge> edges() const override { return {}; }

  Tensors backward(std::span<const Tensor> gradients) override {
    if (Graph::is_on()) {
      throw Error(ErrorCode::kUnavailable, "create_graph through fully_shard()",
                  "gradients of gradients are not averaged", "backward() without create_graph");
    }
    // A part of the unit that is recomputed brings its own gradients, others may follow.
    if (purpose_ == Shown::recomputed || backward_depth() > depth_ + 1) {
      add(gradients);
      return {};
    }
    // The buffer that is sent takes the place of the whole parameters.
    const std::vector<Tensors> to_average = by_block(gradients);
    run_->after_backward(*unit_);
    run_->reduce(*unit_, to_average);
    return {};
  }

 private:
  /// None lies in the whole parameters' memory: a function may give a parameter as a gradient.
  std::vector<Tensors> by_block(std::span<const Tensor> gradients) const {
    std::vector<Tensors> all;
    std::size_t next = 0;
    for (const ShardedBlock& block : unit_->blocks()) {
      Tensors& its = all.emplace_back(block.parameters().size());
      for (Tensor& gradient : its) {
        if (next < gradients.size()) gradient = gradients[next];
        if (gradient.defined() && unit_->holds(gradient)) gradient = gradient.clone();
        ++next;
      }
    }
    return all;
  }
  void add(std::span<const Tensor> gradients) {
    if (added_.empty()) {
      run_->at_end([self = base::Counted<UnshardNode>::share(this)] {
        self->run_->reduce(*self->unit_, self->by_block(std::exchange(self->added_, {})));
      });
    }
    added_.resize(std::max(added_.size(), gradients.size()));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      added_[i] = added_[i].defined() ? added_[i].add(gradients[i]) : gradients[i].clone();
    }
  }

  const std::shared_ptr<ShardRun> run_;
  const std::shared_ptr<ShardUnit> unit_;
  const Shown purpose_;
  const int depth_;  ///< of the backward passes in which the forward ran
  Tensors added_;
};

}  // namespace

Tensors ShardUnit::sharded(std::size_t block) const {
  if (is_shown()) return hidden_[block];
  Tensors all;
  for (const ShardedParameter& each : blocks_[block].parameters()) all.push_back(each.parameter);
  return all;
}

void ShardUnit::start_gather() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].start_gather(sharded(i));
}

void ShardUnit::gather() {
  start_gather();
  for (ShardedBlock& block : blocks_) block.finish_gather();
}

void ShardUnit::give_back() {
  for (ShardedBlock& block : blocks_) block.give_back();
}

bool ShardUnit::holds(const Tensor& tensor) const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [&](const ShardedBlock& block) { return block.holds(tensor.local()); });
}

void ShardUnit::show(ShardRun& run, Shown purpose) {
  if (shown_++ > 0) return;
  base::Counted<Node> node;
  if (Graph::is_on()) {
    node =
        base::Counted<Node>(new UnshardNode(run.shared_from_this(), shared_from_this(), purpose));
  }
  hidden_.clear();
  std::uint32_t output = 0;
  for (const ShardedBlock& block : blocks_) {
    Tensors& hidden = hidden_.emplace_back();
    for (std::size_t i = 0; i < block.parameters().size(); ++i, ++output) {
      const Tensor& parameter = block.parameters()[i].parameter;
      const Tensor whole = block.whole(i);
      if (node && parameter.requires_grad()) Graph::set_producer(whole, node, output);
      Graph::exchange(parameter, whole);
      hidden.push_back(whole);
    }
  }
}

void ShardUnit::hide() {
  DT_CHECK(shown_ > 0);
  if (--shown_ > 0) return;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    for (std::size_t i = 0; i < hidden_[b].size(); ++i)
      Graph::exchange(blocks_[b].parameters()[i].parameter, hidden_[b][i]);
  }
  hidden_.clear();
}

// What was gathered ahead and never used, or what a forward without backward left, would be stale
// after the optimizer's step.
void ShardRun::before_forward(ShardUnit& unit) {
  if (calls_ == 0 && backward_depth() == 0) {
    for (const auto& each : units_) each->give_back();
  }
  if (!has_order_ && std::find(order_.begin(), order_.end(), &unit) == order_.end())
    order_.push_back(&unit);
  unit.gather();
  if (has_order_ && backward_depth() == 0) prefetch(unit, Direction::on);
  unit.show(*this, Shown::forward);
  ++calls_;
}

void ShardRun::after_forward(ShardUnit& unit) {
  --calls_;
  unit.hide();
  if (calls_ == 0 && backward_depth() == 0) has_order_ = true;
  const bool goes_on_to_backward = backward_depth() > 0 || unit.is_shown();
  // Backward would gather the last one again at once.
  const bool is_last = has_order_ && order_.back() == &unit;
  const bool is_kept = is_grad_enabled() && (is_last || !unit.gives_back_after_forward());
  if (!goes_on_to_backward && !is_kept) unit.give_back();
}

void ShardRun::prefetch(const ShardUnit& unit, Direction direction) {
  const auto here = std::find(order_.begin(), order_.end(), &unit);
  if (here == order_.end()) return;
  auto next = here - order_.begin();
  for (int i = 0; i < prefetch_; ++i) {
    next += static_cast<int>(direction);
    if (next < 0 || next >= static_cast<std::ptrdiff_t>(order_.size())) return;
    order_[static_cast<std::size_t>(next)]->start_gather();
  }
}

void ShardRun::before_backward(ShardUnit& unit) {
  join_pass();
  if (prefetch_ == 0) finish_scatters();
  unit.gather();
  prefetch(unit, Direction::back);
  const bool is_shown = std::find(shown_in_backward_.begin(), shown_in_backward_.end(), &unit) !=
                        shown_in_backward_.end();
  if (is_shown) return;
  // What is recomputed within the unit finds whole parameters.
  const GradMode recorded(true);
  unit.show(*this, Shown::recomputed);
  shown_in_backward_.push_back(&unit);
}

void ShardRun::after_backward(ShardUnit& unit) {
  const auto shown = std::find(shown_in_backward_.begin(), shown_in_backward_.end(), &unit);
  if (shown != shown_in_backward_.end()) {
    shown_in_backward_.erase(shown);
    unit.hide();
  }
  if (!unit.is_shown()) unit.give_back();
}

void ShardRun::join_pass() {
  if (std::exchange(in_pass_, true)) return;
  at_backward_end([self = shared_from_this()](BackwardEnd end) { self->end_pass(end); });
}

void ShardRun::at_end(std::function<void()> flush) {
  join_pass();
  flushes_.push_back(std::move(flush));
}

void ShardRun::finish_scatters() {
  for (Pending& pending : pending_) {
    if (!std::exchange(pending.is_scattered, true))
      pending.unit->blocks()[pending.block].start_replicas(pending.reduction);
  }
}

// At most one unit's gradients travel beside what is computed: each has its own copy of them.
void ShardRun::reduce(ShardUnit& unit, const std::vector<Tensors>& gradients) {
  join_pass();
  finish_scatters();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const ShardedBlock& block = unit.blocks()[i];
    if (tensors::is_floating_point(block.whole_dtype()))
      pending_.push_back({&unit, i, block.start_reduce(gradients[i])});
  }
}

void ShardRun::end_pass(BackwardEnd end) {
  // Also where a communication fails: the next pass begins anew.
  const struct Reset {
    ShardRun& run;
    ~Reset() {
      run.in_pass_ = false;
      run.flushes_.clear();
      run.pending_.clear();
    }
  } reset{*this};
  for (ShardUnit* const unit : std::exchange(shown_in_backward_, {})) {
    unit->hide();
    if (!unit->is_shown()) unit->give_back();
  }
  if (end == BackwardEnd::failed) return;
  for (const auto& flush : std::exchange(flushes_, {})) flush();
  finish_scatters();
  for (Pending& pending : pending_) {
    deliver(pending);
    // The leaves have copies.
    pending.reduction = {};
  }
}

void ShardRun::deliver(Pending& pending) {
  const Tensors sharded = pending.unit->sharded(pending.block);
  Tensors gradients =
      pending.unit->blocks()[pending.block].finish_reduce(pending.reduction, sharded);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    Leaf* const leaf = Graph::leaf(sharded[i]);
    if (leaf == nullptr || !gradients[i].defined()) continue;
    // The engine calls them for gradients that come to a leaf by an edge.
    if (const auto* const hooks = leaf->find_hooks(0)) {
      const std::vector<GradientHook> all = *hooks;
      for (const GradientHook& hook : all) {
        const Tensor changed = hook(gradients[i]);
        if (changed.defined()) gradients[i] = changed;
      }
    }
    leaf->backward({&gradients[i], 1});
  }
}

}  // namespace dtrun::dtensor
