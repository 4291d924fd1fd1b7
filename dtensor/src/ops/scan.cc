// cumsum and cumprod.
#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops/reduction.h"
#include "dtrun/tensor/shapes_only.h"
#include "ops/named_dim.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

enum class ScanFrom { first, last };

struct Scan {
  int dim;
  ScanFrom from = ScanFrom::first;
};
void append_key(CallKey& key, const Scan& a) {
  key.push_back(a.dim);
  key.push_back(static_cast<std::int64_t>(a.from));
}

DType scanned_dtype(DType dtype) {
  return tensors::is_floating_point(dtype) ? dtype : DType::i64;
}

Meta scanned(Metas in, const Scan&) {
  return {in[0].shape, scanned_dtype(in[0].dtype)};
}

Rules& whole_lines(Rules& r, const Scan& a) {
  return r.all_but(a.dim).cut_all();
}

Tensor call_cumsum(const Tensor& a, Scan scan);

constexpr Op<Scan> kCumsum{
    .name = "cumsum",
    .meta = scanned,
    .rules = [](Rules& r, Metas, const Scan& a) { whole_lines(r, a).linear(0); },
    .local =
        [](Locals in, const Scan& a, const None&, const Site&) {
          return a.from == ScanFrom::first ? tensors::cumsum(in[0], a.dim)
                                           : tensors::reverse_cumsum(in[0], a.dim);
        },
    .backward = [](const Context<Scan, None>& c) -> Tensors {
      const Scan a = c.attributes();
      const ScanFrom back = a.from == ScanFrom::first ? ScanFrom::last : ScanFrom::first;
      return {call_cumsum(c.grad(), {a.dim, back})};
    },
    .partial_gradient = PartialGradient::passed_on};

/// What the parts before this rank's come to, along a cut dim: their totals travel, no elements.
/// @param whole a kernel's scan of a part
LocalTensor before_this_part(const Tensor& x, const Scan& a, const LocalTensor& total) {
  const Tensor totals = joined_parts(x, {{a.dim}, KeepDim::yes}, total);
  const auto mine = totals.spec().local_box().offsets[static_cast<std::size_t>(a.dim)];
  const LocalTensor all = whole_along(totals, a.dim).local();
  return a.from == ScanFrom::first ? all.narrow(a.dim, 0, mine)
                                   : all.narrow(a.dim, mine + 1, all.size(a.dim) - mine - 1);
}

/// Halves are added up in f32, as the kernels do, and rounded once.
LocalTensor widened(const LocalTensor& part) {
  const bool is_half = part.dtype() == DType::f16 || part.dtype() == DType::bf16;
  return is_half ? part.to(DType::f32) : part;
}

Tensor cumsum_of_cut(const Tensor& a, const Scan& scan) {
  const LegalLayoutsOf legal(kCumsum, a, scan);
  const NoGrad no_grad;
  const Tensor x = without_partial(a);
  const LocalTensor part = widened(x.local());
  if (x.spec().is_outside()) return lying_as(x, part.to(scanned_dtype(x.dtype())));
  const LocalTensor own = scan.from == ScanFrom::first ? tensors::cumsum(part, scan.dim)
                                                       : tensors::reverse_cumsum(part, scan.dim);
  const LocalTensor before = before_this_part(x, scan, tensors::sum(part, {scan.dim}, true));
  const LocalTensor all = tensors::add(own, tensors::sum(before, {scan.dim}, true));
  return lying_as(x, all.to(scanned_dtype(x.dtype())));
}

Tensor call_cumsum(const Tensor& a, Scan scan) {
  if (!is_cut_along(a, scan.dim)) return call(kCumsum, a, scan);
  return recorded(kCumsum, a, cumsum_of_cut(a, scan), scan);
}

/// Element i's part in the gradient of x[j] is g[i] times the product of those up to i without j: a
/// table of n^2 numbers, right whatever is 0.
Tensor cumprod_gradient_by_table(const Tensor& x, const Tensor& g, int dim) {
  const std::int64_t n = x.size(dim);
  Shape wide = x.shape();
  wide.insert(wide.begin() + dim, n);
  const int after = x.dim() - dim - 1;
  const Tensor factors =
      where(diagonal_like(x, n, after), one_of(x), x.unsqueeze(dim).expand(wide));
  const Tensor reached = gt(cumsum(diagonal_like(x, n, after), after == 0 ? -1 : -1 - after), 0);
  const Tensor products = cumprod(factors, dim + 1) * g.unsqueeze(dim);
  return sum(where(reached, products, zeros_like(products)), {dim + 1});
}

Tensors cumprod_gradient(const Context<Scan, None>& c) {
  const int dim = c.attributes().dim;
  const Tensor x = without_partial(c.input(0)), g = c.grad();
  if (x.dim() == 0) return {g};
  // Without numbers the larger way is taken.
  if (Graph::is_on() || tensors::ShapesOnly::stands() || any(eq(x, 0)).item() != 0)
    return {cumprod_gradient_by_table(x, g, dim)};
  return {call_cumsum(g * c.output(), {dim, ScanFrom::last}) / x};
}

constexpr Op<Scan> kCumprod{.name = "cumprod",
                            .meta = scanned,
                            .rules = [](Rules& r, Metas, const Scan& a) { whole_lines(r, a); },
                            .local = [](Locals in, const Scan& a, const None&,
                                        const Site&) { return tensors::cumprod(in[0], a.dim); },
                            .backward = cumprod_gradient,
                            .saves = {1, true}};

Tensor cumprod_of_cut(const Tensor& a, const Scan& scan) {
  const LegalLayoutsOf legal(kCumprod, a, scan);
  const NoGrad no_grad;
  const Tensor x = without_partial(a);
  const LocalTensor part = widened(x.local());
  if (x.spec().is_outside()) return lying_as(x, part.to(scanned_dtype(x.dtype())));
  const LocalTensor before = before_this_part(x, scan, tensors::prod(part, scan.dim, true));
  const LocalTensor all =
      tensors::mul(tensors::cumprod(part, scan.dim), tensors::prod(before, scan.dim, true));
  return lying_as(x, all.to(scanned_dtype(x.dtype())));
}

}  // namespace

Tensor cumsum(const Tensor& a, int dim) {
  return named_call("cumsum", {{"input", a}},
                    [&] { return call_cumsum(a, {named_dim_or_only("cumsum", a, dim)}); });
}
Tensor cumprod(const Tensor& a, int dim) {
  return named_call("cumprod", {{"input", a}}, [&] {
    const Scan scan{named_dim_or_only("cumprod", a, dim)};
    if (!is_cut_along(a, scan.dim)) return call(kCumprod, a, scan);
    return recorded(kCumprod, a, cumprod_of_cut(a, scan), scan);
  });
}

// Sums and products of integers are i64, which come to the same in any narrower type.
Tensor cumsum(const Tensor& a, int dim, DType dtype) {
  return named_call("cumsum", {{"input", a}}, [&] { return cumsum(a.to(dtype), dim).to(dtype); });
}
Tensor cumprod(const Tensor& a, int dim, DType dtype) {
  return named_call("cumprod", {{"input", a}}, [&] { return cumprod(a.to(dtype), dim).to(dtype); });
}

}  // namespace dtrun::dtensor
