// cat and stack, and the views that undo them.
#include "autograd/call.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/view_arguments.h"
#include "ops/named_dim.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

struct JoinedDim {
  int dim;
};
void append_key(CallKey& key, const JoinedDim& a) {
  key.push_back(a.dim);
}

constexpr Op<JoinedDim> kCat{
    .name = "cat",
    .meta =
        [](Metas in, const JoinedDim& a) {
          Meta meta = in[0];
          const std::size_t d = static_cast<std::size_t>(a.dim);
          for (const Meta& part : in.subspan(1)) {
            Shape other = part.shape;
            if (other.size() == meta.shape.size()) other[d] = meta.shape[d];
            if (other != meta.shape) {
              throw base::Error(base::ErrorCode::kInvalidArgument,
                                "cat along dim " + std::to_string(d) + " was given shapes " +
                                    tensors::shape_to_string(in[0].shape) + " and " +
                                    tensors::shape_to_string(part.shape),
                                "all dims but that one are equal",
                                "narrow() or pad() one of them, or another dim");
            }
            meta.shape[d] += part.shape[d];
            meta.dtype = tensors::promote_types(meta.dtype, part.dtype);
          }
          return meta;
        },
    .rules = [](Rules& r, Metas, const JoinedDim& a) { r.all_but(a.dim).cut_all().additive(); },
    .local =
        [](Locals in, const JoinedDim& a, const None&, const Site&) {
          std::vector<LocalTensor> parts;
          for (std::size_t i = 0; i < in.size(); ++i) parts.push_back(in[i]);
          return tensors::cat(parts, a.dim);
        },
    .backward = [](const Context<JoinedDim, None>& c) -> Tensors {
      Tensors gradients;
      const int dim = c.attributes().dim;
      std::int64_t start = 0;
      for (std::size_t i = 0; i < c.inputs(); ++i) {
        const std::int64_t length = c.shape(i)[static_cast<std::size_t>(dim)];
        gradients.push_back(c.needs(i) ? c.grad().narrow(dim, start, length).to(c.dtype(i))
                                       : Tensor());
        start += length;
      }
      return gradients;
    },
    .weighed = Weighed::there_and_back};

constexpr Op<WholeDim> kWholeForSplit = whole_along_for("split");

}  // namespace

Tensor cat(const Tensors& tensors, int dim) {
  return named_call("cat", {{"tensors", tensors}}, [&] {
    std::vector<const Tensor*> inputs;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) refuse_undefined("cat", i);
      // As in PyTorch, an empty 1-D tensor joins anything.
      if (tensors[i].shape() != Shape{0}) inputs.push_back(&tensors[i]);
    }
    if (tensors.empty()) {
      throw base::Error(base::ErrorCode::kInvalidArgument, "cat was given no tensors",
                        "shape and dtype are those of the first", "one tensor at least");
    }
    if (inputs.empty()) return tensors.front();
    if (inputs[0]->dim() == 0) {
      throw base::Error(base::ErrorCode::kInvalidArgument, "cat was given a tensor without dims",
                        "it lengthens a dim", "stack()");
    }
    const JoinedDim joined{named_dim("cat", *inputs[0], dim)};
    const Tensor result = call(kCat, std::span<const Tensor* const>(inputs), joined);
    // What was left out has a say here.
    DType common = result.dtype();
    for (const Tensor& tensor : tensors) common = tensors::promote_types(common, tensor.dtype());
    return result.dtype() == common ? result : result.to(common);
  });
}

Tensor stack(const Tensors& tensors, int dim) {
  return named_call("stack", {{"tensors", tensors}}, [&] {
    Tensors layers;
    for (const Tensor& tensor : tensors) {
      if (!tensor.defined()) refuse_undefined("stack", layers.size());
      if (tensor.shape() != tensors.front().shape()) {
        throw base::Error(base::ErrorCode::kInvalidArgument,
                          "stack was given shapes " +
                              tensors::shape_to_string(tensors.front().shape()) + " and " +
                              tensors::shape_to_string(tensor.shape()),
                          "they become the layers of one tensor",
                          "tensors of one shape, or cat() along a dim in which they differ");
      }
      layers.push_back(tensor.unsqueeze(dim));
    }
    if (layers.empty()) {
      throw base::Error(base::ErrorCode::kInvalidArgument, "stack was given no tensors",
                        "shape and dtype are those of the first", "one tensor at least");
    }
    return cat(layers, named_dim("stack", layers.front(), dim));
  });
}

Tensors split(const Tensor& a, const std::vector<std::int64_t>& sizes, int dim) {
  return named_call("split", {{"input", a}}, [&] {
    const int along = named_dim("split", a, dim);
    tensors::check_split_sizes(a.shape(), along, sizes);
    // Gathered once, and not for each piece.
    const bool is_cut = sizes.size() > 1 && is_cut_along(a, along);
    const Tensor whole = is_cut ? call(kWholeForSplit, a, WholeDim{along}) : a;
    if (is_cut) Graph::mark_copy(whole);  // and with it the pieces
    Tensors pieces;
    std::int64_t start = 0;
    for (const std::int64_t size : sizes) {
      pieces.push_back(whole.narrow(along, start, size));
      start += size;
    }
    return pieces;
  });
}

Tensors split(const Tensor& a, std::int64_t split_size, int dim) {
  return named_call("split", {{"input", a}},
                    [&] { return split(a, tensors::split_sizes(a.size(dim), split_size), dim); });
}

Tensors chunk(const Tensor& a, int chunks, int dim) {
  return named_call("chunk", {{"input", a}}, [&] {
    std::vector<std::int64_t> sizes = tensors::chunk_sizes(a.size(dim), chunks);
    // PyTorch leaves out pieces without elements where there are others.
    if (!sizes.empty() && sizes.front() > 0) std::erase(sizes, 0);
    return split(a, sizes, dim);
  });
}

}  // namespace dtrun::dtensor
