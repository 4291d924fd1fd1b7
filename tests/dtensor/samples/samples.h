// What the samples are made with: inputs, and the calls under their names. Each family has a file
// of this folder.
#pragma once

#include <type_traits>
#include <utility>

#include "dtensor/operator_samples.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor {

class Samples {
 public:
  Samples(std::int64_t its_rows, std::int64_t its_columns) : rows(its_rows), columns(its_columns) {}

  const std::int64_t rows, columns;
  Shape shape() const { return {rows, columns}; }

  /// The samples that follow belong to it. A family's numbers do not depend on those before it.
  void in(std::string family, DType stand_in = DType::f64) {
    family_ = std::move(family);
    stand_in_ = stand_in;
    seed_ = 1000 * ++families_;
  }

  /// As many digits as an f32 has: small multiples of them are exact in f64.
  static Tensor short_numbers(const Tensor& a) { return a.to(DType::f32).to(DType::f64); }
  /// Another tensor each time, away from 0 and of both signs.
  Tensor made(const Shape& of_shape) {
    const Tensor normal = randn(of_shape, {++seed_}, {.dtype = DType::f64});
    return short_numbers(normal + sign(normal) * 0.25);
  }
  Tensor between(const Shape& of_shape, double low, double high) {
    const Tensor any = randn(of_shape, {++seed_}, {.dtype = DType::f64});
    return short_numbers(sigmoid(any) * (high - low) + low);
  }
  Tensor whole(const Shape& of_shape) { return floor(between(of_shape, 1, 9)); }
  Tensor numbers(const Shape& of_shape, std::int64_t below) {
    return floor(between(of_shape, 0, static_cast<double>(below))).to(DType::i64);
  }
  Tensor matrix() { return made(shape()); }
  Tensor mask() { return gt(matrix(), 0); }

  /// @param run of the inputs, each one by itself or all of them
  template <typename Run>
  OperatorSample& add(std::string name, Tensors inputs, Run run) {
    return all_.emplace_back(OperatorSample{family_, std::move(name),
                                            [run](const Tensors& in) { return called(run, in); },
                                            std::move(inputs), stand_in_});
  }
  /// @param change of a copy of the first input, and of the others
  template <typename Change>
  void in_place(std::string name, Tensors inputs, Change change) {
    add(std::move(name), std::move(inputs), [change](const Tensors& in) {
      Tensors with_copy = in;
      with_copy[0] = copy_of_first(in);
      called(change, with_copy);
      return with_copy[0];
    });
  }
  using OfOne = Tensor (*)(const Tensor&);
  using OfTwo = Tensor (*)(const Tensor&, const Tensor&);
  void of_one(const std::vector<std::pair<const char*, OfOne>>& ops, const Tensor& input) {
    for (const auto& [name, op] : ops) add(name, {input}, op);
  }
  void of_two(const std::vector<std::pair<const char*, OfTwo>>& ops, const Tensor& a,
              const Tensor& b) {
    for (const auto& [name, op] : ops) add(name, {a, b}, op);
  }

  std::vector<OperatorSample> take() { return std::move(all_); }

 private:
  /// Where no gradient is wanted a view is copied to a view, so that those are written to as well.
  static Tensor copy_of_first(const Tensors& in) {
    const Tensor& x = in[0];
    bool is_view = !x.is_distributed() && x.dim() > 1 && !x.is_contiguous();
    for (const Tensor& one : in) is_view = is_view && !one.requires_grad();
    return is_view ? x.transpose(0, -1).clone().transpose(0, -1) : x.clone();
  }
  template <typename Run>
  static decltype(auto) called(const Run& run, const Tensors& in) {
    using T = const Tensor&;
    if constexpr (std::is_invocable_v<Run, T>) {
      return run(in[0]);
    } else if constexpr (std::is_invocable_v<Run, T, T>) {
      return run(in[0], in[1]);
    } else if constexpr (std::is_invocable_v<Run, T, T, T>) {
      return run(in[0], in[1], in[2]);
    } else if constexpr (std::is_invocable_v<Run, T, T, T, T>) {
      return run(in[0], in[1], in[2], in[3]);
    } else {
      return run(in);
    }
  }

  std::string family_;
  DType stand_in_ = DType::f64;
  std::uint64_t families_ = 0;
  std::uint64_t seed_ = 0;
  std::vector<OperatorSample> all_;
};

void add_arithmetic(Samples& s);
void add_bits(Samples& s);
void add_functions(Samples& s);
void add_casts_and_fills(Samples& s);
void add_comparisons(Samples& s);
void add_reductions(Samples& s);
void add_rows(Samples& s);
void add_products(Samples& s);
void add_views(Samples& s);
void add_places(Samples& s);
void add_orders(Samples& s);
void add_networks(Samples& s);
void add_in_place(Samples& s);

}  // namespace dtrun::dtensor
