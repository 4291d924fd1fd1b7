#include "parallel/gradient_buckets.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "move/span.h"
#include "move/told_calls.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;
using tensors::Shape;

GradientBuckets::GradientBuckets(nn::Module::NamedTensors parameters, ProcessGroup group,
                                 DataParallelOptions options, const Tensor::Site& site)
    : group_(std::move(group)),
      options_(std::move(options)),
      site_(site),
      memory_(options_.shared_memory ? group_.shared_memory() : nullptr) {
  std::vector<std::size_t> order;
  for (auto& [name, parameter] : parameters) {
    order.push_back(slots_.size());
    slots_.push_back({.name = name, .parameter = parameter});
  }
  // Gradients come from the end of a model to its beginning, as a rule.
  std::reverse(order.begin(), order.end());
  assign(order);
}

// A bucket is done when its last gradient is: buckets travel in the order in which they close.
void GradientBuckets::assign(const std::vector<std::size_t>& order) {
  buckets_.clear();
  std::map<std::pair<tensors::DType, tensors::DeviceType>, Bucket> open;
  const auto close = [&](Bucket bucket) {
    for (const std::size_t slot : bucket.slots) slots_[slot].bucket = buckets_.size();
    buckets_.push_back(std::move(bucket));
  };
  for (const std::size_t index : order) {
    Slot& slot = slots_[index];
    const LocalTensor& local = slot.parameter.local();
    Bucket& bucket = open[{local.dtype(), local.device().type}];
    slot.offset = bucket.elements;
    bucket.slots.push_back(index);
    bucket.elements += local.numel();
    const std::int64_t limit =
        buckets_.empty() ? options_.first_bucket_bytes : options_.bucket_bytes.value();
    const auto bytes =
        bucket.elements * static_cast<std::int64_t>(tensors::item_size(local.dtype()));
    if (bytes >= limit) close(std::exchange(bucket, {}));
  }
  // All ranks close them in the same order: a map is sorted by dtype and device type.
  for (auto& [kind, bucket] : open) {
    if (!bucket.slots.empty()) close(std::move(bucket));
  }
  reset_pass();
}

void GradientBuckets::watch() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!slot.hooked.is_new(slot.parameter)) continue;
    slot.parameter.register_post_accumulate_grad_hook([i, weak = weak_from_this()](const Tensor&) {
      if (const auto buckets = weak.lock()) buckets->arrive(i);
    });
  }
}

void GradientBuckets::arrive(std::size_t index) {
  if (is_paused()) return;
  Slot& slot = slots_[index];
  if (Graph::is_on()) {
    throw Error(ErrorCode::kUnavailable, "create_graph through data_parallel()",
                "the mean of \"" + slot.name + "\"'s gradients over the ranks has no gradient",
                "backward() without create_graph, or within no_sync()");
  }
  begin_pass();
  Bucket& bucket = buckets_[slot.bucket];
  ++slot.arrivals;
  // What is in flight takes no more gradients, and the mean would replace what came late.
  if (bucket.travels) refuse_late(slot);
  if (!has_learned_ && slot.arrivals == 1) arrived_.push_back(index);
  if (slot.arrivals == slot.usual) --bucket.missing;
  if (has_learned_ && options_.launch == BucketLaunch::when_ready) launch_ready();
}

void GradientBuckets::refuse_late(const Slot& slot) const {
  throw Error(ErrorCode::kUsage,
              "data_parallel: gradient " + std::to_string(slot.arrivals) + " of \"" + slot.name +
                  "\" came after its bucket had been sent",
              "the first backward brought " + std::to_string(slot.usual) +
                  ": a part of the model is recomputed more often now",
              "data_parallel(..., {.launch = BucketLaunch::at_end})");
}

void GradientBuckets::begin_pass() {
  if (std::exchange(in_pass_, true)) return;
  at_backward_end([self = shared_from_this()](BackwardEnd end) { self->end_pass(end); });
}

void GradientBuckets::launch_ready() {
  // In their order only, also where a later bucket is full first: all ranks must start the same
  // collectives in the same order.
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) launch(next_++);
}

/// The gradients, and a mark for each slot that has one.
LocalTensor GradientBuckets::new_numbers(const Bucket& bucket) const {
  const LocalTensor& first = slots_[bucket.slots[0]].parameter.local();
  std::optional<tensors::HostAllocatorScope> scope;
  if (memory_) scope.emplace(*memory_);
  return tensors::empty({bucket.elements + static_cast<std::int64_t>(bucket.slots.size())},
                        {first.dtype(), first.device()});
}

