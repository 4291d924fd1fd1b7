// Reductions and scans.
#include "dtrun/dtensor/ops/reduction.h"

#include <limits>

#include "dtensor/samples/samples.h"

namespace dtrun::dtensor {
namespace {

using T = const Tensor&;

void add_over_dims(Samples& s, const Tensor& x) {
  using OverDims = Tensor (*)(const Tensor&, const ::std::vector<int>&, bool);
  const ::std::vector<::std::pair<::std::string, OverDims>> over_dims = {
      {"sum", sum},   {"mean", mean},          {"any", any}, {"all", all}, {"amax", amax},
      {"amin", amin}, {"logsumexp", logsumexp}};
  for (const auto& [name, op] : over_dims) {
    s.add(name, {x}, [op = op](T a) { return op(a, {0}, false); });
    s.add(name + ", all dims", {x}, [op = op](T a) { return op(a, {}, false); });
    s.add(name + ", dims kept", {x}, [op = op](T a) { return op(a, {0, -1}, true); });
    s.add(name + ", dim -1 kept", {x}, [op = op](T a) { return op(a, {-1}, true); });
  }
}

void add_along_one_dim(Samples& s, const Tensor& x) {
  s.add("prod", {x}, [](T a) { return prod(a, 0); });
  s.add("prod, all dims", {x}, [](T a) { return prod(a); });
  s.add("prod, dim -1 kept", {x}, [](T a) { return prod(a, -1, true); });
  s.add("max", {x}, [](T a) { return max(a, 0).values; });
  s.add("min", {x}, [](T a) { return min(a, 0).values; });
  s.add("max, all dims", {x}, [](T a) { return max(a); });
  s.add("min, all dims", {x}, [](T a) { return min(a); });
  s.add("max, dim -1 kept", {x}, [](T a) { return max(a, -1, true).values; });
  s.add("min, dim -1 kept", {x}, [](T a) { return min(a, -1, true).values; });
  s.add("max, indices", {x}, [](T a) { return max(a, 0).indices; });
  s.add("min, indices", {x}, [](T a) { return min(a, 0).indices; });
  s.add("argmax", {x}, [](T a) { return argmax(a, 0); });
  s.add("argmin", {x}, [](T a) { return argmin(a, 0); });
  s.add("argmax, all dims", {x}, [](T a) { return argmax(a); });
  s.add("argmin, all dims", {x}, [](T a) { return argmin(a); });
  s.add("argmax, dim -1 kept", {x}, [](T a) { return argmax(a, -1, true); });
  s.add("argmin, dim -1 kept", {x}, [](T a) { return argmin(a, -1, true); });
  s.add("cumsum", {x}, [](T a) { return cumsum(a, 0); });
  s.add("cumprod", {x}, [](T a) { return cumprod(a, 0); });
  s.add("cumsum, dim -1", {x}, [](T a) { return cumsum(a, -1); });
  s.add("cumprod, dim -1", {x}, [](T a) { return cumprod(a, -1); });
}

void add_statistics(Samples& s, const Tensor& x) {
  s.add("var", {x}, [](T a) { return var(a, {0}); });
  s.add("stddev", {x}, [](T a) { return stddev(a, {0}); });
  s.add("var, all dims", {x}, [](T a) { return var(a); });
  s.add("stddev, all dims", {x}, [](T a) { return dtensor::std(a); });
  s.add("var, dim -1 kept", {x}, [](T a) { return var(a, {-1}, 1, true); });
  s.add("stddev, dim -1 kept", {x}, [](T a) { return stddev(a, {-1}, 1, true); });
  s.add("var, correction 0", {x}, [](T a) { return var(a, {0}, 0); });
  s.add("stddev, correction 0", {x}, [](T a) { return stddev(a, {0}, 0); });
  s.add("norm", {x}, [](T a) { return norm(a, 2, {0}); });
  s.add("norm, all dims", {x}, [](T a) { return norm(a); });
  s.add("norm, dim -1 kept", {x}, [](T a) { return norm(a, 2, {-1}, true); });
  constexpr double kInfinity = ::std::numeric_limits<double>::infinity();
  const ::std::vector<::std::pair<::std::string, double>> powers = {
      {"0", 0}, {"1", 1}, {"3", 3}, {"-1.5", -1.5}, {"inf", kInfinity}, {"-inf", -kInfinity}};
  for (const auto& [name, power] : powers) {
    s.add("norm, power " + name, {x}, [power = power](T a) { return norm(a, power, {0}); });
  }
}

void add_of_dtype(Samples& s, const Tensor& x) {
  constexpr DType kWide = DType::f64;
  for (const DType dtype : {DType::f64, DType::i32}) {
    const ::std::string end = ", dtype " + ::std::string(tensors::dtype_short_name(dtype));
    s.add("sum" + end, {x}, [=](T a) { return sum(a, {0}, false, dtype); });
    s.add("prod" + end, {x}, [=](T a) { return prod(a, 0, false, dtype); });
    s.add("cumsum" + end, {x}, [=](T a) { return cumsum(a, 0, dtype); });
    s.add("cumprod" + end, {x}, [=](T a) { return cumprod(a, 0, dtype); });
    if (!tensors::is_floating_point(dtype)) continue;
    s.add("mean" + end, {x}, [=](T a) { return mean(a, {0}, false, dtype); });
  }
  s.add("sum, all dims, dtype f64", {x}, [](T a) { return sum(a, kWide); });
  s.add("mean, all dims, dtype f64", {x}, [](T a) { return mean(a, kWide); });
  s.add("prod, all dims, dtype f64", {x}, [](T a) { return prod(a, kWide); });
  s.add("sum, dims kept, dtype f64", {x}, [](T a) { return sum(a, {0, -1}, true, kWide); });
  s.add("prod, dim -1 kept, dtype f64", {x}, [](T a) { return prod(a, -1, true, kWide); });
}

}  // namespace

void add_reductions(Samples& s) {
  s.in("Reductions and scans, along dim 0");
  const Tensor x = s.matrix();
  add_over_dims(s, x);
  add_along_one_dim(s, x);
  add_statistics(s, x);
  add_of_dtype(s, x);
}

}  // namespace dtrun::dtensor
