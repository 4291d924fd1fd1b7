#include "dtrun/tensor/storage.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "cuda/memory.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "host_blocks.h"
#include "thread_blocks.h"

namespace dtrun::tensors {
namespace {

constexpr std::size_t kAlignment = thread_blocks::kAlignment;
/// Of a block, besides the elements.
constexpr std::size_t kBesides = sizeof(Storage) + kAlignment;

/// At least aligned as malloc's.
void* allocate_host(std::size_t bytes) {
  // malloc's cache per thread holds the small ones; aligned_alloc never looks there.
  void* data = bytes <= thread_blocks::kLeastBytes ? std::malloc(bytes)
               : thread_blocks::serves(bytes)      ? thread_blocks::allocate(bytes)
                                                   : nullptr;
  if (data != nullptr) return data;
  int error = ENOMEM;
  if (bytes >= host_blocks::kLeastBytes && bytes <= PTRDIFF_MAX / 2) {
    data = host_blocks::allocate(bytes);
    if (data != nullptr) return data;
  } else if (bytes <= PTRDIFF_MAX) {
    error = posix_memalign(&data, kAlignment, bytes);
  }
  if (error != 0) {
    throw base::system_error(fmt::format("allocate {} bytes for a tensor", bytes), error,
                             "a smaller tensor, or shards of it on more ranks");
  }
  return data;
}

void release_host(void* block, std::size_t bytes) noexcept {
  if (thread_blocks::serves(bytes)) return thread_blocks::release(block, bytes);
  if (bytes >= host_blocks::kLeastBytes) return host_blocks::release(block, bytes);
  std::free(block);
}

}  // namespace

StoragePointer Storage::allocate(std::size_t bytes, Device device) {
  if (device.is_cpu()) return allocate_block(bytes);
  void* const data = cuda::allocate(bytes, device.index);
  return StoragePointer(new Storage(data, bytes, device, Owner::cuda));
}

/// The elements stand behind the Storage in one block, which it begins.
StoragePointer Storage::allocate_block(std::size_t bytes) {
  char* const block =
      static_cast<char*>(allocate_host(bytes > SIZE_MAX - kBesides ? SIZE_MAX : bytes + kBesides));
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(block) + sizeof(Storage);
  char* const data = block + sizeof(Storage) + (kAlignment - end % kAlignment) % kAlignment;
  return StoragePointer(new (block) Storage(data, bytes, kCpu, Owner::block));
}

StoragePointer Storage::wrap(void* data, std::size_t bytes, Device device,
                             std::function<void()> release) {
  StoragePointer storage(new Storage(data, bytes, device, Owner::caller));
  storage->release_ = std::move(release);
  return storage;
}

void Storage::point_to(void* data) {
  DT_CHECK(owner_ == Owner::caller);
  data_ = data;
}

void Storage::destroy(Storage* storage) noexcept {
  switch (storage->owner_) {
    case Owner::block: {
      const std::size_t bytes = storage->bytes_ + kBesides;
      storage->~Storage();
      release_host(storage, bytes);
      return;
    }
    case Owner::cuda:
      cuda::release(storage->data_, storage->device_.index);
      break;
    case Owner::caller:
      if (storage->release_) storage->release_();
      break;
  }
  delete storage;
}

}  // namespace dtrun::tensors
