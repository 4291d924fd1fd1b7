#include "plan/planned_operators.h"

#include <vector>

#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::tools {
namespace {

using dtensor::Tensor;
using dtensor::Tensors;
using Along = PlannedOperator::Along;
using Given = PlannedArguments;
using Dims = std::vector<int>;

template <Tensor (*kFunction)(const Tensor&)>
Tensor unary(const Tensors& x, const Given&) {
  return kFunction(x[0]);
}
template <Tensor (*kFunction)(const Tensor&, const Tensor&)>
Tensor binary(const Tensors& x, const Given&) {
  return kFunction(x[0], x[1]);
}
template <Tensor (*kFunction)(const Tensor&, int)>
Tensor along_dim(const Tensors& x, const Given& given) {
  return kFunction(x[0], *given.dim);
}
template <Tensor (*kAll)(const Tensor&), Tensor (*kSome)(const Tensor&, const Dims&, bool)>
Tensor reduction(const Tensors& x, const Given& given) {
  return given.dim ? kSome(x[0], {*given.dim}, false) : kAll(x[0]);
}
/// With no dims all of them are reduced.
Dims dims_of(const Given& given) {
  return given.dim ? Dims{*given.dim} : Dims();
}
tensors::Shape last_dim(const Tensor& x) {
  return {x.size(-1)};
}
Tensor optional(const Tensors& x, std::size_t i) {
  return i < x.size() ? x[i] : Tensor();
}

#define DT_UNARY(name) \
  { #name, 1, 1, Along::nothing, unary < dtensor::name> }
#define DT_BINARY(name) \
  { #name, 2, 2, Along::nothing, binary < dtensor::name> }

const PlannedOperator kOperators[] = {
    DT_UNARY(abs),
    DT_BINARY(add),
    {"addmm", 3, 3, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::addmm(x[0], x[1], x[2]); }},
    {"amax", 1, 1, Along::dim_or_all,
     [](const Tensors& x, const Given& g) { return dtensor::amax(x[0], dims_of(g)); }},
    {"amin", 1, 1, Along::dim_or_all,
     [](const Tensors& x, const Given& g) { return dtensor::amin(x[0], dims_of(g)); }},
    {"argmax", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::argmax(x[0], *g.dim); }},
    {"argmin", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::argmin(x[0], *g.dim); }},
    {"argsort", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::argsort(x[0], *g.dim); }},
    DT_BINARY(bmm),
    {"cat", 1, 16, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::cat(x, *g.dim); }},
    DT_UNARY(cos),
    {"cross_entropy", 2, 2, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::cross_entropy(x[0], x[1]); }, 1},
    {"cumprod", 1, 1, Along::dim, along_dim<dtensor::cumprod>},
    {"cumsum", 1, 1, Along::dim, along_dim<dtensor::cumsum>},
    DT_BINARY(div),
    DT_BINARY(dot),
    {"embedding", 2, 2, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::embedding(x[0], x[1]); }, 0},
    DT_UNARY(erf),
    DT_UNARY(exp),
    {"flip", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::flip(x[0], {*g.dim}); }},
    {"gather", 2, 2, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::gather(x[0], *g.dim, x[1]); }, 1},
    {"gelu", 1, 1, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::gelu(x[0]); }},
    {"index_select", 2, 2, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::index_select(x[0], *g.dim, x[1]); }, 1},
    {"layer_norm", 1, 3, Along::nothing,
     [](const Tensors& x, const Given&) {
       return dtensor::layer_norm(x[0], last_dim(x[0]), optional(x, 1), optional(x, 2));
     }},
    {"lerp", 3, 3, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::lerp(x[0], x[1], x[2]); }},
    {"linear", 2, 3, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::linear(x[0], x[1], optional(x, 2)); }},
    DT_UNARY(log),
    {"log_softmax", 1, 1, Along::dim, along_dim<dtensor::log_softmax>},
    {"logsumexp", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::logsumexp(x[0], {*g.dim}); }},
    DT_BINARY(matmul),
    {"max", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::max(x[0], *g.dim).values; }},
    DT_BINARY(maximum),
    {"mean", 1, 1, Along::dim_or_all, reduction<dtensor::mean, dtensor::mean>},
    {"min", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::min(x[0], *g.dim).values; }},
    DT_BINARY(minimum),
    DT_BINARY(mm),
    {"mse_loss", 2, 2, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::mse_loss(x[0], x[1]); }},
    DT_BINARY(mul),
    DT_BINARY(mv),
    DT_UNARY(neg),
    {"nll_loss", 2, 2, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::nll_loss(x[0], x[1]); }, 1},
    {"norm", 1, 1, Along::dim_or_all,
     [](const Tensors& x, const Given& g) { return dtensor::norm(x[0], 2, dims_of(g)); }},
    DT_BINARY(pow),
    {"prod", 1, 1, Along::dim_or_all,
     [](const Tensors& x, const Given& g) {
       return g.dim ? dtensor::prod(x[0], *g.dim) : dtensor::prod(x[0]);
     }},
    DT_UNARY(relu),
    {"rms_norm", 1, 2, Along::nothing,
     [](const Tensors& x, const Given&) {
       return dtensor::rms_norm(x[0], last_dim(x[0]), optional(x, 1));
     }},
    {"roll", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::roll(x[0], {*g.count}, {*g.dim}); },
     SIZE_MAX, "places"},
    DT_UNARY(rsqrt),
    {"scaled_dot_product_attention", 3, 3, Along::nothing,
     [](const Tensors& x, const Given&) {
       return dtensor::scaled_dot_product_attention(x[0], x[1], x[2]);
     }},
    {"scatter_add", 3, 3, Along::dim,
     [](const Tensors& x, const Given& g) {
       return dtensor::scatter_add(x[0], *g.dim, x[1], x[2]);
     },
     1},
    DT_UNARY(sigmoid),
    DT_UNARY(silu),
    DT_UNARY(sin),
    {"softmax", 1, 1, Along::dim, along_dim<dtensor::softmax>},
    {"sort", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::sort(x[0], *g.dim).values; }},
    {"split", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::split(x[0], *g.count, *g.dim)[0]; },
     SIZE_MAX, "elements of a part"},
    DT_UNARY(sqrt),
    DT_UNARY(square),
    {"stack", 1, 16, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::stack(x, *g.dim); }},
    {"std", 1, 1, Along::dim_or_all,
     [](const Tensors& x, const Given& g) { return dtensor::stddev(x[0], dims_of(g)); }},
    DT_BINARY(sub),
    {"sum", 1, 1, Along::dim_or_all, reduction<dtensor::sum, dtensor::sum>},
    DT_UNARY(tanh),
    {"topk", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return dtensor::topk(x[0], *g.count, *g.dim).values; },
     SIZE_MAX, "largest elements"},
    {"transpose", 1, 1, Along::dim,
     [](const Tensors& x, const Given& g) { return x[0].transpose(*g.dim, -1); }},
    {"tril", 1, 1, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::tril(x[0]); }},
    {"triu", 1, 1, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::triu(x[0]); }},
    {"var", 1, 1, Along::dim_or_all,
     [](const Tensors& x, const Given& g) { return dtensor::var(x[0], dims_of(g)); }},
    {"where", 3, 3, Along::nothing,
     [](const Tensors& x, const Given&) { return dtensor::where(x[0], x[1], x[2]); }},
};

#undef DT_UNARY
#undef DT_BINARY

}  // namespace

std::span<const PlannedOperator> planned_operator_table() {
  return kOperators;
}

}  // namespace dtrun::tools
