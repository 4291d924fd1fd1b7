#include "dtrun/dtensor/parallel/comm_hook.h"

#include "dtrun/tensor/shapes_only.h"
#include "move/cause.h"

namespace dtrun::dtensor {

using collectives::LocalTensor;
using collectives::ReduceOp;
using collectives::Work;

CommHook all_reduce_hook() {
  return [](const GradientBucket& bucket) {
    const Work work = bucket.group.all_reduce(bucket.numbers, ReduceOp::avg, {.async = true},
                                              Cause::site_of_call());
    return [work, numbers = bucket.numbers] {
      work.wait();
      return numbers;
    };
  };
}

CommHook bf16_compress_hook() {
  return [](const GradientBucket& bucket) {
    // Behind the gradients are numbers that are read: in a pass without numbers, too.
    const tensors::ShapesOnly computed(false);
    const LocalTensor halves = bucket.numbers.to(tensors::DType::bf16);
    const Work work =
        bucket.group.all_reduce(halves, ReduceOp::avg, {.async = true}, Cause::site_of_call());
    return [work, halves, dtype = bucket.numbers.dtype()] {
      work.wait();
      const tensors::ShapesOnly computed_here(false);
      return halves.to(dtype);
    };
  };
}

}  // namespace dtrun::dtensor
