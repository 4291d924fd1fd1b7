#include "through_host/through_host_backend.h"

#include <utility>

namespace dtrun::collectives::through_host {

ThroughHostBackend::ThroughHostBackend(std::unique_ptr<Backend> host,
                                       std::shared_ptr<DeviceApi> device,
                                       std::shared_ptr<PinnedPool> pool)
    : host_(std::move(host)), device_(std::move(device)), pool_(std::move(pool)) {}

// Operations in flight copy back to the device: they end while the tables are there.
ThroughHostBackend::~ThroughHostBackend() {
  host_->shutdown();
}

HostImages ThroughHostBackend::images_of(int device, Call call) {
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

int ThroughHostBackend::device_of(const CollectiveView& collective) const {
  if (!collective.inputs.empty()) return collective.inputs.front().device_index;
  if (!collective.outputs.empty()) return collective.outputs.front().device_index;
  return device_->current_device();
}

Work ThroughHostBackend::start(Collective collective) {
  const int device = device_of(collective.view());
  HostImages images = images_of(device, std::move(collective.call));
  Collective hosted;
  if (images.kind() == OpKind::all_reduce) {
    // On the host one image serves both.
    hosted.inputs = {images.through(collective.inputs.front(), collective.outputs.front())};
    hosted.outputs = hosted.inputs;
  } else {
    hosted.inputs = images.inputs(collective.inputs);
    hosted.outputs = images.outputs(collective.outputs);
  }
  hosted.call = images.take();
  return host_->start(std::move(hosted));
}

Work ThroughHostBackend::start(Message message) {
  HostImages images = images_of(message.buffer.device_index, std::move(message.call));
  message.buffer =
      message.kind == OpKind::send ? images.input(message.buffer) : images.output(message.buffer);
  message.call = images.take();
  return host_->start(std::move(message));
}

std::unique_ptr<Backend> ThroughHostBackend::split(const std::vector<int>& ranks, int list_index,
                                                   const std::string& name, Call call) {
  std::unique_ptr<Backend> host = host_->split(ranks, list_index, name, std::move(call));
  if (!host) return nullptr;
  return std::make_unique<ThroughHostBackend>(std::move(host), device_, pool_);
}

}  // namespace dtrun::collectives::through_host
