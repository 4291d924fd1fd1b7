#include "peer_memory.h"

#include <fmt/core.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "dtrun/base/error.h"
#include "life_sign.h"

namespace dtrun::collectives::cpu {

namespace {

/// Lies at the same address in no two processes with the same value.
const std::uint64_t& own_word() {
  static const std::uint64_t word = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32) | random();
  }();
  return word;
}

}  // namespace

void PeerMemory::show(Cell& own) {
  own.word.store(own_word());
  own.word_address.store(reinterpret_cast<std::uintptr_t>(&own_word()));
}

std::unique_ptr<PeerMemory> PeerMemory::open(const Commons& commons, int world_rank) {
  const Cell& cell = commons.cell(world_rank);
  const std::uint64_t pid_namespace = cell.pid_namespace.load();
  if (pid_namespace == 0 || pid_namespace != own_pid_namespace()) return nullptr;
  std::unique_ptr<PeerMemory> peer(new PeerMemory(cell.pid.load()));
  std::uint64_t word = 0;
  try {
    // Another process may have that number in a namespace whose inode is used anew.
    const bool is_read =
        peer->read(std::as_writable_bytes(std::span(&word, 1)), cell.word_address.load());
    if (is_read && word == cell.word.load()) return peer;
  } catch (const base::Error&) {
    // Not allowed, or no such system call.
  }
  return nullptr;
}

bool PeerMemory::is_readable(std::span<const std::byte> own) {
  if (own.empty()) return true;
  std::byte ends[2];
  const iovec target{ends, sizeof(ends)};
  auto* const bytes = const_cast<std::byte*>(own.data());
  const iovec sources[] = {{bytes, 1}, {bytes + own.size() - 1, 1}};
  return ::process_vm_readv(::getpid(), &target, 1, sources, 2, 0) == 2;
}

bool PeerMemory::read(std::span<std::byte> target, std::uint64_t address) const {
  if (pid_ == ::getpid()) {  // ranks that are threads
    std::memcpy(target.data(), reinterpret_cast<const void*>(address), target.size());
    return true;
  }
  while (!target.empty()) {
    const iovec to{target.data(), target.size()};
    const iovec from{reinterpret_cast<void*>(address), target.size()};
    const ssize_t count = ::process_vm_readv(pid_, &to, 1, &from, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ESRCH) return false;
    if (count <= 0) throw base::system_error(fmt::format("read the memory of process {}", pid_));
    target = target.subspan(static_cast<std::size_t>(count));
    address += static_cast<std::uint64_t>(count);
  }
  return true;
}

}  // namespace dtrun::collectives::cpu
