// Views of tensors, and copies with another dtype. Their gradients are views as well.
#include <algorithm>
#include <numeric>

#include "autograd/call.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/view_arguments.h"
#include "move/cause.h"
#include "move/neutral.h"
#include "ops/named_dim.h"

namespace dtrun::dtensor {
namespace {

using sharding::kBroadcast;

struct Sizes {
  Shape sizes;
};
void append_key(CallKey& key, const Sizes& a) {
  for (const std::int64_t size : a.sizes) key.push_back(size);
}

struct DimOrder {
  std::vector<int> dims;
};
void append_key(CallKey& key, const DimOrder& a) {
  for (const int dim : a.dims) key.push_back(dim);
}

struct OneDim {
  int dim;
};
void append_key(CallKey& key, const OneDim& a) {
  key.push_back(a.dim);
}

struct Range {
  int dim;
  tensors::SliceRange of;
};
void append_key(CallKey& key, const Range& a) {
  key.push_back(a.dim);
  key.push_back(a.of.first);
  key.push_back(a.of.end);
  key.push_back(a.of.step);
}
/// Along the dim, of one that holds all of it.
LocalTensor sliced(const LocalTensor& tensor, const Range& a) {
  return tensor.slice(a.dim, a.of.first, a.of.end, a.of.step);
}
Tensor sliced(const Tensor& tensor, const Range& a);

/// More than one rank has places of the dim.
bool is_dealt_along(const Spec& spec, int dim) {
  const Layout& layout = spec.layout();
  const DeviceMesh mesh = spec.mesh();
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (layout.is_shard(axis) && layout.dim(axis) == dim && mesh.shape()[axis] > 1) return true;
  }
  return false;
}

/// Of a part of a distributed tensor. Where the dim is cut, the range is one place, and who does
/// not have it gives what leaves a sum as it is.
LocalTensor row_of_part(const LocalTensor& part, const Range& a, const Site& site) {
  const auto dim = static_cast<std::size_t>(a.dim);
  const Spec& whole = site.inputs[0];
  if (!is_dealt_along(whole, a.dim)) return sliced(part, a);
  const std::int64_t place = a.of.first - whole.local_box().offsets[dim];
  if (place < 0 || place >= part.shape()[dim])
    return neutral_like(part, site.output.local_box().shape, ReduceOp::sum);
  return part.narrow(a.dim, place, 1).clone();
}

Meta sized(Metas in, const Sizes& a) {
  return {a.sizes, in[0].dtype};
}

/// Runs of dims of two shapes with the same number of elements. A dim of its own may always be cut,
/// the first of a longer run where all ranks get whole multiples of what stands behind it.
void reshape_rules(Rules& r, Metas in, const Sizes& a) {
  const Shape& from = in[0].shape;
  const Shape& to = a.sizes;
  Rules::Indices input(from.size(), kBroadcast);
  Rules::Indices output(to.size(), kBroadcast);
  std::vector<std::int64_t> evenly;
  int index = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  const auto skip_ones = [](const Shape& shape, std::size_t& d) {
    while (d < shape.size() && shape[d] == 1) ++d;
  };
  for (skip_ones(from, i), skip_ones(to, j); i < from.size() && j < to.size();
       skip_ones(from, i), skip_ones(to, j)) {
    const std::size_t first_i = i;
    const std::size_t first_j = j;
    std::int64_t left = from[i++];
    std::int64_t right = to[j++];
    while (left != right && i <= from.size() && j <= to.size()) {
      if (left < right && i < from.size()) {
        left *= from[i++];
      } else if (left > right && j < to.size()) {
        right *= to[j++];
      } else {
        break;
      }
    }
    const bool alone = i == first_i + 1 && j == first_j + 1;
    if (left != right) continue;
    input[first_i] = output[first_j] = index++;
    evenly.push_back(alone ? 0 : std::gcd(from[first_i], to[first_j]));
  }
  r.indices({std::move(input)}, std::move(output))
      .only_evenly(std::move(evenly))
      .cut_all()
      .rearranges();
}

/// Nobody writes to a gradient on its way: it may share its elements on some ranks alone.
Tensor reshaped_gradient(const Tensor& gradient, const Shape& shape);

Tensors back_to_shape(const Context<Sizes, None>& c) {
  return {reshaped_gradient(c.grad(), c.shape(0))};
}

constexpr Op<Sizes> kReshape{.name = "reshape",
                             .meta = sized,
                             .rules = reshape_rules,
                             .local =
                                 [](Locals in, const Sizes& a, const None&, const Site& site) {
                                   const LocalTensor reshaped =
                                       in[0].reshape(site.output_shape(a.sizes));
                                   // On a mesh a copy on all ranks, not on those alone whose part
                                   // cannot be viewed so.
                                   const bool shares = reshaped.storage() == in[0].storage();
                                   return site.output && shares ? reshaped.clone() : reshaped;
                                 },
                             .backward = back_to_shape,
                             .partial_gradient = PartialGradient::passed_on,
                             .weighed = Weighed::there_and_back};

constexpr Op<Sizes> kReshapeGradient{
    .name = "reshape",
    .meta = sized,
    .rules = reshape_rules,
    .local = [](Locals in, const Sizes& a, const None&,
                const Site& site) { return in[0].reshape(site.output_shape(a.sizes)); },
    .backward = back_to_shape,
    .partial_gradient = PartialGradient::passed_on};

Tensor reshaped_gradient(const Tensor& gradient, const Shape& shape) {
  return call(kReshapeGradient, gradient, Sizes{shape});
}

constexpr Op<Sizes> kView{
    .name = "view",
    .meta = sized,
    .rules = reshape_rules,
    .local = [](Locals in, const Sizes& a, const None&,
                const Site& site) { return in[0].view(site.output_shape(a.sizes)); },
    .backward = back_to_shape,
    .partial_gradient = PartialGradient::passed_on,
    .weighed = Weighed::there_and_back};

constexpr Op<Sizes> kExpand{
    .name = "expand",
    .meta = sized,
    .rules =
        [](Rules& r, Metas in, const Sizes& a) {
          const std::size_t added = a.sizes.size() - in[0].shape.size();
          Rules::Indices input;
          Rules::Indices output;
          for (std::size_t d = 0; d < a.sizes.size(); ++d) {
            const bool stretched = d < added || in[0].shape[d - added] != a.sizes[d];
            output.push_back(stretched ? kBroadcast : static_cast<int>(d));
            if (d >= added) input.push_back(output.back());
          }
          r.indices({std::move(input)}, std::move(output)).cut_all().rearranges();
        },
    .local = [](Locals in, const Sizes& a, const None&,
                const Site& site) { return in[0].expand(site.output_shape(a.sizes)); },
    .backward = [](const Context<Sizes, None>& c) -> Tensors {
      return {sum_to(c.grad(), c.shape(0))};
    },
    .partial_gradient = PartialGradient::passed_on};

std::vector<int> inverse(const std::vector<int>& dims) {
  std::vector<int> back(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    back[static_cast<std::size_t>(dims[d])] = static_cast<int>(d);
  }
  return back;
}

constexpr Op<DimOrder> kPermute{
    .name = "permute",
    .meta =
        [](Metas in, const DimOrder& a) {
          Meta meta{{}, in[0].dtype};
          for (const int dim : a.dims)
            meta.shape.push_back(in[0].shape[static_cast<std::size_t>(dim)]);
          return meta;
        },
    .rules =
        [](Rules& r, Metas in, const DimOrder& a) {
          Rules::Indices input = Rules::each_dim(in[0].shape);
          r.indices({std::move(input)}, a.dims).cut_all().rearranges();
        },
    .local = [](Locals in, const DimOrder& a, const None&,
                const Site&) { return in[0].permute(a.dims); },
    .backward = [](const Context<DimOrder, None>& c) -> Tensors {
      return {c.grad().permute(inverse(c.attributes().dims))};
    },
    .partial_gradient = PartialGradient::passed_on};

constexpr Op<OneDim> kUnsqueeze{
    .name = "unsqueeze",
    .meta =
        [](Metas in, const OneDim& a) {
          Meta meta = in[0];
          meta.shape.insert(meta.shape.begin() + a.dim, 1);
          return meta;
        },
    .rules =
        [](Rules& r, Metas in, const OneDim& a) {
          Rules::Indices input = Rules::each_dim(in[0].shape);
          Rules::Indices output = input;
          output.insert(output.begin() + a.dim, kBroadcast);
          r.indices({std::move(input)}, std::move(output)).cut_all().rearranges();
        },
    .local = [](Locals in, const OneDim& a, const None&,
                const Site&) { return in[0].unsqueeze(a.dim); },
    .backward = [](const Context<OneDim, None>& c) -> Tensors {
      return {c.grad().squeeze(c.attributes().dim)};
    },
    .partial_gradient = PartialGradient::passed_on};

/// Of a dim of size 1.
constexpr Op<OneDim> kSqueeze{
    .name = "squeeze",
    .meta =
        [](Metas in, const OneDim& a) {
          Meta meta = in[0];
          meta.shape.erase(meta.shape.begin() + a.dim);
          return meta;
        },
    .rules =
        [](Rules& r, Metas in, const OneDim& a) {
          Rules::Indices input = Rules::each_dim(in[0].shape);
          Rules::Indices output = input;
          output.erase(output.begin() + a.dim);
          input[static_cast<std::size_t>(a.dim)] = kBroadcast;
          r.indices({std::move(input)}, std::move(output)).cut_all().rearranges();
        },
    .local = [](Locals in, const OneDim& a, const None&,
                const Site&) { return in[0].squeeze(a.dim); },
    .backward = [](const Context<OneDim, None>& c) -> Tensors {
      return {c.grad().unsqueeze(c.attributes().dim)};
    },
    .partial_gradient = PartialGradient::passed_on};

/// The gradient of a slice: zeros, and it where it came from.
struct Padding {
  Range range;
  std::int64_t size;  ///< of the whole dim
};
void append_key(CallKey& key, const Padding& a) {
  append_key(key, a.range);
  key.push_back(a.size);
}

constexpr Op<Padding> kUnslice{
    .name = "slice_backward",
    .meta =
        [](Metas in, const Padding& a) {
          Meta meta = in[0];
          meta.shape[static_cast<std::size_t>(a.range.dim)] = a.size;
          return meta;
        },
    .rules = [](Rules& r, Metas,
                const Padding& a) { r.all_but(a.range.dim).cut_all().rearranges(); },
    .local =
        [](Locals in, const Padding& a, const None&, const Site&) {
          Shape shape = in[0].shape();
          shape[static_cast<std::size_t>(a.range.dim)] = a.size;
          const LocalTensor whole = tensors::zeros(shape, {in[0].dtype(), in[0].device()});
          sliced(whole, a.range).copy_(in[0]);
          return whole;
        },
    .backward = [](const Context<Padding, None>& c) -> Tensors {
      return {sliced(c.grad(), c.attributes().range)};
    },
    .partial_gradient = PartialGradient::passed_on};

constexpr Op<Range> kSlice{
    .name = "slice",
    .meta =
        [](Metas in, const Range& a) {
          Meta meta = in[0];
          meta.shape[static_cast<std::size_t>(a.dim)] = a.of.size();
          return meta;
        },
    .rules =
        [](Rules& r, Metas, const Range& a) {
          r.all_but(a.dim).cut_all().rearranges();
          // One row: whoever has it gives it.
          if (a.of.size() == 1) r.also({Shard(a.dim)}, Partial());
        },
    .local =
        [](Locals in, const Range& a, const None&, const Site& site) {
          return site.output ? row_of_part(in[0], a, site) : sliced(in[0], a);
        },
    .backward = [](const Context<Range, None>& c) -> Tensors {
      const Range& range = c.attributes();
      const std::int64_t size = c.shape(0)[static_cast<std::size_t>(range.dim)];
      return {call(kUnslice, c.grad(), Padding{range, size})};
    },
    .partial_gradient = PartialGradient::passed_on,
    .weighed = Weighed::there_and_back};

struct ToDType {
  DType dtype;
};
void append_key(CallKey& key, const ToDType& a) {
  key.push_back(static_cast<std::int64_t>(a.dtype));
}

constexpr Op<ToDType> kToDType{
    .name = "to",
    .meta =
        [](Metas in, const ToDType& a) {
          return Meta{in[0].shape, a.dtype};
        },
    .rules =
        [](Rules& r, Metas in, const ToDType& a) {
          r.pointwise().cut_all();
          // A cast down rounds each part, and the sum of those is
          // another.
          if (tensors::promote_types(in[0].dtype, a.dtype) == a.dtype) r.linear(0);
          // What is greater stays no less.
          if (tensors::is_floating_point(in[0].dtype) && tensors::is_floating_point(a.dtype))
            r.commutes(ReduceOp::max).commutes(ReduceOp::min);
        },
    .local = [](Locals in, const ToDType& a, const None&,
                const Site&) { return in[0].to(a.dtype); },
    .backward = [](const Context<ToDType, None>& c) -> Tensors {
      return {c.grad().to(c.dtype(0))};
    },
    .partial_gradient = PartialGradient::reduced};

constexpr Op<> kClone{
    .name = "clone",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().rearranges(); },
    .local = [](Locals in, const None&, const None&, const Site&) { return in[0].clone(); },
    .backward = [](const Context<None, None>& c) -> Tensors { return {c.grad()}; },
    .partial_gradient = PartialGradient::passed_on};