// A copy: what the user sees meanwhile in grad() is this rank's own.
void GradientBuckets::launch(std::size_t index) {
  Bucket& bucket = buckets_[index];
  const auto count = static_cast<std::int64_t>(bucket.slots.size());
  const LocalTensor numbers = new_numbers(bucket);
  for (std::int64_t i = 0; i < count; ++i) {
    const Slot& slot = slots_[bucket.slots[static_cast<std::size_t>(i)]];
    const LocalTensor& local = slot.parameter.local();
    const LocalTensor place = numbers.narrow(0, slot.offset, local.numel());
    const Tensor gradient = slot.parameter.grad();
    if (gradient.defined()) {
      place.view(local.shape()).copy_(gradient.local());
    } else {
      place.fill_(0);
    }
    // Behind the gradients stands for each parameter whether this rank has one. The mean of these
    // is 0 where no rank has.
    numbers.select(0, bucket.elements + i).fill_(gradient.defined() ? 1 : 0);
  }
  bucket.travels = true;
  const ToldCalls told("data_parallel's bucket", site_);
  bucket.finish = options_.comm_hook(
      {.numbers = numbers, .index = index, .count = buckets_.size(), .group = group_});
}

void GradientBuckets::end_pass(BackwardEnd end) {
  // Also where a communication fails: the next pass begins anew.
  const struct Reset {
    GradientBuckets& buckets;
    ~Reset() { buckets.reset_pass(); }
  } reset{*this};
  if (end == BackwardEnd::failed) return;
  while (next_ < buckets_.size()) launch(next_++);
  for (Bucket& bucket : buckets_) deliver(bucket);
  if (has_learned_) return check_static();
  for (Slot& slot : slots_) {
    slot.first_arrivals = slot.arrivals;
    // A parameter that was not used counts as used once: its bucket waits for it until the end.
    slot.usual = std::max(1, slot.arrivals);
  }
  const std::vector<std::size_t> order = learned_order();
  has_learned_ = true;
  assign(order);
}

// At the end, when the other ranks have what this one owes them.
void GradientBuckets::check_static() const {
  if (!options_.static_graph) return;
  for (const Slot& slot : slots_) {
    if (slot.arrivals == slot.first_arrivals) continue;
    throw Error(ErrorCode::kUsage,
                "data_parallel: backward brought \"" + slot.name + "\" " +
                    std::to_string(slot.arrivals) + " gradients on this rank",
                "static_graph: the first one brought " + std::to_string(slot.first_arrivals),
                "a model that uses the same parameters in each step, or no static_graph");
  }
}

LocalTensor GradientBuckets::mean_of(Bucket& bucket) const {
  const std::function<LocalTensor()> finish = std::exchange(bucket.finish, nullptr);
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "data_parallel: the comm_hook gave " + what,
                "it starts the communication of a bucket, and what it returns gives the mean",
                "return a function that waits and gives a tensor such as GradientBucket::numbers");
  };
  if (!finish) refuse("no function");
  LocalTensor mean;
  {
    const Span span(Span::Kind::wait, "wait for gradients");
    mean = finish();
  }
  if (!mean.defined()) refuse("no tensor");
  const LocalTensor& first = slots_[bucket.slots[0]].parameter.local();
  const Shape wanted = {bucket.elements + static_cast<std::int64_t>(bucket.slots.size())};
  if (mean.shape() == wanted && mean.dtype() == first.dtype()) return mean;
  const auto described = [](tensors::DType dtype, const Shape& shape) {
    return std::string(tensors::dtype_short_name(dtype)) + tensors::shape_to_string(shape);
  };
  refuse(described(mean.dtype(), mean.shape()) + " for a bucket of " +
         described(first.dtype(), wanted));
  return {};
}

void GradientBuckets::deliver(Bucket& bucket) {
  const LocalTensor mean = mean_of(bucket);
  const auto count = static_cast<std::int64_t>(bucket.slots.size());
  const std::vector<double> shares = mean.narrow(0, bucket.elements, count).to_vector();
  for (std::size_t i = 0; i < bucket.slots.size(); ++i) {
    const Slot& slot = slots_[bucket.slots[i]];
    if (shares[i] == 0 || Graph::leaf(slot.parameter) == nullptr) continue;
    const LocalTensor& local = slot.parameter.local();
    const LocalTensor gradient = mean.narrow(0, slot.offset, local.numel()).view(local.shape());
    slot.parameter.set_grad(slot.parameter.is_distributed()
                                ? Tensor(slot.parameter.spec(), gradient)
                                : Tensor(gradient));
  }
}

void GradientBuckets::reset_pass() {
  in_pass_ = false;
  next_ = 0;
  arrived_.clear();
  for (Slot& slot : slots_) slot.arrivals = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.slots.size();
    bucket.travels = false;
    bucket.finish = nullptr;
  }
}

std::vector<std::size_t> GradientBuckets::learned_order() const {
  std::vector<std::size_t> order = arrived_;
  for (std::size_t i = slots_.size(); i-- > 0;) {
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  }
  const LocalTensor sent =
      tensors::zeros({static_cast<std::int64_t>(order.size())}, {tensors::DType::i64});
  std::copy(order.begin(), order.end(), sent.data_as<std::int64_t>());
  const LocalTensor there = sent.to(slots_[0].parameter.device());
  // Rank 0's order counts on all ranks, because the buckets must be the same everywhere.
  const ToldCalls told("the order of data_parallel's buckets", site_);
  group_.broadcast(there, 0, {}, site_);
  const std::vector<std::int64_t> first = there.to_vector_i64();
  return {first.begin(), first.end()};
}

}  // namespace dtrun::dtensor
