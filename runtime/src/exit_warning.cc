#include "exit_warning.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

namespace dtrun::runtime {
namespace {

// Process-wide as the program's end is. Plain numbers: they outlive every destructor.
std::atomic<int> open_worlds{0};
std::atomic<int> last_rank{0};
std::atomic<bool> has_warned{false};

// By write(2): at a program's end nothing else can be relied on.
void warn_once(int rank) {
  if (has_warned.exchange(true)) return;
  const std::string text = fmt::format(
      "[rank{}]: warning: the program ends without dist::destroy_process_group(): peers that still "
      "need this rank fail, and what it has not sent may be lost; call it last\n",
      rank);
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody is left to be told
}

void at_exit() {
  if (open_worlds.load() > 0) warn_once(last_rank.load());
}

}  // namespace

OpenWorld::OpenWorld(int rank) : rank_(rank) {
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(at_exit); });
  last_rank.store(rank);
  ++open_worlds;
}

OpenWorld::~OpenWorld() {
  --open_worlds;
}

void OpenWorld::warn() const {
  warn_once(rank_);
}

}  // namespace dtrun::runtime
