// Rows and losses.
#include "dtrun/dtensor/ops/rows.h"

#include <algorithm>

#include "dtensor/samples/samples.h"

namespace dtrun::dtensor {
namespace {

using T = const Tensor&;

void add_norms(Samples& s) {
  const Tensor x = s.matrix(), weight = s.made({s.columns}), bias = s.made({s.columns});
  const Shape row = {s.columns}, all = s.shape();
  s.add("softmax", {x}, [](T a) { return softmax(a, 1); });
  s.add("log_softmax", {x}, [](T a) { return log_softmax(a, 1); });
  s.add("softmax, dim 0", {x}, [](T a) { return softmax(a, 0); });
  s.add("log_softmax, dim 0", {x}, [](T a) { return log_softmax(a, -2); });
  s.add("layer_norm", {x, weight, bias}, [row](T a, T w, T b) { return layer_norm(a, row, w, b); });
  s.add("softmax, dtype f64", {x}, [](T a) { return softmax(a, 0, DType::f64); });
  s.add("log_softmax, dtype f64", {x}, [](T a) { return log_softmax(a, 0, DType::f64); });
  s.add("layer_norm, no bias", {x, weight}, [row](T a, T w) { return layer_norm(a, row, w); });
  s.add("layer_norm, no weight", {x, bias},
        [row](T a, T b) { return layer_norm(a, row, Tensor(), b); });
  s.add("layer_norm, plain", {x}, [row](T a) { return layer_norm(a, row); });
  s.add("layer_norm, two dims, eps", {s.made({2, s.rows, s.columns}), s.matrix(), s.matrix()},
        [all](T a, T w, T b) { return layer_norm(a, all, w, b, 0.1); });
  s.add("rms_norm", {x, weight}, [row](T a, T w) { return rms_norm(a, row, w); });
  s.add("rms_norm, plain", {x}, [row](T a) { return rms_norm(a, row); });
  s.add("rms_norm, two dims, eps", {s.made({2, s.rows, s.columns}), s.matrix()},
        [all](T a, T w) { return rms_norm(a, all, w, 0.1); });
}

/// Of both losses of classes.
using Loss = Tensor (*)(const Tensor&, const Tensor&, const LossOptions&);
void add_class_loss(Samples& s, const std::string& name, Loss loss) {
  const Tensor x = s.matrix(), classes = s.numbers({s.rows}, s.columns);
  s.add(name, {x, classes}, [loss](T a, T t) { return loss(a, t, {}); });
  s.add(name + ", sum", {x, classes},
        [loss](T a, T t) { return loss(a, t, {.reduction = Reduction::sum}); });
  s.add(name + ", none", {x, classes},
        [loss](T a, T t) { return loss(a, t, {.reduction = Reduction::none}); });
  // 0, 1, ... so that not all are ignored.
  const Tensor each = remainder(arange(s.rows), std::max<std::int64_t>(s.columns, 1));
  s.add(name + ", ignore_index", {x, each},
        [loss](T a, T t) { return loss(a, t, {.ignore_index = 1}); });
  s.add(name + ", weight", {x, classes, s.between({s.columns}, 0.5, 2)},
        [loss](T a, T t, T w) { return loss(a, t, {.weight = w}); });
  s.add(name + ", weight, none", {x, classes, s.between({s.columns}, 0.5, 2)},
        [loss](T a, T t, T w) { return loss(a, t, {.reduction = Reduction::none, .weight = w}); });
  s.add(name + ", of places", {s.made({s.rows, s.columns, 2}), s.numbers({s.rows, 2}, s.columns)},
        [loss](T a, T t) { return loss(a, t, {}); });
  s.add(name + ", of one row", {s.made({s.columns}), s.numbers({}, s.columns)},
        [loss](T a, T t) { return loss(a, t, {}); });
}

void add_losses(Samples& s) {
  add_class_loss(s, "cross_entropy", cross_entropy);
  add_class_loss(s, "nll_loss", nll_loss);
  const Tensor x = s.matrix(), classes = s.numbers({s.rows}, s.columns);
  s.add("cross_entropy, label_smoothing", {x, classes},
        [](T a, T t) { return cross_entropy(a, t, {.label_smoothing = 0.25}); });
  s.add("cross_entropy, label_smoothing, weight", {x, classes, s.between({s.columns}, 0.5, 2)},
        [](T a, T t, T w) { return cross_entropy(a, t, {.weight = w, .label_smoothing = 0.25}); });
  s.add("cross_entropy, probabilities", {x, softmax(s.matrix(), 1)},
        [](T a, T t) { return cross_entropy(a, t); });
  s.add("cross_entropy, probabilities, none", {x, softmax(s.matrix(), 1)},
        [](T a, T t) { return cross_entropy(a, t, {.reduction = Reduction::none}); });
  const Tensor y = s.matrix();
  s.add("mse_loss", {x, y}, [](T a, T b) { return mse_loss(a, b); });
  s.add("mse_loss, sum", {x, y}, [](T a, T b) { return mse_loss(a, b, Reduction::sum); });
  s.add("mse_loss, none", {x, y}, [](T a, T b) { return mse_loss(a, b, Reduction::none); });
}

}  // namespace

void add_rows(Samples& s) {
  s.in("Rows and losses");
  add_norms(s);
  add_losses(s);
}

}  // namespace dtrun::dtensor
