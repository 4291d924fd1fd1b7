// Deferred: a tensor without memory, of which is known how its first numbers are made. It gets
// memory when somebody says where it lies. Of one thread.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

class Deferred {
 public:
  using Write = std::function<void(const Tensor& tensor)>;

  // Of this thread: while it is on, empty() makes such tensors.
  static bool is_on() { return depth_ > 0; }
  static void enter() { ++depth_; }
  static void leave() { --depth_; }

  static Tensor make(const Shape& shape, tensors::TensorOptions options);
  static bool is(const Tensor& tensor) { return tensor.defined() && tensor.is_deferred(); }

  /// Runs a write on a tensor that has memory; of one that has none it is kept, with the streams of
  /// random numbers that it takes.
  static void write(const Tensor& tensor, int streams, Write write);

  /// The same tensor, with memory, as `numbers`, into which its writes go. All ranks make their own
  /// parts of the same numbers. @param numbers of its shape and dtype; outside of the graph
  static void fill(const Tensor& tensor, const Tensor& numbers);
  /// The same where all ranks of a mesh do so: the first one's random numbers. Collective.
  static void fill(const Tensor& tensor, const Tensor& numbers, const ProcessGroup& ranks,
                   const Tensor::Site& site);

 private:
  friend class Tensor;
  struct Kept {
    RandomState drawn_from;
    Write write;
  };
  static Deferred& of(const Tensor& tensor);

  static constinit thread_local int depth_;
  std::vector<Kept> writes_;
};

}  // namespace dtrun::dtensor
