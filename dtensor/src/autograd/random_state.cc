#include "dtrun/dtensor/autograd/random_state.h"

namespace dtrun::dtensor {
namespace {

RandomState& this_threads_state() {
  static thread_local RandomState state;
  return state;
}

}  // namespace

void manual_seed(std::uint64_t seed) {
  this_threads_state() = {seed, 0};
}
RandomState random_state() {
  return this_threads_state();
}
void set_random_state(const RandomState& state) {
  this_threads_state() = state;
}
RandomKey next_random_key() {
  RandomState& state = this_threads_state();
  return {.seed = state.seed, .stream = state.calls++};
}

}  // namespace dtrun::dtensor
