#include "staged/staged_backend.h"

#include <utility>

namespace dtrun::collectives::staged {

StagedBackend::StagedBackend(std::unique_ptr<Backend> host, std::shared_ptr<DeviceApi> device,
                             std::shared_ptr<PinnedPool> pool)
    : host_(std::move(host)), device_(std::move(device)), pool_(std::move(pool)) {}

// Operations in flight copy back to the device: they end while the tables are there.
StagedBackend::~StagedBackend() {
  host_->shutdown();
}

StagedCall StagedBackend::staged(int device, Call call) {
  std::shared_ptr<CopyStream> stream;
  {
    // Threads may send and receive at the same time.
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<CopyStream>& place = streams_[device];
    if (!place) place = std::make_shared<CopyStream>(device_, device);
    stream = place;
  }
  return {std::move(stream), pool_, std::move(call)};
}

Work StagedBackend::broadcast(Buffer buffer, int source, Call call) {
  StagedCall staging = staged(buffer.device_index, std::move(call));
  const Buffer image = rank() == source ? staging.input(buffer) : staging.output(buffer);
  return host_->broadcast(image, source, staging.take());
}

Work StagedBackend::all_reduce(Buffer input, Buffer output, ReduceOp op, Call call) {
  StagedCall staging = staged(input.device_index, std::move(call));
  // On the host one image serves both.
  const Buffer image = staging.through(input, output);
  return host_->all_reduce(image, image, op, staging.take());
}

Work StagedBackend::reduce(Buffer input, Buffer output, int destination, ReduceOp op, Call call) {
  StagedCall staging = staged(input.device_index, std::move(call));
  const Buffer from = staging.input(input);
  const Buffer to = rank() == destination ? staging.output(output) : output;
  return host_->reduce(from, to, destination, op, staging.take());
}

Work StagedBackend::all_gather(Buffer input, std::vector<Buffer> outputs, Call call) {
  StagedCall staging = staged(input.device_index, std::move(call));
  const Buffer from = staging.input(input);
  std::vector<Buffer> to = staging.outputs(outputs);
  return host_->all_gather(from, std::move(to), staging.take());
}

Work StagedBackend::gather(Buffer input, std::vector<Buffer> outputs, int destination, Call call) {
  StagedCall staging = staged(input.device_index, std::move(call));
  const Buffer from = staging.input(input);
  std::vector<Buffer> to = staging.outputs(outputs);
  return host_->gather(from, std::move(to), destination, staging.take());
}

Work StagedBackend::scatter(Buffer output, std::vector<Buffer> inputs, int source, Call call) {
  StagedCall staging = staged(output.device_index, std::move(call));
  std::vector<Buffer> from = staging.inputs(inputs);
  const Buffer to = staging.output(output);
  return host_->scatter(to, std::move(from), source, staging.take());
}

Work StagedBackend::reduce_scatter(Buffer output, std::vector<Buffer> inputs, ReduceOp op,
                                   Call call) {
  StagedCall staging = staged(output.device_index, std::move(call));
  std::vector<Buffer> from = staging.inputs(inputs);
  const Buffer to = staging.output(output);
  return host_->reduce_scatter(to, std::move(from), op, staging.take());
}

Work StagedBackend::all_to_all(std::vector<Buffer> outputs, std::vector<Buffer> inputs, Call call) {
  StagedCall staging = staged(inputs.front().device_index, std::move(call));
  std::vector<Buffer> from = staging.inputs(inputs);
  std::vector<Buffer> to = staging.outputs(outputs);
  return host_->all_to_all(std::move(to), std::move(from), staging.take());
}

Work StagedBackend::barrier(Call call) {
  return host_->barrier(staged(device_->current_device(), std::move(call)).take());
}

Work StagedBackend::send(Buffer buffer, int destination, std::uint32_t tag, Call call) {
  StagedCall staging = staged(buffer.device_index, std::move(call));
  const Buffer image = staging.input(buffer);
  return host_->send(image, destination, tag, staging.take());
}

Work StagedBackend::receive(Buffer buffer, int source, std::uint32_t tag, Call call) {
  StagedCall staging = staged(buffer.device_index, std::move(call));
  const Buffer image = staging.output(buffer);
  return host_->receive(image, source, tag, staging.take());
}

std::unique_ptr<Backend> StagedBackend::split(const std::vector<int>& ranks, int list_index,
                                              const std::string& name, Call call) {
  std::unique_ptr<Backend> host = host_->split(ranks, list_index, name, std::move(call));
  if (!host) return nullptr;
  return std::make_unique<StagedBackend>(std::move(host), device_, pool_);
}

}  // namespace dtrun::collectives::staged
