#include "autograd/deferred.h"

#include <memory>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {

constinit thread_local int Deferred::depth_ = 0;

Tensor Deferred::make(const Shape& shape, tensors::TensorOptions options) {
  const auto bytes =
      static_cast<std::size_t>(tensors::numel(shape)) * tensors::item_size(options.dtype);
  const auto nothing = tensors::Storage::wrap(nullptr, bytes, options.device, [] {});
  Tensor tensor(LocalTensor(nothing, options.dtype, shape, tensors::contiguous_strides(shape)));
  tensor.body_->deferred = std::make_unique<Deferred>();
  return tensor;
}

Deferred& Deferred::of(const Tensor& tensor) {
  DT_CHECK(is(tensor));
  return *tensor.body_->deferred;
}

void Deferred::write(const Tensor& tensor, int streams, Write write) {
  if (!is(tensor)) return write(tensor);
  of(tensor).writes_.push_back({random_state(), std::move(write)});
  for (int i = 0; i < streams; ++i) next_random_key();
}

void Deferred::fill(const Tensor& tensor, const Tensor& numbers) {
  const NoGrad no_grad;
  // What a write throws leaves the tensor without memory, as it was.
  for (const Kept& kept : tensor.body_->deferred->writes_) {
    const RandomScope same_numbers(kept.drawn_from);
    kept.write(numbers);
  }
  tensor.body_->deferred.reset();
  tensor.set_data(numbers);
}

void Deferred::fill(const Tensor& tensor, const Tensor& numbers, const ProcessGroup& ranks,
                    const Tensor::Site& site) {
  std::vector<Kept>& writes = of(tensor).writes_;
  const LocalTensor states =
      tensors::zeros({static_cast<std::int64_t>(2 * writes.size())}, {DType::i64});
  auto* const words = states.data_as<std::int64_t>();
  for (std::size_t i = 0; i < writes.size(); ++i) {
    words[2 * i] = static_cast<std::int64_t>(writes[i].drawn_from.seed);
    words[2 * i + 1] = static_cast<std::int64_t>(writes[i].drawn_from.calls);
  }
  const LocalTensor there = states.to(tensor.device());
  ranks.broadcast(there, 0, {}, site);
  const std::vector<std::int64_t> first = there.to_vector_i64();
  for (std::size_t i = 0; i < writes.size(); ++i) {
    writes[i].drawn_from = {static_cast<std::uint64_t>(first[2 * i]),
                            static_cast<std::uint64_t>(first[2 * i + 1])};
  }
  fill(tensor, numbers);
}

void Tensor::refuse_deferred_use() const {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "the numbers of a tensor of shape " + tensors::shape_to_string(shape()) +
                        " are used, which has no memory yet",
                    "it was made within nn::MetaScope",
                    "fully_shard(), parallelize() or distribute_module() first; "
                    "nn::materialize(module) for what stays whole");
}

}  // namespace dtrun::dtensor
