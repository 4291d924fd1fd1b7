// The greatest and the least, and where they are. A dim that goes may be cut: the extreme of the
// parts' extremes is that of the whole, and a position is looked for where its element is.
#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"
#include "layout/place_in_whole.h"
#include "move/neutral.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

enum class End { greatest, least };

template <End kEnd>
constexpr ReduceOp kOver = kEnd == End::greatest ? ReduceOp::max : ReduceOp::min;
template <End kEnd>
constexpr std::string_view kExtremeName = kEnd == End::greatest ? "amax" : "amin";

template <End kEnd>
Meta extreme_meta(Metas in, const ReducedDims& a) {
  require_some(kExtremeName<kEnd>, in[0].shape, a);
  return {reduced_shape(in[0].shape, a), in[0].dtype};
}

template <End kEnd>
void extreme_rules(Rules& r, Metas in, const ReducedDims& a) {
  reduction_indices(r, in[0].shape, a).cut_all(kOver<kEnd>).commutes(kOver<kEnd>);
}

/// A rank may hold nothing of a tensor that has elements.
template <End kEnd>
LocalTensor extreme(Locals in, const ReducedDims& a, const None&, const Site& site) {
  if (site.output && reduced_count(in[0].shape(), a) == 0) {
    return neutral_like(in[0], reduced_shape(in[0].shape(), a), kOver<kEnd>);
  }
  return kEnd == End::greatest ? tensors::amax(in[0], a.dims, a.keeps())
                               : tensors::amin(in[0], a.dims, a.keeps());
}

Tensors shared_gradient(const Context<ReducedDims, None>& c) {
  const ReducedDims& a = c.attributes();
  const Tensor x = without_partial(c.input(0)), g = with_dims_back(c.grad(), a);
  const Tensor y = without_partial(with_dims_back(c.output(), a));
  const Tensor chosen = logical_or(eq(x, y), logical_and(isnan(x), isnan(y)));
  return {where(chosen, g / sum(chosen, a.dims, true), zeros_like(x))};
}

template <End kEnd>
constexpr Op<ReducedDims> kExtreme{.name = kExtremeName<kEnd>,
                                   .meta = extreme_meta<kEnd>,
                                   .rules = extreme_rules<kEnd>,
                                   .local = extreme<kEnd>,
                                   .backward = shared_gradient,
                                   .saves = {1, true}};

/// One dim, or all of them and the position in row-major order.
template <End kEnd>
LocalTensor position(const LocalTensor& a, const ReducedDims& dims) {
  constexpr bool kGreatest = kEnd == End::greatest;
  if (dims.dims.size() == 1) {
    return kGreatest ? tensors::argmax(a, dims.dims[0], dims.keeps())
                     : tensors::argmin(a, dims.dims[0], dims.keeps());
  }
  const LocalTensor found = kGreatest ? tensors::argmax(a) : tensors::argmin(a);
  return dims.keeps() ? found.view(Shape(a.shape().size(), 1)) : found;
}

template <End kEnd>
constexpr std::string_view kPositionName = kEnd == End::greatest ? "argmax" : "argmin";

template <End kEnd>
constexpr Op<ReducedDims> kPosition{
    .name = kPositionName<kEnd>,
    .meta = [](Metas in, const ReducedDims& a) -> Meta {
      return {reduced_shape(in[0].shape, a), DType::i64};
    },
    .rules = keep_reduced_whole,
    .local = [](Locals in, const ReducedDims& a, const None&, const Site&) -> LocalTensor {
      return position<kEnd>(in[0], a);
    }};

/// Where this rank's part has the extreme of the whole; else beyond all positions.
template <End kEnd>
LocalTensor position_of_extreme(Locals in, const ReducedDims& a, const None&, const Site& site) {
  const LocalTensor &part = in[0], &whole_extreme = in[1];
  const LocalTensor nowhere = neutral_like(tensors::empty({}, {DType::i64, part.device()}),
                                           whole_extreme.shape(), ReduceOp::min);
  if (reduced_count(part.shape(), a) == 0) return nowhere;
  const ReducedDims kept{a.dims, KeepDim::yes};
  const LocalTensor own = extreme<kEnd>(in, kept, None{}, Site{});
  const LocalTensor is_here =
      tensors::logical_or(tensors::eq(own, whole_extreme),
                          tensors::logical_and(tensors::isnan(own), tensors::isnan(whole_extreme)));
  const LocalTensor in_part = position<kEnd>(part, kept);
  const Box& box = site.inputs[0].local_box();
  const LocalTensor in_whole =
      a.dims.size() == 1
          ? tensors::add(in_part, box.offsets[static_cast<std::size_t>(a.dims[0])])
          : tensors::full(in_part.shape(),
                          place_in_whole(in_part.to_vector_i64()[0], box, site.inputs[0].shape()),
                          {DType::i64, part.device()});
  return tensors::where(is_here, in_whole, nowhere);
}

