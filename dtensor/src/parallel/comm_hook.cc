#include "dtrun/dtensor/parallel/comm_hook.h"

namespace dtrun::dtensor {

using collectives::LocalTensor;
using collectives::ReduceOp;
using collectives::Work;

CommHook all_reduce_hook() {
  return [](const GradientBucket& bucket) {
    const Work work = bucket.group.all_reduce(bucket.numbers, ReduceOp::avg, {.async = true});
    return [work, numbers = bucket.numbers] {
      work.wait();
      return numbers;
    };
  };
}

CommHook bf16_compress_hook() {
  return [](const GradientBucket& bucket) {
    const LocalTensor halves = bucket.numbers.to(tensors::DType::bf16);
    const Work work = bucket.group.all_reduce(halves, ReduceOp::avg, {.async = true});
    return [work, halves, dtype = bucket.numbers.dtype()] {
      work.wait();
      return halves.to(dtype);
    };
  };
}

}  // namespace dtrun::dtensor
