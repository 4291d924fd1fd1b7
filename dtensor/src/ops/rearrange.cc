// flip, roll, tril, triu and pad. Along a cut dim flip and roll let only the elements travel that
// come to another rank; pad has it whole. A triangle may be cut in any way, for a part knows where
// it begins.
#include <algorithm>

#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/tensor/ops/index.h"
#include "ops/cut_line.h"
#include "ops/elementwise.h"
#include "ops/named_dim.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

void whole_along(Rules& r, const Shape& shape, std::span<const int> dims) {
  Rules::Indices each = Rules::each_dim(shape);
  for (const int dim : dims) each[static_cast<std::size_t>(dim)] = sharding::kBroadcast;
  r.indices({each}, each).cut_all();
}

std::vector<int> normalized_dims(std::string_view op, const Tensor& a, std::vector<int> dims) {
  for (int& dim : dims) dim = named_dim(op, a, dim);
  return dims;
}

struct FlippedDims {
  std::vector<int> dims;
};
void append_key(CallKey& key, const FlippedDims& a) {
  for (const int dim : a.dims) key.push_back(dim);
}
constexpr Op<FlippedDims> kFlip{.name = "flip",
                                .meta = [](Metas in, const FlippedDims&) { return in[0]; },
                                .rules =
                                    [](Rules& r, Metas in, const FlippedDims& a) {
                                      whole_along(r, in[0].shape, a.dims);
                                      r.rearranges();
                                    },
                                .local = [](Locals in, const FlippedDims& a, const None&,
                                            const Site&) { return tensors::flip(in[0], a.dims); },
                                .backward = [](const Context<FlippedDims, None>& c) -> Tensors {
                                  return {flip(c.grad(), c.attributes().dims)};
                                },
                                .partial_gradient = PartialGradient::passed_on};

struct Shifts {
  std::vector<std::int64_t> by;
};
constexpr Op<FlippedDims, Shifts> kRoll{
    .name = "roll",
    .meta = [](Metas in, const FlippedDims&) { return in[0]; },
    .rules =
        [](Rules& r, Metas in, const FlippedDims& a) {
          // No dims: all elements as one line.
          const std::vector<int> all = Rules::each_dim(in[0].shape);
          whole_along(r, in[0].shape, a.dims.empty() ? all : a.dims);
          r.rearranges();
        },
    .local = [](Locals in, const FlippedDims& a, const Shifts& v,
                const Site&) { return tensors::roll(in[0], v.by, a.dims); },
    .backward = [](const Context<FlippedDims, Shifts>& c) -> Tensors {
      std::vector<std::int64_t> back = c.numbers().by;
      for (std::int64_t& shift : back) shift = -shift;
      return {roll(c.grad(), back, c.attributes().dims)};
    },
    .partial_gradient = PartialGradient::passed_on};

bool is_cut_along_any(const Tensor& a, const std::vector<int>& dims) {
  return std::ranges::any_of(dims, [&](int dim) { return is_cut_along(a, dim); });
}

bool has_one_twice(std::vector<int> dims) {
  std::ranges::sort(dims);
  return std::ranges::adjacent_find(dims) != dims.end();
}

Tensor flip_of_cut(const Tensor& a, const std::vector<int>& dims) {
  const NoGrad no_grad;
  std::vector<int> whole;
  std::ranges::copy_if(dims, std::back_inserter(whole),
                       [&](int dim) { return !is_cut_along(a, dim); });
  Tensor result = whole.empty() ? a : call(kFlip, a, FlippedDims{whole});
  for (const int dim : dims) {
    if (!is_cut_along(a, dim)) continue;
    result = moved_along("flip", result, dim, {{0, 0, a.size(dim)}}, BlockOrder::reversed);
  }
  return result;
}

Tensor roll_of_cut(const Tensor& a, const std::vector<std::int64_t>& shifts,
                   const std::vector<int>& dims) {
  const NoGrad no_grad;
  // Not the operand itself, of which nothing may be left to roll.
  Tensor result = a.detach();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const int dim = dims[i];
    const std::int64_t size = a.size(dim);
    if (!is_cut_along(a, dim)) {
      result = call(kRoll, result, FlippedDims{{dim}}, Shifts{{shifts[i]}});
    } else if (size > 0) {
      const std::int64_t by = (shifts[i] % size + size) % size;
      result = moved_along("roll", result, dim, {{0, by, size - by}, {size - by, 0, by}},
                           BlockOrder::kept);
    }
  }
  return result;
}

