// conv2d, and the gradients of images and weights. Each of the three is linear in both of its
// inputs, with gradients that are the other two.
#include "dtrun/dtensor/ops/convolution.h"

#include "autograd/call.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

struct Windows {
  ConvOptions options;
  HeightWidth image;
  HeightWidth window;
};
void append_key(CallKey& key, const HeightWidth& size) {
  key.push_back(size.height);
  key.push_back(size.width);
}
void append_key(CallKey& key, const Windows& a) {
  for (const HeightWidth& size :
       {a.options.stride, a.options.padding, a.options.dilation, a.image, a.window}) {
    append_key(key, size);
  }
  key.push_back(a.options.groups);
}
using WindowsContext = Context<Windows, None>;

enum class Part : std::uint8_t { images, weight, result };

/// Samples are index 0, outputs 1, inputs 2. With groups inputs and outputs go together, and only
/// samples are cut.
Rules::Indices conv_indices(Part part, const Windows& a) {
  const bool whole = a.options.groups > 1;
  const int outputs = whole ? sharding::kBroadcast : 1;
  const int inputs = whole ? sharding::kBroadcast : 2;
  switch (part) {
    case Part::images:
      return {0, inputs, sharding::kBroadcast, sharding::kBroadcast};
    case Part::weight:
      return {outputs, inputs, sharding::kBroadcast, sharding::kBroadcast};
    default:
      return {0, outputs, sharding::kBroadcast, sharding::kBroadcast};
  }
}

template <Part kLeft, Part kRight, Part kOutput>
void conv_rules(Rules& r, Metas, const Windows& a) {
  r.indices({conv_indices(kLeft, a), conv_indices(kRight, a)}, conv_indices(kOutput, a))
      .cut_all()
      .multiplicative();
}

Tensor convolved(const Tensor& images, const Tensor& weight, const Windows& a);
Tensor weight_gradient(const Tensor& gradient, const Tensor& images, const Windows& a);

/// gradient, weight -> that of the images
constexpr Op<Windows> kConvInputGradient{
    .name = "conv2d_input_gradient",
    .meta =
        [](Metas in, const Windows& a) {
          return Meta{
              {in[0].shape[0], in[1].shape[1] * a.options.groups, a.image.height, a.image.width},
              in[0].dtype};
        },
    .rules = conv_rules<Part::result, Part::weight, Part::images>,
    .local =
        [](Locals in, const Windows& a, const None&, const Site&) {
          return tensors::conv2d_input_gradient(in[0], in[1], a.image, a.options);
        },
    .backward = [](const WindowsContext& c) -> Tensors {
      const Windows& a = c.attributes();
      return {c.needs(0) ? convolved(c.grad(), c.input(1), a) : Tensor(),
              c.needs(1) ? weight_gradient(c.input(0), c.grad(), a) : Tensor()};
    },
    .saves = saves_inputs(0, 1)};

/// gradient, images -> that of the weight
constexpr Op<Windows> kConvWeightGradient{
    .name = "conv2d_weight_gradient",
    .meta =
        [](Metas in, const Windows& a) {
          return Meta{
              {in[0].shape[1], in[1].shape[1] / a.options.groups, a.window.height, a.window.width},
              in[0].dtype};
        },
    .rules = conv_rules<Part::result, Part::images, Part::weight>,
    .local =
        [](Locals in, const Windows& a, const None&, const Site&) {
          return tensors::conv2d_weight_gradient(in[0], in[1], a.window, a.options);
        },
    .backward = [](const WindowsContext& c) -> Tensors {
      const Windows& a = c.attributes();
      return {c.needs(0) ? convolved(c.input(1), c.grad(), a) : Tensor(),
              c.needs(1) ? call(kConvInputGradient, c.input(0), c.grad(), a) : Tensor()};
    },
    .saves = saves_inputs(0, 1)};

constexpr Op<Windows> kConv{
    .name = "conv2d",
    .meta =
        [](Metas in, const Windows& a) {
          return Meta{tensors::conv2d_shape(in[0].shape, in[1].shape, a.options), in[0].dtype};
        },
    .rules = conv_rules<Part::images, Part::weight, Part::result>,
    .local = [](Locals in, const Windows& a, const None&,
                const Site&) { return tensors::conv2d(in[0], in[1], a.options); },
    .backward = [](const WindowsContext& c) -> Tensors {
      const Windows& a = c.attributes();
      return {c.needs(0) ? call(kConvInputGradient, c.grad(), c.input(1), a) : Tensor(),
              c.needs(1) ? weight_gradient(c.grad(), c.input(0), a) : Tensor()};
    },
    .saves = saves_inputs(0, 1)};

Tensor convolved(const Tensor& images, const Tensor& weight, const Windows& a) {
  return call(kConv, images, weight, a);
}
Tensor weight_gradient(const Tensor& gradient, const Tensor& images, const Windows& a) {
  return call(kConvWeightGradient, gradient, images, a);
}

std::string conv_operand(const Tensor& tensor) {
  return std::string(tensors::dtype_short_name(tensor.dtype())) +
         tensors::shape_to_string(tensor.shape());
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  return named_call(
      "conv2d", {{"input", input}, {"weight", weight}, CallArgument::if_given("bias", bias)}, [&] {
        if (input.dim() == 3) return conv2d(input.unsqueeze(0), weight, bias, options).squeeze(0);
        // Before a size of it is read.
        tensors::conv2d_shape(input.shape(), weight.shape(), options);
        if (input.dtype() != weight.dtype() || !tensors::is_floating_point(input.dtype())) {
          throw Error(
              ErrorCode::kInvalidArgument,
              "conv2d of images " + conv_operand(input) + " and weights " + conv_operand(weight),
              "both have one floating point dtype", "to()");
        }
        if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
          throw Error(
              ErrorCode::kInvalidArgument,
              "conv2d of weights " + conv_operand(weight) + " and a bias " + conv_operand(bias),
              "it has a number for each output channel",
              "a bias of [" + std::to_string(weight.size(0)) + "]");
        }
        const Windows windows{
            options, {input.size(2), input.size(3)}, {weight.size(2), weight.size(3)}};
        const Tensor result = convolved(input, weight, windows);
        return bias.defined() ? add(result, bias.unsqueeze(-1).unsqueeze(-1)) : result;
      });
}

}  // namespace dtrun::dtensor
