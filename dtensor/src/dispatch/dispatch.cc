#include "dispatch/dispatch.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "dispatch/choice.h"
#include "dispatch/choice_observer.h"
#include "dispatch/result_wish.h"
#include "dispatch/rule_probe.h"
#include "dtrun/base/error.h"
#include "mesh/mesh_body.h"
#include "mesh/number_list_hash.h"
#include "move/cause.h"
#include "move/legal_layouts.h"
#include "move/redistribute.h"
#include "plan/explanation_text.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// A one-element local tensor has its dtype and shape in the key, in place of a spec.
constexpr std::int64_t kLocal = 0;
constexpr int kFlagsOfNumber = 63;

struct CallPlan {
  std::vector<SpecBody*> inputs;         ///< as the kernel takes them
  std::vector<std::vector<Step>> steps;  ///< that bring them there
  SpecBody* output = nullptr;
  std::vector<bool> parts;  ///< which inputs a RuleProbe takes apart
};

class CallCache : public MeshAttachment {
 public:
  void forget_specs() override { plans_.clear(); }
  void put(CallKey key, std::shared_ptr<const CallPlan> plan) {
    // Bounds the cache: attributes such as the offset of a narrow may change in every call.
    if (plans_.size() >= kMost) plans_.clear();
    plans_.insert_or_assign(std::move(key), std::move(plan));
  }
  std::shared_ptr<const CallPlan> get(const CallKey& key) const {
    const auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : found->second;
  }

 private:
  static constexpr std::size_t kMost = 4096;
  std::unordered_map<CallKey, std::shared_ptr<const CallPlan>, NumberListHash> plans_;
};

/// The caller holds the mesh's mutex.
CallCache& cache_of(MeshBody& mesh) {
  if (!mesh.attachment) mesh.attachment = std::make_unique<CallCache>();
  return static_cast<CallCache&>(*mesh.attachment);
}

std::string described(const Placed& tensor) {
  return tensor.is_distributed()
             ? tensor.spec().to_string()
             : "a local tensor of shape " + tensors::shape_to_string(tensor.shape());
}

[[noreturn]] void refuse_mixture(std::string_view op, const Placed& local, const Placed& other) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of " + described(local) + " and " + described(other),
              "a local tensor joins a distributed one only where it has one element",
              "distribute_tensor(), or DTensor::from_local() with placements");
}

/// The mesh of the call; all distributed inputs are on it.
DeviceMesh mesh_of(std::string_view op, std::span<const Placed> inputs) {
  const Placed* first = nullptr;
  for (const Placed& input : inputs) {
    if (!input.is_distributed()) continue;
    if (first == nullptr) first = &input;
    if (input.spec().body()->mesh().body() == first->spec().body()->mesh().body()) continue;
    const DeviceMesh mesh = input.spec().mesh(), other = first->spec().mesh();
    if (mesh == other) continue;
    throw Error(ErrorCode::kInvalidArgument, std::string(op) + " of tensors on different meshes",
                described(*first) + " of " + other.to_string() + " and " + described(input) +
                    " of " + mesh.to_string(),
                "redistribute() one of them to the other's mesh");
  }
  for (const Placed& input : inputs) {
    if (!input.is_distributed() && input.local().numel() != 1) refuse_mixture(op, input, *first);
  }
  return first->spec().mesh();
}

/// The plan of one rule on a mesh of one axis.
sharding::Choice choice_of(const sharding::AxisRule& rule) {
  sharding::Choice choice;
  for (const Placement& input : rule.inputs) choice.inputs.emplace_back(Placements{input});
  choice.output = Layout({rule.output});
  return choice;
}

/// The wish of the caller, where it is one for this result. Ragged cuts are left alone.
const ResultWish* wish_for(const OpView& op, const DeviceMesh& mesh) {
  const ResultWish* const wish = op.weighed == Weighed::forward ? nullptr : ResultWish::innermost();
  if (wish != nullptr && wish->of == ResultWish::Of::module && op.weighed != Weighed::both_ways)
    return nullptr;
  if (wish == nullptr || wish->mesh.body() != mesh.body()) return nullptr;
  const auto is_ragged = [](const Placement& placement) { return placement.is_ragged(); };
  return std::ranges::any_of(wish->placements, is_ragged) ? nullptr : wish;
}

bool is_weighed_both_ways(const OpView& op, const DeviceMesh& mesh) {
  return op.weighed >= Weighed::there_and_back || wish_for(op, mesh) != nullptr;
}

/// Null where the result has no such dim.
std::optional<Layout> wished_layout(const ResultWish* wish, const Shape& shape) {
  if (wish == nullptr) return std::nullopt;
  Placements placements = wish->placements;
  const int dims = static_cast<int>(shape.size());
  for (Placement& placement : placements) {
    if (!placement.is_shard()) continue;
    const int dim = placement.dim() < 0 ? placement.dim() + dims : placement.dim();
    if (dim < 0 || dim >= dims) return std::nullopt;
    placement = Shard(dim);
  }
  return make_layout(shape, wish->mesh.shape(), placements);
}

