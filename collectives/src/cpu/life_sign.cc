#include "life_sign.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "dtrun/base/error.h"
#include "peer_memory.h"

namespace dtrun::collectives::cpu {

using base::system_error;
using base::UniqueFd;

namespace {

struct flock byte_of(int world_rank, short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = world_rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

std::uint64_t own_pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::optional<LifeSign> LifeSign::give(const Commons& commons, int world_rank) {
  // A lock belongs to an open file description. The received descriptor shares that of the rank
  // that sent it, so this rank opens the memory anew.
  const std::string path = fmt::format("/proc/self/fd/{}", commons.fd());
  UniqueFd description(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!description) throw system_error("open the shared memory of this machine's ranks anew");
  struct flock lock = byte_of(world_rank, F_WRLCK);
  if (::fcntl(description.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return std::nullopt;
    throw system_error("lock a rank's place in the shared memory");
  }
  Cell& cell = commons.cell(world_rank);
  PeerMemory::show(cell);
  cell.pid.store(::getpid());
  cell.pid_namespace.store(own_pid_namespace());
  return LifeSign(std::move(description));
}

bool LifeSign::is_seen(const Commons& commons, int world_rank) {
  struct flock lock = byte_of(world_rank, F_WRLCK);
  return ::fcntl(commons.fd(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

UniqueFd process_of(const Commons& commons, int world_rank) {
  const Cell& cell = commons.cell(world_rank);
  const pid_t pid = cell.pid.load();
  const std::uint64_t pid_namespace = cell.pid_namespace.load();
  if (pid == ::getpid() || pid_namespace == 0 || pid_namespace != own_pid_namespace())
    return UniqueFd();
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace dtrun::collectives::cpu
