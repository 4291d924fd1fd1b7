#include "dtrun/dtensor/ops/check_rule.h"

#include <algorithm>
#include <cmath>

#include "dispatch/rule_probe.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/reduce_op.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/creation.h"
#include "move/cause.h"

namespace dtrun::dtensor {
namespace {

using Function = std::function<Tensor(const Tensors&)>;

std::string text_of(const sharding::AxisRule& rule) {
  std::string text;
  for (const Placement& input : rule.inputs) {
    text += (text.empty() ? "" : ", ") + input.to_string();
  }
  return text + " -> " + rule.output.to_string();
}

std::string difference(const Tensor& found, const Tensor& whole, double tolerance) {
  if (found.shape() != whole.shape() || found.dtype() != whole.dtype()) {
    return std::string(tensors::dtype_short_name(found.dtype())) +
           tensors::shape_to_string(found.shape()) + ", not " +
           std::string(tensors::dtype_short_name(whole.dtype())) +
           tensors::shape_to_string(whole.shape());
  }
  const std::vector<double> got = found.to_vector(), right = whole.to_vector();
  double greatest = 0;
  for (const double value : right) {
    if (std::isfinite(value)) greatest = std::max(greatest, std::abs(value));
  }
  for (std::size_t i = 0; i < right.size(); ++i) {
    const bool equal = got[i] == right[i] || (std::isnan(got[i]) && std::isnan(right[i]));
    if (equal || std::abs(got[i] - right[i]) <= tolerance * greatest) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
           std::to_string(right[i]);
  }
  return "";
}

/// The function's result, and behind it the gradients of the inputs, undefined where there is none.
struct Outcome {
  Tensors tensors;
  std::size_t calls_of_function = 0;  ///< of those that the probe has seen, the others' came later
};

Outcome outcome_of(const Function& function, const Tensors& inputs, const RuleProbe& probe) {
  Tensors given, leaves;
  for (const Tensor& input : inputs) {
    const bool has_gradient = tensors::is_floating_point(input.dtype());
    given.push_back(has_gradient ? input.detach().requires_grad_() : input);
    if (has_gradient) leaves.push_back(given.back());
  }
  const Tensor result = function(given);
  Outcome outcome{{result.detach()}, probe.calls().size()};
  if (!result.requires_grad()) return outcome;
  Tensor weights = randn(result.shape(), {17}, {.dtype = DType::f64}).to(result.dtype());
  if (result.is_distributed()) {
    weights = distribute_tensor(weights, result.device_mesh(), {Replicate()}, {.source_rank = -1});
  }
  for (const Tensor& gradient : grad({result}, leaves, {weights}))
    outcome.tensors.push_back(gradient);
  return outcome;
}

/// How far a sum in another order may be off, where a dtype has few digits.
double rounding_of(DType dtype) {
  return dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-2 : dtype == DType::bf16 ? 5e-2 : 0;
}

/// Where it is one of the results, or of what an operator on the way takes: the terms of a sum over
/// ranks are rounded before they are converted to more digits.
double rounding_of(const Tensors& whole, const std::vector<RuleProbe::Call>& calls) {
  double rounding = 0;
  for (const Tensor& tensor : whole) {
    if (tensor.defined()) rounding = std::max(rounding, rounding_of(tensor.dtype()));
  }
  for (const RuleProbe::Call& call : calls) {
    for (const Meta& input : call.inputs) rounding = std::max(rounding, rounding_of(input.dtype));
  }
  return rounding;
}

std::string first_difference(const Tensors& found, const Tensors& whole, double tolerance) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::string of = i == 0 ? "" : "gradient " + std::to_string(i - 1) + ": ";
    if (i >= found.size() || found[i].defined() != whole[i].defined())
      return of + "there is one on a mesh or on one rank, and not on the other";
    if (!whole[i].defined()) continue;
    const Cause cause("check_rule", Cause::Wish::asked);
    const Tensor all = found[i].is_distributed() ? found[i].full_tensor() : found[i];
    const std::string wrong = difference(all, whole[i], tolerance);
    if (!wrong.empty()) return of + wrong;
  }
  return "";
}

/// Bools have no mean, for example: what moves elements of any dtype does not say so.
bool can_lie_so(const sharding::AxisRule& rule, const std::vector<Meta>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Placement& placement = rule.inputs[i];
    if (placement.is_partial() &&
        !collectives::reduce_op_supports(placement.reduce_op(), inputs[i].dtype))
      return false;
  }
  return true;
}

std::string run_with(const RuleProbe::Forced& forced, const Function& function,
                     const Tensors& inputs, const Tensors& whole, double tolerance) {
  Tensors found;
  {
    const RuleProbe probe(forced);
    found = outcome_of(function, inputs, probe).tensors;
  }
  return first_difference(found, whole, tolerance);
}

}  // namespace

std::vector<CheckedRule> check_rule(const Function& function, const Tensors& samples,
                                    const DeviceMesh& mesh, double tolerance) {
  if (mesh.shape().size() != 1) {
    throw base::Error(base::ErrorCode::kInvalidArgument, "check_rule on " + mesh.to_string(),
                      "a rule is of one axis", "a mesh of one axis");
  }
  const GradMode recorded(true);
  const Tensors whole = outcome_of(function, samples, RuleProbe()).tensors;
  Tensors inputs;
  for (const Tensor& sample : samples) {
    inputs.push_back(distribute_tensor(sample, mesh, {Replicate()}, {.source_rank = -1}));
  }
  // What is called where nothing is told, and which rules each of the calls has.
  std::vector<RuleProbe::Call> calls;
  std::size_t calls_of_function = 0;
  {
    const RuleProbe probe;
    calls_of_function = outcome_of(function, inputs, probe).calls_of_function;
    calls = probe.calls();
  }
  tolerance = std::max(tolerance, rounding_of(whole, calls));
  std::vector<CheckedRule> checked;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    const auto caller =
        call < calls_of_function ? CheckedRule::Caller::function : CheckedRule::Caller::gradient;
    for (std::size_t rule = 0; rule < calls[call].rules.size(); ++rule) {
      if (!can_lie_so(calls[call].rules[rule], calls[call].inputs)) continue;
      checked.push_back(
          {calls[call].op, text_of(calls[call].rules[rule]),
           run_with({call, calls[call].rules[rule]}, function, inputs, whole, tolerance), caller});
    }
  }
  return checked;
}

}  // namespace dtrun::dtensor