/// A view of a distributed tensor whose part had to move shows nobody's elements, and neither does
/// a view of such a one. @param is_cut it needs elements of several ranks, whatever this one has
Tensor as_view(const Tensor& base, Tensor view, bool is_cut = false) {
  // What a backward pass makes are gradients: nobody takes them for views.
  const Cause* const cause = Cause::innermost();
  if (!base.is_distributed() || (cause != nullptr && cause->way() == Cause::Way::backward))
    return view;
  // Outside of the mesh nothing is anywhere.
  const bool is_elsewhere =
      !base.spec().is_outside() && view.local().storage() != base.local().storage();
  if (is_cut || is_elsewhere || Graph::is_copy(base)) Graph::mark_copy(view);
  return view;
}

Tensor sliced(const Tensor& tensor, const Range& a) {
  const bool is_cut = tensor.is_distributed() && is_dealt_along(tensor.spec(), a.dim);
  return as_view(tensor, call(kSlice, tensor, a), is_cut);
}

}  // namespace

Tensor Tensor::view(const Shape& shape) const {
  return named_call("view", {{"input", *this}}, [&] {
    return as_view(
        *this, call(kView, *this, Sizes{tensors::inferred_shape("view", this->shape(), shape)}));
  });
}

Tensor Tensor::reshape(const Shape& shape) const {
  return named_call("reshape", {{"input", *this}}, [&] {
    return call(kReshape, *this, Sizes{tensors::inferred_shape("reshape", this->shape(), shape)});
  });
}

