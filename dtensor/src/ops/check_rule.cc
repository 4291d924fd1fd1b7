#include "dtrun/dtensor/ops/check_rule.h"

#include <algorithm>
#include <cmath>

#include "dispatch/rule_probe.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/creation.h"

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

/// What the function calls where nothing is told, and which rules each of the calls has.
std::vector<RuleProbe::Call> calls_of(const Function& function, const Tensors& inputs) {
  const RuleProbe probe;
  function(inputs);
  return probe.calls();
}

std::string run_with(const RuleProbe::Forced& forced, const Function& function,
                     const Tensors& inputs, const Tensor& whole, double tolerance) {
  Tensor result;
  {
    const RuleProbe probe(forced);
    result = function(inputs);
  }
  return difference(result.is_distributed() ? result.full_tensor() : result, whole, tolerance);
}

}  // namespace

std::vector<CheckedRule> check_rule(const Function& function, const Tensors& samples,
                                    const DeviceMesh& mesh, double tolerance) {
  if (mesh.shape().size() != 1) {
    throw base::Error(base::ErrorCode::kInvalidArgument, "check_rule on " + mesh.to_string(),
                      "a rule is of one axis", "a mesh of one axis");
  }
  const NoGrad no_grad;
  const Tensor whole = function(samples);
  Tensors inputs;
  for (const Tensor& sample : samples) {
    inputs.push_back(distribute_tensor(sample, mesh, {Replicate()}, {.source_rank = -1}));
  }
  const std::vector<RuleProbe::Call> calls = calls_of(function, inputs);
  std::vector<CheckedRule> checked;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    for (std::size_t rule = 0; rule < calls[call].rules.size(); ++rule) {
      checked.push_back({calls[call].op, text_of(calls[call].rules[rule]),
                         run_with({call, rule}, function, inputs, whole, tolerance)});
    }
  }
  return checked;
}

}  // namespace dtrun::dtensor
