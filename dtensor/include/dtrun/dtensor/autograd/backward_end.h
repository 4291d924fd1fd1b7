// at_backward_end: what has to be done once all gradients of a backward pass are there, such as
// waiting for the sums that travel meanwhile. PyTorch's queue_callback().
#pragma once

#include <cstdint>
#include <functional>

namespace dtrun::dtensor {

enum class BackwardEnd : std::uint8_t {
  done,
  failed,  ///< an exception left it: not all gradients have come
};

/// To be called from within a backward pass: a hook, or a Function's backward. The callback runs
/// once, in this thread, when the outermost pass ends; callbacks run in the order they were given.
/// One that throws fails the pass, and those behind it hear so. Told `failed`, it must not throw.
/// @throws Error kUsage outside of a backward pass
void at_backward_end(std::function<void(BackwardEnd)> callback);

/// Backward passes of this thread that are under way, one within the other: 0 outside, 2 in a part
/// of the model that the first one recomputes.
int backward_depth();

}  // namespace dtrun::dtensor