/// A call as rules see it.
struct Question {
  std::vector<Meta> metas;      ///< of the inputs
  std::vector<Layout> layouts;  ///< as they lie
  Meta output;
  Rules rules;
  std::optional<sharding::AxisRule> forced = {};  ///< by a RuleProbe

  sharding::Choice cheapest(const DeviceMesh& mesh) const {
    return sharding::cheapest_choice(rules.operation(), rules.rules(), mesh.shape(), layouts,
                                     mesh.body()->links);
  }
};

Question question_of(const OpView& op, const DeviceMesh& mesh, std::span<const Placed> inputs) {
  std::vector<Meta> metas;
  std::vector<Layout> layouts;
  for (const Placed& input : inputs) {
    metas.push_back({input.shape(), input.dtype()});
    layouts.push_back(input.is_distributed() ? input.spec().layout()
                                             : Layout::whole(mesh.shape().size()));
  }
  const Meta output = op.meta(op.op, op.attributes, metas);
  Rules rules(metas, output);
  op.rules(op.op, op.attributes, rules, metas);
  rules.drop_uneven(mesh.shape());
  RuleProbe* const probe = RuleProbe::current();
  const auto forced = probe != nullptr ? probe->note(op.name, metas, rules.rules()) : std::nullopt;
  rules.keep_ragged(layouts);
  if (is_weighed_both_ways(op, mesh)) {
    std::vector<bool> gradients;
    for (const Placed& input : inputs) gradients.push_back(input.wants_gradient());
    rules.weigh_both_ways(gradients, op.saves.inputs,
                          wished_layout(wish_for(op, mesh), output.shape));
  }
  return {std::move(metas), std::move(layouts), output, std::move(rules), forced};
}

CallPlan make_plan(const OpView& op, const DeviceMesh& mesh, std::span<const Placed> inputs,
                   std::vector<Spec>& held) {
  const Question question = question_of(op, mesh, inputs);
  const auto& [metas, layouts, output, rules, forced] = question;
  const sharding::Choice choice = forced ? choice_of(*forced) : question.cheapest(mesh);
  if (ChoiceObserver* const observer = ChoiceObserver::innermost()) {
    observer->on_choice({op.name, mesh, rules, layouts, choice, output});
  }
  CallPlan plan;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool made_of_parts = forced && forced->inputs[i].is_partial();
    plan.parts.push_back(made_of_parts);
    plan.steps.push_back(plan_on({mesh, metas[i].shape}, layouts[i],
                                 made_of_parts ? Layout::whole(1) : choice.inputs[i],
                                 metas[i].dtype));
    held.push_back(make_spec(mesh, choice.inputs[i], metas[i].shape, metas[i].dtype));
    plan.inputs.push_back(held.back().body());
  }
  held.push_back(make_spec(mesh, choice.output, output.shape, output.dtype));
  plan.output = held.back().body();
  return plan;
}

/// A way that the operands may lie, and what the call then costs.
struct LegalWay {
  std::string operands;
  double seconds;
};

/// No operand is worth making Partial of, unless others are cut: what is added to their product.
bool makes_partial(const sharding::AxisRule& rule, const std::vector<Layout>& layouts,
                   std::size_t axis) {
  if (std::ranges::any_of(rule.inputs, [](const Placement& p) { return p.is_shard(); }))
    return false;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (rule.inputs[i].is_partial() && layouts[i][axis] != rule.inputs[i]) return true;
  }
  return false;
}

/// That of the choice, and those that take another rule along one axis; the cheapest first.
std::vector<LegalWay> legal_ways(const Question& question, const DeviceMesh& mesh) {
  const std::vector<sharding::AxisRule>& rules = question.rules.rules();
  const std::vector<std::size_t> taken = sharding::rules_of(question.cheapest(mesh), rules);
  std::vector<LegalWay> ways;
  const auto add = [&](const std::vector<std::size_t>& picked) {
    const PlanCost cost =
        sharding::cost_of_rules(question.rules.operation(), rules, picked, mesh.shape(),
                                question.layouts, mesh.body()->links);
    if (std::isinf(cost.seconds)) return;
    std::string text;
    for (std::size_t i = 0; i < question.layouts.size(); ++i) {
      Placements placements;
      for (const std::size_t rule : picked) placements.push_back(rules[rule].inputs[i]);
      text += (text.empty() ? "" : " and ") + placements_to_string(placements);
    }
    ways.push_back({std::move(text), cost.seconds});
  };
  add(taken);
  for (std::size_t axis = 0; axis < taken.size(); ++axis) {
    std::vector<std::size_t> picked = taken;
    for (std::size_t rule = 0; rule < rules.size(); ++rule) {
      picked[axis] = rule;
      if (rule != taken[axis] && !makes_partial(rules[rule], question.layouts, axis)) add(picked);
    }
  }
  std::ranges::stable_sort(ways, {}, &LegalWay::seconds);
  return ways;
}

class LegalLayoutsOfCall : public LegalLayouts {
 public:
  LegalLayoutsOfCall(const OpView& op, std::span<const Placed> inputs) : op_(op), inputs_(inputs) {}
  std::string nearest() const override { return nearest_layouts(op_, inputs_); }

