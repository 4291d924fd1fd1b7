#include "jobs/attachment.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/attach_frame.h"
#include "jobs/process_table.h"

namespace dtrun::jobs {
namespace {

using base::Error;
using base::ErrorCode;
using rendezvous::AttachFrame;
using rendezvous::AttachKind;
namespace fs = std::filesystem;

/// "socket:[INODE]" of the process's descriptors.
std::set<std::string> sockets_of(pid_t pid) {
  constexpr std::string_view kSocket = "socket:[";
  std::set<std::string> inodes;
  std::error_code none;
  for (fs::directory_iterator entry(proc_path(pid, "fd"), none);
       !none && entry != fs::directory_iterator(); entry.increment(none)) {
    std::error_code gone;
    const std::string link = fs::read_symlink(entry->path(), gone);
    if (link.starts_with(kSocket))
      inodes.insert(link.substr(kSocket.size(), link.size() - kSocket.size() - 1));
  }
  return inodes;
}

/// The name at which the guard listens, without its '@'; empty: it listens nowhere.
std::string name_of_listener(pid_t guard) {
  const std::set<std::string> own = sockets_of(guard);
  const std::string begin = fmt::format("@{}", rendezvous::kAttachName);
  std::ifstream table(proc_path(guard, "net/unix"));
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string skipped, inode, name;
    for (int i = 0; i < 6; ++i) words >> skipped;
    words >> inode >> name;
    if (name.starts_with(begin) && own.contains(inode)) return name.substr(1);
  }
  return "";
}

base::UniqueFd connect_to(const LocalJob& job) {
  const std::string name = name_of_listener(job.guard);
  if (name.empty())
    throw Error(
        ErrorCode::kUnavailable, fmt::format("nobody can attach to job {}", job.pid),
        "its dtrun listens nowhere: it is about to end, is older, or had no descriptor left",
        "dtrun status shows what its ranks do");
  base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy_n(name.begin(), std::min(name.size(), sizeof address.sun_path - 1),
              &address.sun_path[1]);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!socket || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    throw base::system_error(
        fmt::format("attach to job {}", job.pid), errno,
        fmt::format("where it has another network namespace: nsenter -t {} -n dtrun attach {}",
                    job.guard, job.pid));
  return socket;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw base::system_error("write what the job writes");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// More bytes. False: the other side is gone.
bool receive_more(int socket, std::string& input) {
  std::array<char, 64 << 10> bytes;
  ssize_t n = 0;
  while ((n = ::recv(socket, bytes.data(), bytes.size(), 0)) < 0 && errno == EINTR) {
  }
  if (n > 0) input.append(bytes.data(), static_cast<std::size_t>(n));
  return n > 0;
}

/// Writes what it brings.
void show(const AttachFrame& frame) {
  if (frame.kind == AttachKind::kOut) return write_all(STDOUT_FILENO, frame.text);
  if (frame.kind == AttachKind::kError) return write_all(STDERR_FILENO, frame.text);
  if (frame.kind == AttachKind::kRefused)
    throw Error(ErrorCode::kUnavailable, "the job does not let this process attach", frame.text);
  write_all(STDERR_FILENO,
            fmt::format("dtrun attach: {} bytes are missing here: this reader was too slow\n",
                        frame.number()));
}

}  // namespace

int attach(const LocalJob& job) {
  const base::UniqueFd socket = connect_to(job);
  std::string input;
  while (receive_more(socket.get(), input)) {
    while (const std::optional<AttachFrame> frame = rendezvous::take_attach_frame(input)) {
      if (frame->kind == AttachKind::kEnd) return static_cast<int>(frame->number());
      show(*frame);
    }
  }
  throw Error(ErrorCode::kConnection, fmt::format("the dtrun of job {} has gone", job.pid),
              "it has not said how the job has ended; it may have been killed", "");
}

}  // namespace dtrun::jobs
