// HostImages: one call's way through host memory: its buffers' images there, what is copied into
// them before the host's backend sees them, and what is copied back once it is done. Copies run on
// a stream of the backend's own, behind all that the caller's stream had when the call was made.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device_api.h"
#include "dtrun/collectives/backend.h"
#include "through_host/pinned_pool.h"

namespace dtrun::collectives::through_host {

/// A device's stream for copies, owned.
class CopyStream {
 public:
  CopyStream(std::shared_ptr<DeviceApi> api, int device);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  DeviceApi& api() const { return *api_; }
  int device() const { return device_; }
  DeviceStream get() const { return stream_; }
  /// Blocks until the device has done what is on the stream.
  void drain() const;
  /// What comes next on it waits for the calling thread's current stream.
  void follow_caller() const;

 private:
  const std::shared_ptr<DeviceApi> api_;
  const int device_;
  DeviceStream stream_;
};

class HostImages {
 public:
  HostImages(std::shared_ptr<CopyStream> stream, std::shared_ptr<PinnedPool> pool, Call call);

  OpKind kind() const { return call_.fingerprint.kind; }
  // The images of the call's buffers.
  Buffer input(const Buffer& buffer);
  Buffer output(const Buffer& buffer);
  /// One image for both: what comes of the first goes to the second.
  Buffer through(const Buffer& input, const Buffer& output);
  std::vector<Buffer> inputs(const std::vector<Buffer>& buffers);
  std::vector<Buffer> outputs(const std::vector<Buffer>& buffers);
  /// Once the inputs are there: the call for the host's backend.
  Call take();

 private:
  struct CopyBack {
    Buffer target;
    Buffer image;
  };
  Buffer image_of(const Buffer& buffer);

  const std::shared_ptr<CopyStream> stream_;
  const std::shared_ptr<PinnedPool> pool_;
  Call call_;
  std::vector<std::shared_ptr<void>> images_;
  std::vector<CopyBack> copies_back_;
};

}  // namespace dtrun::collectives::through_host
