// GradientBuckets: what data_parallel() does in backward: collects gradients in buckets, sends them
// as they fill, and gives every rank the mean.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dtrun/dtensor/autograd/backward_end.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "parallel/hooked_leaf.h"

namespace dtrun::dtensor {

class GradientBuckets : public std::enable_shared_from_this<GradientBuckets> {
 public:
  /// @param parameters those that want gradients, in the order of registration
  GradientBuckets(nn::Module::NamedTensors parameters, ProcessGroup group,
                  DataParallelOptions options, const Tensor::Site& site);

  /// Hooks the parameters that are not hooked yet.
  void watch();
  void pause() { ++pauses_; }
  void go_on() { --pauses_; }
  bool is_paused() const { return pauses_ > 0; }
  const ProcessGroup& group() const { return group_; }

 private:
  struct Slot {
    std::string name;
    Tensor parameter;
    HookedLeaf hooked = {};
    std::size_t bucket = 0;
    std::int64_t offset = 0;  ///< in the bucket, in elements
    /// In one backward; a recomputed part of a model brings its own.
    int usual = 1;
    int arrivals = 0;
    int first_arrivals = 0;  ///< in the first backward
  };
  struct Bucket {
    std::vector<std::size_t> slots;
    std::int64_t elements = 0;
    std::size_t missing = 0;  ///< slots to which something is still to come
    bool travels = false;
    std::function<tensors::LocalTensor()> finish;
  };

  void arrive(std::size_t slot);
  void begin_pass();
  void end_pass(BackwardEnd end);
  void reset_pass();
  void launch_ready();
  tensors::LocalTensor new_numbers(const Bucket& bucket) const;
  void launch(std::size_t bucket);
  /// Waits for what the comm_hook has started.
  tensors::LocalTensor mean_of(Bucket& bucket) const;
  void deliver(Bucket& bucket);
  /// Puts the slots into buckets, in this order.
  void assign(const std::vector<std::size_t>& order);
  /// After the first pass: the order in which the first rank's gradients came.
  std::vector<std::size_t> learned_order() const;
  /// @throws Error kUsage where the graph is told to be static, and is not
  void check_static() const;
  [[noreturn]] void refuse_late(const Slot& slot) const;

  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  const ProcessGroup group_;
  const DataParallelOptions options_;
  const Tensor::Site site_;
  const std::shared_ptr<tensors::HostAllocator> memory_;  ///< of the buckets; null: ordinary
  int pauses_ = 0;
  bool in_pass_ = false;
  bool has_learned_ = false;
  std::size_t next_ = 0;              ///< bucket to travel
  std::vector<std::size_t> arrived_;  ///< slots, in the first pass
};

}  // namespace dtrun::dtensor