 private:
  const OpView& op_;
  const std::span<const Placed> inputs_;
};

/// What layouts are chosen by, besides specs.
void append_weights(CallKey& key, const OpView& op, const DeviceMesh& mesh,
                    std::span<const Placed> inputs) {
  if (op.weighed == Weighed::forward) return;
  const ResultWish* const wish = wish_for(op, mesh);
  // A bit for the wish and one for each operand that wants a gradient.
  std::uint64_t flags = wish == nullptr ? 0 : 1;
  int count = 1;
  for (const Placed& input : inputs) {
    if (count == kFlagsOfNumber) {
      key.push_back(static_cast<std::int64_t>(flags));
      flags = 0;
      count = 0;
    }
    flags = flags * 2 + (input.wants_gradient() ? 1 : 0);
    ++count;
  }
  key.push_back(static_cast<std::int64_t>(flags));
  if (wish == nullptr) return;
  for (const Placement& placement : wish->placements) {
    key.push_back(static_cast<std::int64_t>(placement.kind()));
    key.push_back(placement.is_shard() ? placement.dim() : 0);
    key.push_back(placement.is_partial() ? static_cast<std::int64_t>(placement.reduce_op()) : 0);
  }
}

/// Specs of an equal mesh may be freed, and their addresses used again, while this mesh's cache
/// still has them.
bool all_of(const MeshBody& mesh, std::span<const Placed> inputs) {
  for (const Placed& input : inputs) {
    if (input.is_distributed() && input.spec().body()->mesh().body().get() != &mesh) return false;
  }
  return true;
}

void append_inputs(CallKey& key, const OpView& op, std::span<const Placed> inputs) {
  key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(op.op)));
  for (const Placed& input : inputs) {
    if (input.is_distributed()) {
      const SpecBody* const body = input.spec().body();
      key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(body)));
    } else {
      key.push_back(kLocal);
      key.push_back(static_cast<std::int64_t>(input.dtype()));
      key.push_back(input.local().dim());
    }
  }
}

}  // namespace

constinit thread_local ChoiceObserver* ChoiceObserver::innermost_ = nullptr;

std::string nearest_layouts(const OpView& op, std::span<const Placed> inputs) {
  constexpr std::size_t kMost = 3;
  const DeviceMesh mesh = mesh_of(op.name, inputs);
  std::vector<LegalWay> ways = legal_ways(question_of(op, mesh, inputs), mesh);
  if (ways.size() > kMost) ways.resize(kMost);
  std::string text;
  for (const LegalWay& way : ways)
    text += (text.empty() ? " takes " : ", ") + way.operands + " for " + duration_text(way.seconds);
  return std::string(op.name) + text;
}

void refuse_undefined(std::string_view op, std::size_t argument) {
  refuse_undefined(op, "argument " + std::to_string(argument + 1));
}
void refuse_undefined(std::string_view op, const std::string& which) {
  throw Error(
      ErrorCode::kInvalidArgument, std::string(op) + " was given an undefined tensor as " + which,
      "nothing was assigned to it yet, or it is a grad() before backward()", "ask defined() first");
}

PreparedCall prepare_call(const OpView& op, std::span<const Placed> inputs, CallKey key) {
  const DeviceMesh mesh = mesh_of(op.name, inputs);
  MeshBody& body = *mesh.body();
  const bool cached = all_of(body, inputs) && RuleProbe::current() == nullptr &&
                      ChoiceObserver::innermost() == nullptr;
  PreparedCall call;
  call.locals.reserve(inputs.size());
  call.inputs.reserve(inputs.size() + 1);
  std::shared_ptr<const CallPlan> plan;
  if (cached) {
    append_inputs(key, op, inputs);
    append_weights(key, op, mesh, inputs);
    const std::lock_guard lock(body.mutex);
    plan = cache_of(body).get(key);
    if (plan) {
      // Nothing is swept while the lock is held.
      for (SpecBody* spec : plan->inputs) call.inputs.emplace_back(spec->share_locked());
      call.output = Spec(plan->output->share_locked());
    }
  }
  if (!plan) {
    plan = std::make_shared<const CallPlan>(make_plan(op, mesh, inputs, call.inputs));
    call.output = std::move(call.inputs.back());
    call.inputs.pop_back();
    if (cached) {
      const std::lock_guard lock(body.mutex);
      cache_of(body).put(std::move(key), plan);
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (plan->steps[i].empty()) {
      call.locals.push_back(inputs[i].local());
    } else {
      const Cause cause(op.name, i);
      const LegalLayoutsOfCall legal(op, inputs);
      call.locals.push_back(run_plan({mesh, call.inputs[i].shape(), inputs[i].spec().body()},
                                     plan->steps[i], inputs[i].local()));
    }
    if (plan->parts[i] && mesh.has_this_rank()) {
      call.locals[i] = part_of(call.locals[i], call.inputs[i].placements()[0].reduce_op(),
                               mesh.coordinate()[0], mesh.shape()[0], i);
    }
  }
  return call;
}

}  // namespace dtrun::dtensor
