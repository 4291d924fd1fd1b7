// local_map makes a function of local tensors callable with distributed ones.
// torch.distributed.tensor.experimental.local_map.
//
//     const auto rows = local_map([](const Tensor& a, const Tensor& b) { return matmul(a, b); },
//                                 {.out_placements = {{Shard(0)}},
//                                  .in_placements = {{Shard(0)}, {Replicate()}},
//                                  .in_grad_placements = {{Shard(0)}, {Partial()}}});
//     const Tensor c = rows(x, w);
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// {Shard(0), Replicate()}, or std::nullopt.
class PlacementsOrNone : public std::optional<Placements> {
 public:
  PlacementsOrNone(std::initializer_list<Placement> placements)
      : std::optional<Placements>(Placements(placements)) {}
  PlacementsOrNone(Placements placements)
      : std::optional<Placements>(std::move(placements)) {}  // NOLINT
  PlacementsOrNone(std::nullopt_t) {}                        // NOLINT
};
/// One for each argument or result.
using PlacementsOfEach = std::vector<PlacementsOrNone>;

struct LocalMapOptions {
  /// How each result lies; nullopt: it stays local.
  PlacementsOfEach out_placements;
  /// How each argument has to lie; nullopt: it is no distributed tensor. Empty: as they come.
  PlacementsOfEach in_placements = {};
  /// Placements of each argument's gradient: Partial() where each rank uses a replicated argument
  /// for its own part of the result. nullopt, and empty: as the argument.
  PlacementsOfEach in_grad_placements = {};
  /// Of the results. Not given: the first distributed argument's; without one they stay local.
  DeviceMesh mesh = {};
  /// Arguments that lie otherwise than in_placements are redistributed; false: refused.
  bool redistribute_inputs = false;
  /// The results' global shapes, where parts differ in size. Empty: the parts' sizes times the
  /// axes' that cut them.
  std::vector<Shape> out_shapes = {};
};

/// One call: what f gets of the arguments, in their order, and what becomes of its results.
class LocalMapCall {
 public:
  /// @throws Error kInvalidArgument, as all of them, naming argument or result; kUsage outside of
  /// the mesh
  LocalMapCall(const LocalMapOptions& options, std::size_t arguments, const Tensor::Site& site);
  /// Collective where the argument is redistributed.
  Tensor local_of(const Tensor& argument);
  /// Other arguments are passed on.
  template <typename Other>
  requires(!std::convertible_to<Other, Tensor>) const Other& local_of(const Other& argument) {
    pass_other();
    return argument;
  }
  Tensor joined(const Tensor& result) const;
  Tensors joined(const Tensors& results) const;

 private:
  void pass_other();
  Tensor join(const Tensor& result, std::size_t which) const;

  const LocalMapOptions& options_;
  const Tensor::Site site_;
  DeviceMesh mesh_;
  std::size_t next_ = 0;
};

/// @param f a function of tensors and other arguments that returns a Tensor or Tensors @return the
/// same function of distributed tensors. Gradients flow. f gets local tensors and does its own
/// communication.
template <typename F>
auto local_map(F f, LocalMapOptions options, Tensor::Site site = Tensor::Site::current()) {
  return [f = std::move(f), options = std::move(options), site](const auto&... arguments) {
    LocalMapCall call(options, sizeof...(arguments), site);
    // Within braces they are brought from left to right, on all ranks.
    using Parts = std::tuple<decltype(call.local_of(arguments))...>;
    return call.joined(std::apply(f, Parts{call.local_of(arguments)...}));
  };
}

}  // namespace dtrun::dtensor
