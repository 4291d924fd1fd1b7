#include "output/attached_readers.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "dtrun/base/deadline.h"
#include "dtrun/base/log.h"
#include "dtrun/rendezvous/attach_frame.h"
#include "output/output.h"

namespace dtrun::launcher {
namespace {

using rendezvous::AttachKind;
using rendezvous::frame_of;

constexpr std::size_t kMostWaiting = 1 << 20;
/// At once. The socket counts as writable while less than a quarter of it is used, so there is
/// always room for the last frames.
constexpr std::size_t kPiece = 16 << 10;
constexpr auto kLastPatience = std::chrono::milliseconds(200);

/// Its name is nobody else's: the kernel knows it, and shows it in /proc/net/unix.
base::UniqueFd listen_for_readers() {
  base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  std::uint64_t unique = 0;
  if (!socket || ::getrandom(&unique, sizeof unique, 0) != sizeof unique) return {};
  const std::string name = fmt::format("{}{:016x}", rendezvous::kAttachName, unique);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), &address.sun_path[1]);  // a NUL before it: no file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const bool listens = ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::listen(socket.get(), static_cast<int>(AttachedReaders::kMost)) == 0;
  return listens ? base::moved_up(std::move(socket), kFirstDescriptorToKeep) : base::UniqueFd();
}

/// Empty: it may read.
std::string why_refused(int socket, std::size_t readers) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      (peer.uid != ::geteuid() && peer.uid != 0))
    return "it is the job of another user";
  if (readers >= AttachedReaders::kMost)
    return fmt::format("{} are attached already, which is the most", readers);
  return "";
}

}  // namespace

AttachedReaders::Reader::Reader(base::EventLoop& loop, base::UniqueFd socket)
    : fd(std::move(socket)), watch(loop, fd.get()) {}

AttachedReaders::AttachedReaders(base::EventLoop& loop)
    : loop_(loop), listener_(listen_for_readers()) {
  if (!listener_) {
    base::log::info(base::log::Component::kLauncher, "nobody can attach to this job: {}",
                    ::strerrordesc_np(errno));
    return;
  }
  watch_ = std::make_unique<base::FdWatch>(loop, listener_.get());
  watch_->on_readable([this] { accept_one(); });
}

void AttachedReaders::accept_one() {
  base::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return;
  if (!socket) {  // no descriptor is left: the loop must not ask for one again and again
    watch_.reset();
    return listener_.reset();
  }
  socket = base::moved_up(std::move(socket), kFirstDescriptorToKeep);
  if (const std::string why = why_refused(socket.get(), readers_.size()); !why.empty()) {
    const std::string frame = frame_of(AttachKind::kRefused, why);
    ::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  readers_.push_back(std::make_unique<Reader>(loop_, std::move(socket)));
  Reader& reader = *readers_.back();
  reader.skips = in_line_;
  // It says nothing, so this is its end.
  reader.watch.on_readable([this, &reader] {
    reader.is_gone = true;
    reader.watch.on_readable(nullptr);
    forget_gone();
  });
}

void AttachedReaders::forget_gone() {
  if (std::exchange(forget_posted_, true)) return;
  loop_.post([this] {  // none of their watches is on the stack
    forget_posted_ = false;
    std::erase_if(readers_, [](const auto& reader) { return reader->is_gone; });
  });
}

void AttachedReaders::add(Stream stream, std::string_view bytes) {
  if (bytes.empty()) return;
  for (const auto& reader : readers_)
    for (std::size_t at = 0; at < bytes.size(); at += kPiece)
      give(*reader, stream, bytes.substr(at, kPiece));
  in_line_[static_cast<std::size_t>(stream)] = bytes.back() != '\n';
}

void AttachedReaders::give(Reader& reader, Stream stream, std::string_view bytes) {
  bool& skips = reader.skips[static_cast<std::size_t>(stream)];
  if (skips) {
    const auto line_end = bytes.find('\n');
    if (reader.dropped > 0) reader.dropped += std::min(bytes.size(), line_end);
    if (line_end == std::string_view::npos) return;
    skips = false;
    bytes.remove_prefix(line_end + 1);
  }
  if (bytes.empty() || reader.is_gone) return;
  if (reader.waiting + bytes.size() > kMostWaiting) {
    reader.dropped += bytes.size();
    skips = bytes.back() != '\n';
    return;
  }
  tell_dropped(reader);
  push(reader, frame_of(stream == Stream::kOut ? AttachKind::kOut : AttachKind::kError, bytes));
  reader.watch.on_writable([this, &reader] { send_some(reader); });
}

void AttachedReaders::push(Reader& reader, std::string frame) {
  reader.waiting += frame.size();
  reader.frames.push_back(std::move(frame));
}

void AttachedReaders::tell_dropped(Reader& reader) {
  if (reader.dropped == 0) return;
  push(reader, frame_of(AttachKind::kDropped, std::to_string(std::exchange(reader.dropped, 0))));
}

// The first frame that waits, or what is left of it.
void AttachedReaders::send_some(Reader& reader) {
  const std::string_view rest = std::string_view(reader.frames.front()).substr(reader.sent);
  const ssize_t n = ::send(reader.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) reader.sent += static_cast<std::size_t>(n);
  if (n == static_cast<ssize_t>(rest.size())) {
    reader.waiting -= std::exchange(reader.sent, 0);
    reader.frames.pop_front();
  }
  if (n < 0 && errno != EAGAIN && errno != EINTR) {
    reader.is_gone = true;
    reader.frames.clear();
    forget_gone();
  }
  if (reader.frames.empty()) reader.watch.on_writable(nullptr);
}

void AttachedReaders::end(int exit_code) {
  const auto deadline = base::Deadline::after(kLastPatience);
  for (const auto& reader : readers_) {
    pollfd room{reader->fd.get(), POLLOUT, 0};
    while (!reader->frames.empty() && ::poll(&room, 1, deadline.poll_timeout_ms()) == 1)
      send_some(*reader);
    if (!reader->is_gone) say_end(*reader, exit_code);
  }
  readers_.clear();
}

// A frame that has begun must be whole before another one.
void AttachedReaders::say_end(Reader& reader, int exit_code) {
  std::string last;
  if (reader.sent > 0) {
    last = reader.frames.front().substr(reader.sent);
    reader.frames.pop_front();
  }
  for (std::string& frame : reader.frames) {
    const auto content = rendezvous::take_attach_frame(frame);
    reader.dropped +=
        content->kind == AttachKind::kDropped ? content->number() : content->text.size();
  }
  if (reader.dropped > 0) last += frame_of(AttachKind::kDropped, std::to_string(reader.dropped));
  last += frame_of(AttachKind::kEnd, std::to_string(exit_code));
  ::send(reader.fd.get(), last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace dtrun::launcher
