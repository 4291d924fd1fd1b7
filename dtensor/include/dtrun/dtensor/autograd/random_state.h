// RandomState: where random numbers come from, per thread.
//
// Ranks must stay in step: all ranks of a mesh begin with the same seed and make the same calls, as
// they do with collectives. A rank that draws numbers alone does so in a RandomScope, or with a
// RandomKey, which takes nothing from the state.
#pragma once

#include <cstdint>

#include "dtrun/tensor/tensor_options.h"

namespace dtrun::dtensor {

using tensors::RandomKey;

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

}  // namespace dtrun::dtensor
