#include "peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <random>
#include <utility>

#include "life_sign.h"

namespace dtrun::collectives::cpu {

namespace {

/// A word of this process that no other one has: a forked child draws its own.
class OwnWord {
 public:
  std::uint64_t value() {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(pid_, ::getpid()) != pid_ || word_ == 0) {
      std::random_device random;
      word_ = (std::uint64_t{random()} << 32) | random() | 1;
    }
    return word_;
  }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(&word_); }

 private:
  std::mutex mutex_;
  pid_t pid_ = 0;
  std::uint64_t word_ = 0;
};

OwnWord& own_word() {
  static OwnWord word;
  return word;
}

}  // namespace

void PeerMemory::show(Cell& own) {
  own.word.store(own_word().value());
  own.word_address.store(own_word().address());
}

std::unique_ptr<PeerMemory> PeerMemory::open(const Commons& commons, int world_rank) {
  const Cell& cell = commons.cell(world_rank);
  const std::uint64_t pid_namespace = cell.pid_namespace.load();
  if (pid_namespace == 0 || pid_namespace != own_pid_namespace()) return nullptr;
  std::unique_ptr<PeerMemory> peer(new PeerMemory(cell));
  std::uint64_t word = 0;
  const bool can_read =
      peer->read(std::as_writable_bytes(std::span(&word, 1)), peer->word_address_) == 0;
  return can_read ? std::move(peer) : nullptr;
}

bool PeerMemory::is_readable(std::span<const std::byte> own) {
  if (own.empty()) return true;
  std::byte ends[2];
  const iovec target{ends, sizeof(ends)};
  auto* const bytes = const_cast<std::byte*>(own.data());
  const iovec sources[] = {{bytes, 1}, {bytes + own.size() - 1, 1}};
  return ::process_vm_readv(::getpid(), &target, 1, sources, 2, 0) == 2;
}

// Ranks that are threads read their own process so, too: memory that a failed sender has given back
// is an error then, not a crash.
int PeerMemory::read(std::span<std::byte> target, std::uint64_t address) const {
  while (!target.empty()) {
    std::uint64_t word = 0;
    const iovec to[] = {{&word, sizeof(word)}, {target.data(), target.size()}};
    const iovec from[] = {{reinterpret_cast<void*>(word_address_), sizeof(word)},
                          {reinterpret_cast<void*>(address), target.size()}};
    const ssize_t count = ::process_vm_readv(pid_, to, 2, from, 2, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (word != word_) return ESRCH;
    const std::size_t read = static_cast<std::size_t>(count) - sizeof(word);
    if (read == 0) return EFAULT;
    target = target.subspan(read);
    address += read;
  }
  return 0;
}

}  // namespace dtrun::collectives::cpu
