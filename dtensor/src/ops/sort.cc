// sort, argsort and topk: the order of each whole line; the values are gathered by it, and so are
// their gradients.
#include "autograd/call.h"
#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/tensor/ops.h"
#include "ops/named_dim.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

/// `kept` first positions; -1: all.
struct SortedDim {
  int dim;
  std::int64_t kept;
  SortOrder order;
};
void append_key(CallKey& key, const SortedDim& a) {
  key.push_back(a.dim);
  key.push_back(a.kept);
  key.push_back(static_cast<std::int64_t>(a.order));
}

constexpr Op<SortedDim> kOrder{
    .name = "sort",
    .meta = [](Metas in, const SortedDim& a) -> Meta {
      Shape shape = in[0].shape;
      if (!shape.empty() && a.kept >= 0) shape[static_cast<std::size_t>(a.dim)] = a.kept;
      return {shape, DType::i64};
    },
    .rules = [](Rules& r, Metas, const SortedDim& a) { r.all_but(a.dim).cut_all(); },
    .local = [](Locals in, const SortedDim& a, const None&, const Site&) -> LocalTensor {
      return a.kept < 0 ? tensors::sort(in[0], a.dim, a.order).indices
                        : tensors::topk(in[0], a.kept, a.dim, a.order).indices;
    }};

constexpr Op<WholeDim> kWholeForSort = whole_along_for("sort");
constexpr Op<WholeDim> kWholeForTopk = whole_along_for("topk");

/// Along the dim, what the rank that holds least of it has.
std::int64_t smallest_part(const Tensor& a, int dim) {
  const DeviceMesh mesh = a.device_mesh();
  const Layout& layout = a.spec().layout();
  std::vector<int> least = mesh.shape();
  for (std::size_t axis = 0; axis < least.size(); ++axis) {
    --least[axis];
    if (!layout.is_ragged(axis)) continue;
    const Cut::Sizes& sizes = layout.cut(axis).sizes();
    least[axis] = static_cast<int>(std::ranges::min_element(sizes) - sizes.begin());
  }
  return local_box(a.shape(), mesh.shape(), least, layout).shape[static_cast<std::size_t>(dim)];
}

/// This rank's candidates; of a rank outside of the mesh only their shape counts.
tensors::Sorted own_candidates(const Tensor& x, const SortedDim& by) {
  if (!x.spec().is_outside()) return tensors::topk(x.local(), by.kept, by.dim, by.order);
  Shape shape = x.local().shape();
  shape[static_cast<std::size_t>(by.dim)] = by.kept;
  return {tensors::zeros(shape, {x.dtype(), x.device()}),
          tensors::zeros(shape, {DType::i64, x.device()})};
}

/// Each rank's first ones are candidates, and only they travel.
Tensor order_of_candidates(const Tensor& a, const SortedDim& by) {
  const WholeDim whole{by.dim};
  const LegalLayoutsOf legal(kWholeForTopk, a, whole);
  const NoGrad no_grad;
  const Tensor x = without_partial(a);
  const tensors::Sorted own = own_candidates(x, by);
  const std::int64_t offset = x.spec().local_box().offsets[static_cast<std::size_t>(by.dim)];
  const ReducedDims along{{by.dim}, KeepDim::yes};
  const Tensor values = whole_along(joined_parts(x, along, own.values), by.dim);
  const Tensor positions =
      whole_along(joined_parts(x, along, tensors::add(own.indices, offset)), by.dim);
  return gather(positions, by.dim, call(kOrder, values, by));
}

/// Two collectives, of candidates and of their positions, for one of all elements.
bool candidates_suffice(const Tensor& a, const SortedDim& by) {
  if (by.kept <= 0 || !is_cut_along(a, by.dim) || smallest_part(a, by.dim) < by.kept) return false;
  const GatherCost whole = gather_cost(a, {{by.dim}, KeepDim::yes});
  const auto item = static_cast<double>(tensors::item_size(a.dtype()));
  const double share = static_cast<double>(by.kept * whole.parts) * (item + sizeof(std::int64_t)) /
                       (static_cast<double>(a.size(by.dim)) * item);
  return whole.latency + whole.transfer * share < whole.transfer;
}

Sorted sorted(const Tensor& a, const SortedDim& by) {
  if (candidates_suffice(a, by)) {
    const Tensor indices = order_of_candidates(a, by);
    return {gather(a, by.dim, indices), indices};
  }
  // Brought once, for the order and for the values.
  Tensor x = without_partial(a);
  const Op<WholeDim>& whole = by.kept < 0 ? kWholeForSort : kWholeForTopk;
  if (is_cut_along(x, by.dim)) x = call(whole, x, WholeDim{by.dim});
  const Tensor indices = call(kOrder, x, by);
  return {gather(x, by.dim, indices), indices};
}

}  // namespace

Sorted sort(const Tensor& a, int dim, SortOrder order) {
  return named_call("sort", {{"input", a}}, [&] {
    return sorted(a, {named_dim_or_only("sort", a, dim), -1, order});
  });
}
Tensor argsort(const Tensor& a, int dim, SortOrder order) {
  return named_call("argsort", {{"input", a}}, [&] {
    return call(kOrder, a, SortedDim{named_dim_or_only("argsort", a, dim), -1, order});
  });
}

Sorted topk(const Tensor& a, std::int64_t k, int dim, SortOrder order) {
  return named_call("topk", {{"input", a}}, [&] {
    const int place = named_dim_or_only("topk", a, dim);
    const std::int64_t size = a.dim() == 0 ? 1 : a.size(place);
    if (k < 0 || k > size) {
      throw base::Error(
          base::ErrorCode::kInvalidArgument,
          "topk of " + std::to_string(k) + " elements along dim " + std::to_string(place),
          "the dim has " + std::to_string(size), "a number from 0 to " + std::to_string(size));
    }
    return sorted(a, {place, k, order});
  });
}

}  // namespace dtrun::dtensor