Tensor Tensor::expand(const Shape& target) const {
  return named_call("expand", {{"input", *this}}, [&] {
    return as_view(*this, call(kExpand, *this, Sizes{tensors::expanded_shape(shape(), target)}));
  });
}

Tensor Tensor::permute(const std::vector<int>& dims) const {
  return named_call("permute", {{"input", *this}}, [&] {
    DimOrder order{dims};
    for (int& dim : order.dims) dim = named_dim("permute", *this, dim);
    std::vector<int> sorted = order.dims;
    std::ranges::sort(sorted);
    if (dims.size() != shape().size() || std::ranges::adjacent_find(sorted) != sorted.end()) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        "permute of shape " + tensors::shape_to_string(shape()) + " was given " +
                            std::to_string(dims.size()) + " dims",
                        "each dim of the tensor stands there once",
                        "an order of 0 to " + std::to_string(dim() - 1));
    }
    return as_view(*this, call(kPermute, *this, order));
  });
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  return named_call("transpose", {{"input", *this}}, [&] {
    if (shape().empty() && (dim0 == 0 || dim0 == -1) && (dim1 == 0 || dim1 == -1)) return *this;
    DimOrder order{std::vector<int>(shape().size())};
    std::iota(order.dims.begin(), order.dims.end(), 0);
    std::swap(order.dims[static_cast<std::size_t>(named_dim("transpose", *this, dim0))],
              order.dims[static_cast<std::size_t>(named_dim("transpose", *this, dim1))]);
    return as_view(*this, call(kPermute, *this, order));
  });
}

