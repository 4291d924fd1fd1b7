// Random numbers: the state that they come from, tensors of them, and dropout. Each call takes the
// next stream of the thread's state; within a stream a number is told by its place in the whole, so
// that a tensor has the same ones on one rank and on any mesh, cut any way.
//
// Ranks must stay in step: all ranks of a mesh begin with the same seed and make the same calls, as
// they do with collectives. A rank that draws numbers alone does so in a RandomScope, or with a
// RandomKey, which takes nothing from the state.
#pragma once

#include <cstdint>
#include <optional>

#include "dtrun/dtensor/creation.h"

namespace dtrun::dtensor {

/// What a checkpoint keeps, and sets again.
struct RandomState {
  std::uint64_t seed = 67280421310721;  ///< PyTorch's, until manual_seed()
  std::uint64_t calls = 0;              ///< streams that were taken
  friend bool operator==(const RandomState&, const RandomState&) = default;
};

/// Of this thread, for ranks may be threads; a new thread begins with the default one.
void manual_seed(std::uint64_t seed);
RandomState random_state();
void set_random_state(const RandomState& state);
/// The next stream.
RandomKey next_random_key();

/// While it lives this thread has another state; then it goes on as if nothing had been drawn.
class RandomScope {
 public:
  explicit RandomScope(const RandomState& state) : before_(random_state()) {
    set_random_state(state);
  }
  ~RandomScope() { set_random_state(before_); }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  const RandomState before_;
};

// Local ones; with a key in creation.h.
Tensor randn(const Shape& shape, TensorOptions options = {});  ///< standard normal
Tensor rand(const Shape& shape, TensorOptions options = {});   ///< of [0, 1)
Tensor rand(const Shape& shape, RandomKey key, TensorOptions options = {});
/// Whole numbers of [low, high).
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               TensorOptions options = {.dtype = DType::i64});
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, RandomKey key,
               TensorOptions options = {.dtype = DType::i64});
/// 0, 1, ... n-1 in a random order.
Tensor randperm(std::int64_t n, TensorOptions options = {.dtype = DType::i64});
Tensor randperm(std::int64_t n, RandomKey key, TensorOptions options = {.dtype = DType::i64});

// On a mesh: no communication. The numbers are those of the local one of the same key.
Tensor randn(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
             DType dtype = DType::f32);
Tensor rand(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
            DType dtype = DType::f32);
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const DeviceMesh& mesh,
               const Placements& placements, DType dtype = DType::i64);
Tensor randperm(std::int64_t n, const DeviceMesh& mesh, const Placements& placements,
                DType dtype = DType::i64);
/// Keyed: they take nothing from the state.
Tensor randn(const Shape& shape, RandomKey key, const DeviceMesh& mesh,
             const Placements& placements, DType dtype = DType::f32);
Tensor rand(const Shape& shape, RandomKey key, const DeviceMesh& mesh, const Placements& placements,
            DType dtype = DType::f32);

struct DropoutOptions {
  double p = 0.5;
  bool training = true;               ///< false: x as it is, and nothing is drawn
  std::optional<RandomKey> key = {};  ///< not given: the next stream
};
/// Each element is 0 with probability p, else x / (1 - p). The mask is not stored: the gradient
/// draws it again. @throws Error kInvalidArgument for integers and for a p outside of [0, 1]
Tensor dropout(const Tensor& x, const DropoutOptions& options = {});

}  // namespace dtrun::dtensor
