#include "plan/planned_call.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string_view>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/mesh/planned_mesh.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/shapes_only.h"

namespace dtrun::tools {
namespace {

using base::Error;
using base::ErrorCode;
using dtensor::DeviceMesh;
using dtensor::Tensor;
using dtensor::Tensors;

enum class Along { nothing, dim, dim_or_all };

using Dim = std::optional<int>;

struct Operator {
  std::string_view name;
  std::size_t least, most;  ///< operands
  Along along;
  void (*call)(const Tensors&, Dim);
  std::size_t positions = SIZE_MAX;  ///< which operand holds integers; SIZE_MAX: none
};

template <Tensor (*kFunction)(const Tensor&)>
void unary(const Tensors& x, Dim) {
  kFunction(x[0]);
}
template <Tensor (*kFunction)(const Tensor&, const Tensor&)>
void binary(const Tensors& x, Dim) {
  kFunction(x[0], x[1]);
}
template <Tensor (*kFunction)(const Tensor&, int)>
void along_dim(const Tensors& x, Dim dim) {
  kFunction(x[0], *dim);
}
template <Tensor (*kAll)(const Tensor&),
          Tensor (*kSome)(const Tensor&, const std::vector<int>&, bool)>
void reduction(const Tensors& x, Dim dim) {
  dim ? kSome(x[0], {*dim}, false) : kAll(x[0]);
}
tensors::Shape last_dim(const Tensor& x) {
  return {x.size(-1)};
}
Tensor optional(const Tensors& x, std::size_t i) {
  return i < x.size() ? x[i] : Tensor();
}

const Operator kOperators[] = {
    {"add", 2, 2, Along::nothing, binary<dtensor::add>},
    {"argmax", 1, 1, Along::dim, [](const Tensors& x, Dim dim) { dtensor::argmax(x[0], *dim); }},
    {"cat", 1, 16, Along::dim, [](const Tensors& x, Dim dim) { dtensor::cat(x, *dim); }},
    {"cross_entropy", 2, 2, Along::nothing,
     [](const Tensors& x, Dim) { dtensor::cross_entropy(x[0], x[1]); }, 1},
    {"cumsum", 1, 1, Along::dim, along_dim<dtensor::cumsum>},
    {"div", 2, 2, Along::nothing, binary<dtensor::div>},
    {"embedding", 2, 2, Along::nothing,
     [](const Tensors& x, Dim) { dtensor::embedding(x[0], x[1]); }, 0},
    {"exp", 1, 1, Along::nothing, unary<dtensor::exp>},
    {"gelu", 1, 1, Along::nothing, [](const Tensors& x, Dim) { dtensor::gelu(x[0]); }},
    {"index_select", 2, 2, Along::dim,
     [](const Tensors& x, Dim dim) { dtensor::index_select(x[0], *dim, x[1]); }, 1},
    {"layer_norm", 1, 3, Along::nothing,
     [](const Tensors& x, Dim) {
       dtensor::layer_norm(x[0], last_dim(x[0]), optional(x, 1), optional(x, 2));
     }},
    {"linear", 2, 3, Along::nothing,
     [](const Tensors& x, Dim) { dtensor::linear(x[0], x[1], optional(x, 2)); }},
    {"log_softmax", 1, 1, Along::dim, along_dim<dtensor::log_softmax>},
    {"logsumexp", 1, 1, Along::dim,
     [](const Tensors& x, Dim dim) { dtensor::logsumexp(x[0], {*dim}); }},
    {"matmul", 2, 2, Along::nothing, binary<dtensor::matmul>},
    {"mean", 1, 1, Along::dim_or_all, reduction<dtensor::mean, dtensor::mean>},
    {"mse_loss", 2, 2, Along::nothing,
     [](const Tensors& x, Dim) { dtensor::mse_loss(x[0], x[1]); }},
    {"mul", 2, 2, Along::nothing, binary<dtensor::mul>},
    {"relu", 1, 1, Along::nothing, unary<dtensor::relu>},
    {"rms_norm", 1, 2, Along::nothing,
     [](const Tensors& x, Dim) { dtensor::rms_norm(x[0], last_dim(x[0]), optional(x, 1)); }},
    {"scaled_dot_product_attention", 3, 3, Along::nothing,
     [](const Tensors& x, Dim) { dtensor::scaled_dot_product_attention(x[0], x[1], x[2]); }},
    {"silu", 1, 1, Along::nothing, unary<dtensor::silu>},
    {"softmax", 1, 1, Along::dim, along_dim<dtensor::softmax>},
    {"sub", 2, 2, Along::nothing, binary<dtensor::sub>},
    {"sum", 1, 1, Along::dim_or_all, reduction<dtensor::sum, dtensor::sum>},
};

const Operator& find(const std::string& name) {
  for (const Operator& op : kOperators)
    if (op.name == name) return op;
  throw Error(ErrorCode::kUsage, fmt::format("--op={} is not there", name),
              "the operators that can be planned are " + planned_operators(),
              "call explain() in a program on a planned_mesh(), which takes every operator");
}

void check(const PlannedCall& call, const Operator& op) {
  const std::size_t given = call.operands.size();
  if (given < op.least || given > op.most)
    throw Error(ErrorCode::kUsage, fmt::format("{} has {} operands", op.name, given),
                op.least == op.most ? fmt::format("it takes {}", op.least)
                                    : fmt::format("it takes {} to {}", op.least, op.most),
                "--operand 'f32[1024, 4096] [S(0), R]' for each of them");
  if (op.along == Along::dim && !call.dim)
    throw Error(ErrorCode::kUsage, fmt::format("{} goes along a dim", op.name), "",
                "--dim says along which");
  if (op.along == Along::nothing && call.dim)
    throw Error(ErrorCode::kUsage, fmt::format("{} does not take --dim", op.name), "", "");
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

}  // namespace

std::string planned_operators() {
  std::string names;
  for (const Operator& op : kOperators)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", op.name);
  return names;
}

dtensor::CallsExplanation explain_call(const PlannedCall& call) {
  const Operator& op = find(call.op);
  check(call, op);
  const DeviceMesh mesh = dtensor::planned_mesh(call.mesh_shape, call.axis_names, call.rank);
  if (!call.links.empty()) mesh.set_links(call.links);
  const tensors::ShapesOnly without_numbers;
  Tensors operands;
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    operands.push_back(operand(call.operands[i], mesh, i == op.positions ? "i64" : call.dtype));
  return dtensor::explain([&] { op.call(operands, call.dim); });
}

}  // namespace dtrun::tools