struct Diagonal {
  std::int64_t above;
};
/// How far above the main diagonal of the part the one of the whole lies.
std::int64_t diagonal_of_part(const Diagonal& whole, const Site& site) {
  if (!site.output) return whole.above;
  const Shape& offsets = site.output.local_box().offsets;
  const std::size_t rank = offsets.size();
  return whole.above + offsets[rank - 2] - offsets[rank - 1];
}
Meta of_matrices(Metas in, const None&) {
  if (in[0].shape.size() >= 2) return in[0];
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "a triangle of a tensor of shape " + tensors::shape_to_string(in[0].shape),
                    "it takes matrices: two dims at least", "unsqueeze() it");
}
void any_cut(Rules& r, Metas in, const None&) {
  const Rules::Indices each = Rules::each_dim(in[0].shape);
  r.indices({each}, each).cut_all().rearranges();
}
constexpr Op<None, Diagonal> kTril{
    .name = "tril",
    .meta = of_matrices,
    .rules = any_cut,
    .local = [](Locals in, const None&, const Diagonal& v,
                const Site& site) { return tensors::tril(in[0], diagonal_of_part(v, site)); },
    .backward = [](const Context<None, Diagonal>& c) -> Tensors {
      return {tril(c.grad(), c.numbers().above)};
    },
    .partial_gradient = PartialGradient::passed_on};
constexpr Op<None, Diagonal> kTriu{
    .name = "triu",
    .meta = of_matrices,
    .rules = any_cut,
    .local = [](Locals in, const None&, const Diagonal& v,
                const Site& site) { return tensors::triu(in[0], diagonal_of_part(v, site)); },
    .backward = [](const Context<None, Diagonal>& c) -> Tensors {
      return {triu(c.grad(), c.numbers().above)};
    },
    .partial_gradient = PartialGradient::passed_on};

struct Pads {
  std::vector<std::int64_t> sizes;
};
void append_key(CallKey& key, const Pads& a) {
  for (const std::int64_t size : a.sizes) key.push_back(size);
}
constexpr Op<Pads, Number> kPad{
    .name = "pad",
    .meta = [](Metas in, const Pads& a) -> Meta {
      return {tensors::padded_shape(in[0].shape, a.sizes), in[0].dtype};
    },
    .rules =
        [](Rules& r, Metas in, const Pads& a) {
          const int rank = static_cast<int>(in[0].shape.size());
          std::vector<int> padded;
          for (std::size_t i = 0; i + 1 < a.sizes.size(); i += 2) {
            if (a.sizes[i] != 0 || a.sizes[i + 1] != 0)
              padded.push_back(rank - 1 - static_cast<int>(i / 2));
          }
          whole_along(r, in[0].shape, padded);
        },
    .local = [](Locals in, const Pads& a, const Number& v,
                const Site&) { return tensors::pad(in[0], a.sizes, v.value); },
    .backward = [](const Context<Pads, Number>& c) -> Tensors {
      std::vector<std::int64_t> cropped = c.attributes().sizes;
      for (std::int64_t& size : cropped) size = -size;
      return {pad(c.grad(), cropped)};
    },
    .partial_gradient = PartialGradient::passed_on,
    .weighed = Weighed::there_and_back};

}  // namespace

Tensor flip(const Tensor& a, const std::vector<int>& dims) {
  return named_call("flip", {{"input", a}}, [&] {
    if (a.dim() == 0) {  // it has one dim here, as in PyTorch
      for (const int dim : dims) named_dim_or_only("flip", a, dim);
      if (dims.size() > 1) tensors::flip(tensors::zeros({}), dims);  // throws: one dim, given twice
      return a.clone();
    }
    const FlippedDims flipped{normalized_dims("flip", a, dims)};
    if (!is_cut_along_any(a, flipped.dims) || has_one_twice(flipped.dims)) {
      return call(kFlip, a, flipped);
    }
    const LegalLayoutsOf legal(kFlip, a, flipped);
    return recorded(kFlip, a, flip_of_cut(a, flipped.dims), flipped);
  });
}
Tensor roll(const Tensor& a, const std::vector<std::int64_t>& shifts,
            const std::vector<int>& dims) {
  return named_call("roll", {{"input", a}}, [&] {
    const FlippedDims rolled{normalized_dims("roll", a, dims)};
    if (!is_cut_along_any(a, rolled.dims) || shifts.size() != rolled.dims.size()) {
      return call(kRoll, a, rolled, Shifts{shifts});
    }
    const LegalLayoutsOf legal(kRoll, a, rolled);
    return recorded(kRoll, a, roll_of_cut(a, shifts, rolled.dims), rolled, Shifts{shifts});
  });
}
Tensor tril(const Tensor& a, std::int64_t diagonal) {
  return call(kTril, a, None{}, Diagonal{diagonal});
}
Tensor triu(const Tensor& a, std::int64_t diagonal) {
  return call(kTriu, a, None{}, Diagonal{diagonal});
}
Tensor pad(const Tensor& a, const std::vector<std::int64_t>& pads, Scalar value) {
  return call(kPad, a, Pads{pads}, Number{value});
}

}  // namespace dtrun::dtensor
