#include "checkpoint/direct_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace dtrun::dtensor::dcp {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

void DirectMemory::Unmap::operator()(char* bytes) const {
  ::munmap(bytes, size);
}

// A block of less than a huge page is a whole one, too: pages that nobody touches take no memory,
// but a huge page is touched as one.
void DirectMemory::allocate(std::size_t bytes) {
  bytes_.reset();
  size_ = 0;
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (size < bytes) throw std::bad_alloc();
  void* const raw =
      ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  char* const begin = static_cast<char*>(raw);
  const std::size_t lead = -reinterpret_cast<std::uintptr_t>(raw) % kHugePage;
  if (lead != 0) ::munmap(begin, lead);
  ::munmap(begin + lead + size, kHugePage - lead);
  ::madvise(begin + lead, size, MADV_HUGEPAGE);  // where the kernel has none, small ones do
  bytes_ = std::unique_ptr<char, Unmap>(begin + lead, Unmap{size});
  size_ = size;
}

}  // namespace dtrun::dtensor::dcp