Tensor Tensor::t() const {
  return named_call("t", {{"input", *this}}, [&] {
    if (dim() > 2) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        "t() of a tensor of shape " + tensors::shape_to_string(shape()),
                        "it takes at most two dims", "transpose(-2, -1)");
    }
    return dim() < 2 ? *this : transpose(0, 1);
  });
}

Tensor Tensor::unsqueeze(int dim) const {
  return named_call("unsqueeze", {{"input", *this}}, [&] {
    return as_view(
        *this, call(kUnsqueeze, *this, OneDim{tensors::normalize_dim(dim, shape().size() + 1)}));
  });
}

Tensor Tensor::squeeze(int dim) const {
  return named_call("squeeze", {{"input", *this}}, [&] {
    if (shape().empty() && (dim == 0 || dim == -1)) return *this;
    const int d = named_dim("squeeze", *this, dim);
    return size(d) == 1 ? as_view(*this, call(kSqueeze, *this, OneDim{d})) : *this;
  });
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step) const {
  return named_call("slice", {{"input", *this}}, [&] {
    const int d = named_dim("slice", *this, dim);
    return sliced(*this, {d, tensors::slice_range(shape(), d, start, end, step)});
  });
}

Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  return named_call("narrow", {{"input", *this}}, [&] {
    const int d = named_dim("narrow", *this, dim);
    return sliced(*this, {d, tensors::narrow_range(shape(), d, start, length)});
  });
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  return named_call("select", {{"input", *this}}, [&] {
    const int d = named_dim("select", *this, dim);
    return narrow(d, tensors::index_in(shape(), d, index), 1).squeeze(d);
  });
}

Tensor Tensor::to(DType dtype) const {
  return dtype == this->dtype() ? *this : call(kToDType, *this, ToDType{dtype});
}

Tensor Tensor::clone() const {
  return call(kClone, *this);
}

Tensor Tensor::contiguous() const {
  return named_call("contiguous", {{"input", *this}}, [&] {
    // On a mesh some ranks' parts may be contiguous and others' not: all copy.
    return !is_distributed() && local().is_contiguous() ? *this : clone();
  });
}

}  // namespace dtrun::dtensor
