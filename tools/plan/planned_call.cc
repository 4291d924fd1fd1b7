#include "plan/planned_call.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string_view>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/mesh/planned_mesh.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/shapes_only.h"
#include "plan/planned_operators.h"

namespace dtrun::tools {
namespace {

using base::Error;
using base::ErrorCode;
using dtensor::DeviceMesh;
using dtensor::Tensor;
using dtensor::Tensors;

const PlannedOperator& find(const std::string& name) {
  for (const PlannedOperator& op : planned_operator_table())
    if (op.name == name) return op;
  throw Error(ErrorCode::kUsage, fmt::format("--op={} is not there", name),
              "the operators that can be planned are " + planned_operators(),
              "call explain() in a program on a planned_mesh(), which takes every operator");
}

void check(const PlannedCall& call, const PlannedOperator& op) {
  const std::size_t given = call.operands.size();
  if (given < op.least || given > op.most)
    throw Error(ErrorCode::kUsage, fmt::format("{} has {} operands", op.name, given),
                op.least == op.most ? fmt::format("it takes {}", op.least)
                                    : fmt::format("it takes {} to {}", op.least, op.most),
                "--operand 'f32[1024, 4096] [S(0), R]' for each of them");
  if (op.along == PlannedOperator::Along::dim && !call.dim)
    throw Error(ErrorCode::kUsage, fmt::format("{} goes along a dim", op.name), "",
                "--dim says along which");
  if (op.along == PlannedOperator::Along::nothing && call.dim)
    throw Error(ErrorCode::kUsage, fmt::format("{} does not take --dim", op.name), "", "");
  if (!op.count.empty() && !call.count)
    throw Error(ErrorCode::kUsage, fmt::format("{} has a number of {}", op.name, op.count), "",
                "--count says how many");
  if (op.count.empty() && call.count)
    throw Error(ErrorCode::kUsage, fmt::format("{} does not take --count", op.name), "", "");
}

[[noreturn]] void refuse_operand(const std::string& text) {
  throw Error(ErrorCode::kUsage, fmt::format("--operand='{}' cannot be read", text),
              "it is dtype, shape and layout: 'f32[1024, 4096] [S(0), R]'", "");
}

/// @param sizes "1024, 4096"; nothing: none
tensors::Shape parse_shape(std::string_view sizes, const std::string& text) {
  tensors::Shape shape;
  while (sizes.find_first_not_of(' ') != std::string_view::npos) {
    sizes.remove_prefix(sizes.find_first_not_of(' '));
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(sizes.data(), sizes.data() + sizes.size(), size);
    if (error != std::errc() || size < 0) refuse_operand(text);
    shape.push_back(size);
    sizes.remove_prefix(static_cast<std::size_t>(end - sizes.data()));
    const std::size_t comma = sizes.find_first_not_of(' ');
    if (comma == std::string_view::npos) break;
    if (sizes[comma] != ',') refuse_operand(text);
    sizes.remove_prefix(comma + 1);
    if (sizes.find_first_not_of(' ') == std::string_view::npos) refuse_operand(text);
  }
  return shape;
}

Tensor operand(const std::string& text, const DeviceMesh& mesh, const std::string& usual_dtype) {
  const std::size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) refuse_operand(text);
  const std::string dtype = open == 0 ? usual_dtype : text.substr(0, open);
  const std::string_view sizes = std::string_view(text).substr(open + 1, close - open - 1);
  const tensors::Shape shape = parse_shape(sizes, text);
  const dtensor::Layout layout = dtensor::parse_layout(text.substr(close + 1), shape, mesh.shape());
  const dtensor::Spec spec = dtensor::make_spec(mesh, layout, shape, tensors::parse_dtype(dtype));
  return {spec, tensors::zeros(spec.local_box().shape, {.dtype = spec.dtype()})};
}

/// With gradients of all operands that can have one.
void run_both_ways(const PlannedOperator& op, const Tensors& operands,
                   const PlannedArguments& given) {
  Tensors inputs;
  for (const Tensor& operand : operands)
    if (tensors::is_floating_point(operand.dtype())) inputs.push_back(operand.requires_grad_());
  const Tensor result = op.call(operands, given);
  if (!result.requires_grad())
    throw Error(ErrorCode::kUsage, fmt::format("{} of these has no gradient", op.name),
                "its result is none of floating point numbers that depend on its operands",
                "leave out --backward");
  dtensor::grad({result}, inputs, {dtensor::ones_like(result)});
}

}  // namespace

std::string planned_operators() {
  std::string names;
  for (const PlannedOperator& op : planned_operator_table())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", op.name);
  return names;
}

dtensor::CallsExplanation explain_call(const PlannedCall& call) {
  const PlannedOperator& op = find(call.op);
  check(call, op);
  const DeviceMesh mesh = dtensor::planned_mesh(call.mesh_shape, call.axis_names, call.rank);
  if (!call.links.empty()) mesh.set_links(call.links);
  const tensors::ShapesOnly without_numbers;
  Tensors operands;
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    operands.push_back(operand(call.operands[i], mesh, i == op.positions ? "i64" : call.dtype));
  const PlannedArguments given{call.dim, call.count};
  return dtensor::explain([&] {
    call.is_both_ways ? run_both_ways(op, operands, given) : void(op.call(operands, given));
  });
}

}  // namespace dtrun::tools
