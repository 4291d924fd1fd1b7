#include "terminal/foreground.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace dtrun::launcher {

// What /proc/self means is decided when it is opened.
Foreground::Foreground()
    : stat_(base::moved_up(base::UniqueFd(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC)), 32)) {}

bool Foreground::is_ours() const {
  char text[512];
  const ssize_t n = ::pread(stat_.get(), text, sizeof text - 1, 0);
  if (n <= 0) return false;
  text[n] = '\0';
  // "12 (name) S parent group session terminal foreground-group ...", where the name may have
  // parentheses.
  const char* const name_end = std::strrchr(text, ')');
  char state = 0;
  int group = 0, terminal = 0, foreground_group = 0;
  if (name_end == nullptr || std::sscanf(name_end + 1, " %c %*d %d %*d %d %d", &state, &group,
                                         &terminal, &foreground_group) != 4)
    return false;
  if (terminal == 0) return true;
  return state != 'T' && group == foreground_group;
}

void stop_this_process(int signal_number) {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  struct sigaction handled {};
  ::sigaction(signal_number, &usual, &handled);
  ::raise(signal_number);
  ::sigaction(signal_number, &handled, nullptr);
}

}  // namespace dtrun::launcher
