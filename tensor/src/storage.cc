#include "dtrun/tensor/storage.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "cuda/memory.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/small_blocks.h"
#include "dtrun/tensor/host_allocator.h"
#include "dtrun/tensor/own_storages.h"
#include "host_blocks.h"
#include "host_meter.h"
#include "thread_blocks.h"

namespace dtrun::tensors {
namespace {

namespace small_blocks = base::small_blocks;
constexpr std::size_t kAlignment = thread_blocks::kAlignment;
/// Of a block, besides the elements.
constexpr std::size_t kBesides = sizeof(Storage) + kAlignment;
/// From here on elements have pages of their own: with kBesides they are no thread's block.
constexpr std::size_t kLeastPages = host_blocks::kLeastBytes - kBesides;

[[noreturn]] void refuse(std::size_t bytes, int error) {
  throw base::system_error(fmt::format("allocate {} bytes for a tensor", bytes), error,
                           "a smaller tensor, or shards of it on more ranks");
}

/// At least aligned as malloc's.
void* allocate_block(std::size_t bytes) {
  void* data = nullptr;
  if (small_blocks::serves(bytes)) {
    data = small_blocks::allocate(bytes);
  } else if (thread_blocks::serves(bytes)) {
    data = thread_blocks::allocate(bytes);
  } else if (bytes <= PTRDIFF_MAX) {
    if (posix_memalign(&data, kAlignment, bytes) != 0) data = nullptr;
  }
  if (data == nullptr) refuse(bytes, ENOMEM);
  return data;
}

void release_block(void* block, std::size_t bytes) noexcept {
  if (small_blocks::serves(bytes)) return small_blocks::release(block, bytes);
  if (thread_blocks::serves(bytes)) return thread_blocks::release(block, bytes);
  std::free(block);
}

}  // namespace

StoragePointer Storage::allocate(std::size_t bytes, Device device) {
  if (!device.is_cpu()) {
    StoragePointer storage(
        new Storage(cuda::allocate(bytes, device.index), bytes, device, Owner::cuda));
    OwnStorages::note(*storage);
    return storage;
  }
  HostAllocator* const chosen =
      bytes >= HostAllocatorScope::kLeastBytes ? HostAllocatorScope::innermost_ : nullptr;
  if (chosen != nullptr) {
    StoragePointer storage = chosen->allocate(bytes);  // Storage::wrap() notes it for OwnStorages
    storage->owner_ = Owner::allocator;
    host_meter::note(static_cast<std::ptrdiff_t>(bytes));
    return storage;
  }
  StoragePointer storage = allocate_host(bytes);
  OwnStorages::note(*storage);
  return storage;
}

/// The elements of small ones stand behind the Storage in one block, which it begins. Large ones
/// have pages of their own.
StoragePointer Storage::allocate_host(std::size_t bytes) {
  if (bytes >= kLeastPages) {
    StoragePointer storage(new Storage(nullptr, bytes, kCpu, Owner::pages));
    if (bytes <= PTRDIFF_MAX / 2) storage->data_ = host_blocks::allocate(bytes);
    if (storage->data_ == nullptr) refuse(bytes, ENOMEM);
    host_meter::note(static_cast<std::ptrdiff_t>(bytes));
    return storage;
  }
  char* const block = static_cast<char*>(allocate_block(bytes + kBesides));
  host_meter::note(static_cast<std::ptrdiff_t>(bytes));
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(block) + sizeof(Storage);
  char* const data = block + sizeof(Storage) + (kAlignment - end % kAlignment) % kAlignment;
  return StoragePointer(new (block) Storage(data, bytes, kCpu, Owner::block));
}

StoragePointer Storage::wrap(void* data, std::size_t bytes, Device device,
                             std::function<void()> release) {
  StoragePointer storage(new Storage(data, bytes, device, Owner::caller));
  storage->release_ = std::move(release);
  OwnStorages::note(*storage);
  return storage;
}

bool Storage::exchange_contents(Storage& other) {
  return &other != this && owner_ == Owner::pages && other.owner_ == Owner::pages &&
         bytes_ == other.bytes_ && host_blocks::exchange_contents(data_, other.data_, bytes_);
}

void Storage::point_to(void* data) {
  DT_CHECK(owner_ == Owner::caller);
  data_ = data;
}

void Storage::destroy(Storage* storage) noexcept {
  switch (storage->owner_) {
    case Owner::block: {
      host_meter::note(-static_cast<std::ptrdiff_t>(storage->bytes_));
      const std::size_t bytes = storage->bytes_ + kBesides;
      storage->~Storage();
      release_block(storage, bytes);
      return;
    }
    case Owner::pages:
      if (storage->data_ == nullptr) break;
      host_meter::note(-static_cast<std::ptrdiff_t>(storage->bytes_));
      host_blocks::release(storage->data_, storage->bytes_);
      break;
    case Owner::cuda:
      cuda::release(storage->data_, storage->device_.index);
      break;
    case Owner::allocator:
      host_meter::note(-static_cast<std::ptrdiff_t>(storage->bytes_));
      [[fallthrough]];
    case Owner::caller:
      if (storage->release_) storage->release_();
      break;
  }
  delete storage;
}

}  // namespace dtrun::tensors
