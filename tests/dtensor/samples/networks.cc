// Attention, convolution, dropout.
#include "dtensor/samples/samples.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/convolution.h"
#include "dtrun/dtensor/ops/random.h"

namespace dtrun::dtensor {
namespace {

using T = const Tensor&;

void add_attentions(Samples& s) {
  const Shape heads = {2, 2, s.rows, 4}, one_head = {2, 1, s.rows + 1, 4};
  const auto three = [&] { return Tensors{s.made(heads), s.made(heads), s.made(heads)}; };
  const auto attention = [&](const std::string& form, const Tensors& inputs,
                             const auto& options_of) {
    s.add("scaled_dot_product_attention" + form, inputs, [options_of](const Tensors& in) {
      const RandomScope scope({});  // the same each time
      return scaled_dot_product_attention(in[0], in[1], in[2], options_of(in));
    });
  };
  attention("", three(), [](const Tensors&) { return AttentionOptions{.is_causal = true}; });
  attention(", dropped", three(),
            [](const Tensors&) { return AttentionOptions{.is_causal = true, .dropout_p = 0.3}; });
  attention(", all keys", three(), [](const Tensors&) { return AttentionOptions{}; });
  attention(", scale", three(), [](const Tensors&) { return AttentionOptions{.scale = 0.3}; });
  Tensors masked = three(), weighed = three();
  masked.push_back(gt(s.made({s.rows, s.rows}), 0));
  weighed.push_back(s.made({s.rows, s.rows}));
  const auto with_mask = [](const Tensors& in) { return AttentionOptions{.attn_mask = in[3]}; };
  attention(", mask", masked, with_mask);
  attention(", weights", weighed, with_mask);
  attention(", grouped", {s.made(heads), s.made(one_head), s.made(one_head)},
            [](const Tensors&) { return AttentionOptions{.enable_gqa = true}; });
}

void add_convolutions(Samples& s) {
  const Tensor images = s.made({2, 2, s.rows, s.columns}), weight = s.made({4, 2, 2, 2});
  const Tensor bias = s.made({4});
  s.add("conv2d", {images, weight, bias}, [](T x, T w, T b) { return conv2d(x, w, b); });
  s.add("conv2d, no bias", {images, weight}, [](T x, T w) { return conv2d(x, w); });
  s.add("conv2d, stride and padding", {images, weight, bias}, [](T x, T w, T b) {
    return conv2d(x, w, b, {.stride = {2, 1}, .padding = {1, 2}});
  });
  s.add("conv2d, dilation", {images, weight, bias},
        [](T x, T w, T b) { return conv2d(x, w, b, {.padding = 1, .dilation = 2}); });
  s.add("conv2d, groups", {images, s.made({4, 1, 2, 2}), bias},
        [](T x, T w, T b) { return conv2d(x, w, b, {.padding = 1, .groups = 2}); });
  s.add("conv2d, one image", {s.made({2, s.rows, s.columns}), weight, bias},
        [](T x, T w, T b) { return conv2d(x, w, b); });
}

}  // namespace

void add_networks(Samples& s) {
  s.in("Networks");
  add_attentions(s);
  add_convolutions(s);
  s.add("dropout", {s.matrix()}, [](T a) {
    const RandomScope scope({});  // the same each time
    return dropout(a, {.p = 0.3});
  });
  s.add("dropout, in evaluation", {s.matrix()},
        [](T a) { return dropout(a, {.p = 0.3, .training = false}); });
  s.add("dropout, of all", {s.matrix()}, [](T a) {
    const RandomScope scope({});
    return dropout(a, {.p = 1});
  });
}

}  // namespace dtrun::dtensor
