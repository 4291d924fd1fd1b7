#include "dtrun/tensor/storage.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "cuda/memory.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

constexpr std::size_t kAlignment = 64;

void* allocate_host(std::size_t bytes) {
  void* data = nullptr;
  // Never nullptr, not even for 0 bytes: memcpy and friends do not take one.
  const int error =
      bytes > PTRDIFF_MAX ? ENOMEM : posix_memalign(&data, kAlignment, std::max(bytes, kAlignment));
  if (error != 0) {
    throw base::system_error(fmt::format("allocate {} bytes for a tensor", bytes), error,
                             "a smaller tensor, or shards of it on more ranks");
  }
  return data;
}

}  // namespace

Storage::Storage(void* data, std::size_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {}

Storage::~Storage() {
  if (release_) release_();
}

std::shared_ptr<Storage> Storage::allocate(std::size_t bytes, Device device) {
  if (device.is_cpu()) {
    void* data = allocate_host(bytes);
    return wrap(data, bytes, device, [data] { std::free(data); });
  }
  void* data = cuda::allocate(bytes, device.index);
  return wrap(data, bytes, device, [data, index = device.index] { cuda::release(data, index); });
}

std::shared_ptr<Storage> Storage::wrap(void* data, std::size_t bytes, Device device,
                                       std::function<void()> release) {
  return std::shared_ptr<Storage>(new Storage(data, bytes, device, std::move(release)));
}

}  // namespace dtrun::tensors
