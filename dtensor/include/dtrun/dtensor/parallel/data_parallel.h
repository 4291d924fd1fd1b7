// data_parallel: every rank has the whole model and computes on its own samples. Backward makes
// each gradient the mean over the ranks. torch.nn.parallel.DistributedDataParallel.
//
//     data_parallel(*model, mesh["dp"]);
//     loss_of((*model)(my_samples)).backward();
//
// Gradients travel in buckets while backward goes on. The first backward learns in which order they
// come, and how often each: its buckets travel at its end. Every backward ends with the same
// buckets in the same order on all ranks, whatever each of them used: a parameter that no rank used
// has no gradient, one that some rank used has one on all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/parallel/comm_hook.h"

namespace dtrun::dtensor {

/// When a bucket starts to travel.
enum class BucketLaunch : unsigned char {
  when_ready,  ///< its gradients are there, and those before it travel already
  at_end,      ///< of backward: for graphs in which a parameter is used more often in later steps
};

struct DataParallelOptions {
  /// Default: an eighth of the gradients, from 1 MiB to 25 MiB. The last bucket closes when
  /// backward ends, so nothing is computed while it travels.
  std::optional<std::int64_t> bucket_bytes = std::nullopt;
  /// The first bucket is small, so that communication starts early.
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  /// The first rank's buffers, in each forward of training.
  bool broadcast_buffers = true;
  BucketLaunch launch = BucketLaunch::when_ready;
  /// Each step uses the same parameters as often as the first one: a backward that does not is an
  /// error, which names one. DistributedDataParallel's static_graph.
  bool static_graph = false;
  /// Buckets lie in the group's shared memory, where the ranks of a machine read them in place.
  bool shared_memory = false;
  CommHook comm_hook = {};  ///< default: all_reduce_hook()
};

class GradientBuckets;

/// What data_parallel() gives. The module and its graphs keep what is needed: this handle may be
/// forgotten.
class DataParallel {
 public:
  explicit DataParallel(std::shared_ptr<GradientBuckets> buckets) : buckets_(std::move(buckets)) {}

  /// While it stands, backward() adds to this rank's gradients and sends nothing: for all but the
  /// last of several backwards before a step. The next backward() without it sends what they gave.
  class NoSync {
   public:
    explicit NoSync(std::shared_ptr<GradientBuckets> buckets);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    const std::shared_ptr<GradientBuckets> buckets_;
  };
  [[nodiscard]] NoSync no_sync() const { return NoSync(buckets_); }

 private:
  std::shared_ptr<GradientBuckets> buckets_;
};

/// Parameters and buffers become the first rank's. They may be distributed already along other mesh
/// axes (parallelize()). Which parameters want gradients is decided before. Collective over the
/// mesh, and so is every backward() of the module afterwards.
/// @param mesh of one axis; a slice, such as mesh["dp"]
/// @throws Error kInvalidArgument for a mesh of several axes, parameters distributed along this
/// one, and a module without parameters that want gradients; kDisagreement, naming the first
/// difference, where the ranks' modules differ in names, shapes, dtypes or layouts. Nothing is
/// changed then
DataParallel data_parallel(nn::Module& module, const DeviceMesh& mesh,
                           DataParallelOptions options = {},
                           Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor
