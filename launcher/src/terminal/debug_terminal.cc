#include "terminal/debug_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "dtrun/base/detached_thread.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

constexpr auto kTerminalPatience = std::chrono::seconds(1);

void write_to_terminal(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (n < 0 && errno == EAGAIN) {
      pollfd room{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (n < 0 && errno != EINTR) {
      return;
    }
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

DebugTerminal::DebugTerminal()
    : usual_(std::make_unique<termios>()), own_end_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
  char name[64];
  if (!own_end_ || ::grantpt(own_end_.get()) != 0 || ::unlockpt(own_end_.get()) != 0 ||
      ::ptsname_r(own_end_.get(), name, sizeof name) != 0)
    throw base::system_error("make a terminal for the debugged rank", "look at /dev/pts");
  rank_end_ = base::UniqueFd(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!rank_end_ || ::tcgetattr(STDIN_FILENO, usual_.get()) != 0 ||
      ::fcntl(own_end_.get(), F_SETFL, O_RDWR | O_NONBLOCK) != 0)
    throw base::system_error("make a terminal for the debugged rank", "look at /dev/pts");
  ::tcsetattr(rank_end_.get(), TCSANOW, usual_.get());
  copy_size();
}

DebugTerminal::~DebugTerminal() = default;

void DebugTerminal::make_raw() const {
  termios raw = *usual_;
  ::cfmakeraw(&raw);
  raw.c_oflag = usual_->c_oflag;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

void DebugTerminal::restore() const {
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, usual_.get());
}

// The other side gets SIGWINCH where it is another size.
void DebugTerminal::copy_size() const {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) ::ioctl(own_end_.get(), TIOCSWINSZ, &size);
}

struct TerminalRelay::Shared {
  std::shared_ptr<DebugTerminal> terminal;
  base::UniqueFd stop;  // an eventfd
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
};

/// The thread's.
class TerminalRelay::Pump {
 public:
  explicit Pump(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  void run() {
    while (carry()) terminal().copy_size();
    const std::lock_guard lock(shared_->mutex);
    terminal().restore();
    shared_->is_over = true;
    shared_->changed.notify_all();
  }

 private:
  const DebugTerminal& terminal() const { return *shared_->terminal; }

  /// False: the debugger has ended, or the job has.
  bool carry() {
    const short wish = typed_.empty() ? POLLIN : POLLIN | POLLOUT;
    std::array<pollfd, 3> words = {
        {{shared_->stop.get(), POLLIN, 0},
         {terminal().own_end(), wish, 0},
         {keys_are_there_ && typed_.empty() ? STDIN_FILENO : -1, POLLIN, 0}}};
    if (::poll(words.data(), words.size(), -1) < 0) return errno == EINTR;
    if ((words[1].revents & (POLLIN | POLLHUP)) != 0 && !show()) return false;
    if ((words[1].revents & POLLOUT) != 0) pass_keys();
    if (words[2].revents != 0) read_keys();
    if (words[0].revents == 0) return true;
    while (show_some() > 0) {
    }
    return false;
  }

  // What the debugger and its program write. False: both have ended.
  bool show() {
    const ssize_t n = show_some();
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }

  ssize_t show_some() {
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(terminal().own_end(), bytes.data(), bytes.size());
    if (n > 0) write_to_terminal({bytes.data(), static_cast<std::size_t>(n)});
    return n;
  }

  void read_keys() {
    typed_.resize(1024);
    const ssize_t n = ::read(STDIN_FILENO, typed_.data(), typed_.size());
    const bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
    typed_.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    keys_are_there_ = n > 0 || again;
  }

  void pass_keys() {
    const ssize_t n = ::write(terminal().own_end(), typed_.data(), typed_.size());
    if (n > 0) typed_.erase(0, static_cast<std::size_t>(n));
  }

  std::shared_ptr<Shared> shared_;
  std::string typed_;  // not passed on yet
  bool keys_are_there_ = true;
};

TerminalRelay::TerminalRelay(std::shared_ptr<DebugTerminal> terminal)
    : shared_(std::make_shared<Shared>()) {
  shared_->terminal = std::move(terminal);
  shared_->stop = base::UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!shared_->stop) throw base::system_error("make an eventfd", "raise the limit of open files");
  shared_->terminal->make_raw();
  base::start_detached_thread([shared = shared_] { Pump(shared).run(); });
}

// A terminal that takes nothing is left to the thread.
TerminalRelay::~TerminalRelay() {
  ::eventfd_write(shared_->stop.get(), 1);
  std::unique_lock lock(shared_->mutex);
  if (!shared_->changed.wait_for(lock, kTerminalPatience, [this] { return shared_->is_over; }))
    shared_->terminal->restore();
}

}  // namespace dtrun::launcher
