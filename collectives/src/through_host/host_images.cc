#include "through_host/host_images.h"

#include <utility>

namespace dtrun::collectives::through_host {

CopyStream::CopyStream(std::shared_ptr<DeviceApi> api, int device)
    : api_(std::move(api)), device_(device) {
  const CurrentDevice current(*api_, device_);
  stream_ = api_->make_stream();
}

CopyStream::~CopyStream() {
  api_->destroy_stream(stream_);
}

void CopyStream::drain() const {
  const CurrentDevice current(*api_, device_);
  const Event end(api_);
  api_->record(end.get(), stream_);
  api_->synchronize(end.get());
}

void CopyStream::follow_caller() const {
  const CurrentDevice current(*api_, device_);
  const Event begin(api_);
  api_->record(begin.get(), api_->current_stream(device_));
  api_->make_wait(stream_, begin.get());
}

HostImages::HostImages(std::shared_ptr<CopyStream> stream, std::shared_ptr<PinnedPool> pool,
                       Call call)
    : stream_(std::move(stream)), pool_(std::move(pool)), call_(std::move(call)) {
  stream_->follow_caller();
}

Buffer HostImages::image_of(const Buffer& buffer) {
  Buffer image = buffer;
  image.device_index = 0;
  if (buffer.count == 0) return image;
  images_.push_back(pool_->allocate(buffer.bytes()));
  image.data = images_.back().get();
  return image;
}

Buffer HostImages::input(const Buffer& buffer) {
  const Buffer image = image_of(buffer);
  if (buffer.count > 0)
    stream_->api().copy(image.data, buffer.data, buffer.bytes(), stream_->get());
  return image;
}

Buffer HostImages::output(const Buffer& buffer) {
  const Buffer image = image_of(buffer);
  if (buffer.count > 0) copies_back_.push_back({buffer, image});
  return image;
}

Buffer HostImages::through(const Buffer& from, const Buffer& to) {
  const Buffer image = input(from);
  if (to.count > 0) copies_back_.push_back({to, image});
  return image;
}

std::vector<Buffer> HostImages::inputs(const std::vector<Buffer>& buffers) {
  std::vector<Buffer> images;
  for (const Buffer& buffer : buffers) images.push_back(input(buffer));
  return images;
}

std::vector<Buffer> HostImages::outputs(const std::vector<Buffer>& buffers) {
  std::vector<Buffer> images;
  for (const Buffer& buffer : buffers) images.push_back(output(buffer));
  return images;
}

Call HostImages::take() {
  // Also without inputs: what the caller's stream still does to the outputs must be over.
  stream_->drain();
  Call call = std::move(call_);
  if (!copies_back_.empty())
    call.finish = [stream = stream_, copies = std::move(copies_back_),
                   finish = std::move(call.finish)] {
      const CurrentDevice current(stream->api(), stream->device());
      for (const CopyBack& copy : copies)
        stream->api().copy(copy.target.data, copy.image.data, copy.target.bytes(), stream->get());
      if (finish) stream->api().run_on(stream->device(), stream->get(), finish);
      // Done means done, whichever stream the caller goes on with.
      stream->drain();
    };
  call.keep_alive =
      std::make_shared<std::pair<std::shared_ptr<void>, std::vector<std::shared_ptr<void>>>>(
          std::move(call.keep_alive), std::move(images_));
  return call;
}

}  // namespace dtrun::collectives::through_host
