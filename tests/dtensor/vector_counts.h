// Vector counts: how many collectives a case takes, beside how many PyTorch took.
#pragma once

#include <boost/json/serialize.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "dtensor/vector_layout.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// Of a case's forward, and of its forward and backward together.
struct Collectives {
  std::int64_t forward = 0;
  std::optional<std::int64_t> both_ways;  ///< none: it has no backward
};

inline std::int64_t total_of(const boost::json::value& calls_by_kind) {
  std::int64_t total = 0;
  for (const auto& [kind, calls] : calls_by_kind.as_object()) total += calls.to_number<int>();
  return total;
}

/// What brings a gradient from where PyTorch left it, often Partial, to where its tensor lies:
/// dtrun's backward does that, too.
inline std::int64_t collectives_to_finish(const boost::json::value& placements, const Tensor& of) {
  const DeviceMesh mesh = of.device_mesh();
  const CostModel costs{.item_bytes = static_cast<std::int64_t>(tensors::item_size(of.dtype()))};
  const std::vector<int>& sizes = mesh.shape();
  const Layout from = make_layout(of.shape(), sizes, placements_of(placements));
  const std::vector<Step> steps =
      plan_redistribute(of.shape(), sizes, from, without_partials(of.spec().layout()), costs);
  return plan_cost(of.shape(), sizes, steps, costs).collectives;
}

/// None: what PyTorch did with the case is not known, or gave a wrong value.
inline std::optional<Collectives> collectives_of_pytorch(const test::VectorCase& item,
                                                         const Tensors& inputs) {
  if (!item.contains("torch") || item.at("status") == "torch_wrong") return std::nullopt;
  const boost::json::object& torch = item.at("torch").as_object();
  if (!torch.contains("comm")) return std::nullopt;
  Collectives counts{total_of(torch.at("comm")), {}};
  if (!torch.contains("comm_backward") || torch.at("comm_backward").is_null()) return counts;
  counts.both_ways = counts.forward + total_of(torch.at("comm_backward"));
  // Of the inputs that want one.
  const boost::json::array& placements = torch.at("grad_placements").as_array();
  std::size_t next = 0;
  for (const Tensor& input : inputs) {
    if (!input.requires_grad() || !input.is_distributed()) continue;
    const boost::json::value& of_gradient = placements.at(next++);
    if (!of_gradient.is_null()) *counts.both_ways += collectives_to_finish(of_gradient, input);
  }
  return counts;
}

struct CaseCollectives {
  Collectives taken;
  std::optional<Collectives> of_pytorch;

  bool are_of_forward_only() const { return !of_pytorch->both_ways || !taken.both_ways; }
  bool are_more_forward() const { return of_pytorch && taken.forward > of_pytorch->forward; }
  /// Forward and back together, where there is a way back.
  bool are_more() const {
    if (!of_pytorch) return false;
    if (are_of_forward_only()) return are_more_forward();
    return *taken.both_ways > *of_pytorch->both_ways;
  }
  /// "2 forward and 3 both ways where PyTorch takes 1 and 3"
  std::string to_string() const {
    const auto both_ways = [](const Collectives& counts) {
      return counts.both_ways ? " and " + std::to_string(*counts.both_ways) : "";
    };
    return std::to_string(taken.forward) + both_ways(taken) + " for PyTorch's " +
           std::to_string(of_pytorch->forward) + both_ways(*of_pytorch);
  }
};

/// Its arguments, and how its inputs lie.
inline std::string described(const test::VectorCase& item) {
  std::string text = test::text_of(item.at("id"));
  for (const boost::json::value& value : item.at("inputs").as_array()) {
    const boost::json::object& input = value.as_object();
    text += "  " + test::text_of(input.at("dtype")) + boost::json::serialize(input.at("shape")) +
            boost::json::serialize(input.at("placements"));
  }
  return text + "  on " + boost::json::serialize(item.at("mesh")) + "  " +
         boost::json::serialize(item.at("args"));
}

}  // namespace dtrun::dtensor
