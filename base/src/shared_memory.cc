#include "dtrun/base/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::base {
namespace {

// Bytes that the machine could still give, as the kernel estimates them; no limit where that is not
// known.
std::size_t available_memory() {
  const UniqueFd fd(::open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
  char text[4096] = "";
  if (!fd || ::read(fd.get(), text, sizeof text - 1) <= 0) return SIZE_MAX;
  const char* line = std::strstr(text, "MemAvailable:");
  unsigned long long kib = 0;
  if (line == nullptr || std::sscanf(line, "MemAvailable: %llu", &kib) != 1) return SIZE_MAX;
  return static_cast<std::size_t>(kib) << 10;
}

UniqueFd make_memfd(const std::string& name) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw system_error("create a memfd");
  return fd;
}

// Further seals are forbidden: a seal against writing would keep the other processes from mapping
// it.
void seal_size(int fd) {
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    throw system_error("seal the size of a memfd");
}

}  // namespace

SharedMemory SharedMemory::create(const std::string& name, std::size_t size) {
  UniqueFd fd = make_memfd(name);
  commit(fd.get(), 0, size);
  seal_size(fd.get());
  return map(std::move(fd), size);
}

SharedMemory SharedMemory::reserve(const std::string& name, std::size_t span, std::size_t mapped) {
  UniqueFd fd = make_memfd(name);
  if (::ftruncate(fd.get(), static_cast<off_t>(span)) != 0)
    throw system_error(fmt::format("reserve {} bytes of shared memory", span),
                       "raise the limit of file sizes (ulimit -f)");
  seal_size(fd.get());
  return map(std::move(fd), mapped);
}

void SharedMemory::commit(int fd, std::size_t offset, std::size_t size) {
  // A memfd knows no limit of its own: fallocate would take all there is and wake the OOM killer.
  if (const std::size_t available = available_memory(); size > available)
    throw Error(ErrorCode::kSystem, fmt::format("cannot commit {} bytes of shared memory", size),
                fmt::format("this machine has {} bytes left", available),
                "ask for less, or free memory");
  // A signal undoes the call under way: so in pieces, which take a fraction of a millisecond.
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (std::size_t done = 0; done < size;) {
    const std::size_t piece = std::min(kPiece, size - done);
    if (::fallocate(fd, 0, static_cast<off_t>(offset + done), static_cast<off_t>(piece)) == 0) {
      done += piece;
    } else if (errno != EINTR) {
      const Error error = system_error(fmt::format("commit {} bytes of shared memory", size),
                                       "free memory, or raise the memory limit of the job");
      if (done > 0)
        ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(done));
      throw error;
    }
  }
}

SharedMemory SharedMemory::map(UniqueFd fd, std::size_t size) {
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) throw system_error(fmt::format("map {} bytes of shared memory", size));
  SharedMemory result;
  result.fd_ = std::move(fd);
  result.data_ = static_cast<std::byte*>(address);
  result.size_ = size;
  return result;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace dtrun::base