/// Of the tensor and its extremes, the reduced dims 1.
template <End kEnd>
constexpr Op<ReducedDims> kPositionOfExtreme{
    .name = kPositionName<kEnd>,
    .meta = [](Metas in, const ReducedDims&) -> Meta {
      return {in[1].shape, DType::i64};
    },
    .rules =
        [](Rules& r, Metas in, const ReducedDims& a) {
          const Rules::Indices each = Rules::each_dim(in[0].shape);
          Rules::Indices kept = each;
          for (const int dim : a.dims) kept[static_cast<std::size_t>(dim)] = sharding::kBroadcast;
          r.indices({each, kept}, kept).cut_all(ReduceOp::min);
        },
    .local = position_of_extreme<kEnd>};

template <End kEnd>
Tensor extreme_of(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return named_call(kExtremeName<kEnd>, {{"input", a}}, [&] {
    return call(kExtreme<kEnd>, a, reduced_dims(kExtremeName<kEnd>, a, dims, keepdim));
  });
}

template <End kEnd>
Tensor position_in(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return named_call(kPositionName<kEnd>, {{"input", a}}, [&] {
    const NoGrad no_grad;
    const ReducedDims reduced = reduced_dims(kPositionName<kEnd>, a, dims, keepdim);
    require_some(kPositionName<kEnd>, a.shape(), reduced);
    const Tensor x = without_partial(a);
    if (!is_cut_along(x, reduced)) return call(kPosition<kEnd>, x, reduced);
    const LegalLayoutsOf legal(kPosition<kEnd>, x, reduced);
    const Tensor y = without_own_partial(extreme_of<kEnd>(x, reduced.dims, true));
    Tensor found = without_own_partial(call(kPositionOfExtreme<kEnd>, x, y, reduced));
    if (keepdim) return found;
    for (std::size_t i = reduced.dims.size(); i-- > 0;) found = found.squeeze(reduced.dims[i]);
    return found;
  });
}

template <End kEnd>
Extremes extremes_along(const Tensor& a, int dim, bool keepdim) {
  return named_call(kEnd == End::greatest ? "max" : "min", {{"input", a}}, [&]() -> Extremes {
    const Tensor x = without_partial(a);
    const Tensor compared = x.dtype() == DType::boolean ? x.to(DType::u8) : x;
    const Tensor indices = position_in<kEnd>(compared, {dim}, true);
    if (a.dim() == 0) return {a.clone(), indices};
    const Tensor values = gather(x, dim, indices);
    if (keepdim) return {values, indices};
    return {values.squeeze(dim), indices.squeeze(dim)};
  });
}

}  // namespace

Tensor amax(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return extreme_of<End::greatest>(a, dims, keepdim);
}
Tensor amin(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return extreme_of<End::least>(a, dims, keepdim);
}
Tensor max(const Tensor& a) {
  return named_call("max", {{"input", a}}, [&] { return extreme_of<End::greatest>(a, {}, false); });
}
Tensor min(const Tensor& a) {
  return named_call("min", {{"input", a}}, [&] { return extreme_of<End::least>(a, {}, false); });
}
Extremes max(const Tensor& a, int dim, bool keepdim) {
  return extremes_along<End::greatest>(a, dim, keepdim);
}
Extremes min(const Tensor& a, int dim, bool keepdim) {
  return extremes_along<End::least>(a, dim, keepdim);
}
Tensor argmax(const Tensor& a) {
  return position_in<End::greatest>(a, {}, false);
}
Tensor argmin(const Tensor& a) {
  return position_in<End::least>(a, {}, false);
}
Tensor argmax(const Tensor& a, int dim, bool keepdim) {
  return position_in<End::greatest>(a, {dim}, keepdim);
}
Tensor argmin(const Tensor& a, int dim, bool keepdim) {
  return position_in<End::least>(a, {dim}, keepdim);
}

}  // namespace dtrun::dtensor
