// The program that launch_bench starts. It does as good as nothing, so that what is measured is the
// launcher: tells that it has come to main, and waits until all others have, too.
//
//     launch_rank FILE all        then all end
//     launch_rank FILE restart    then rank 0 fails, and all others end on SIGTERM; once restarted,
//     as `all` launch_rank FILE death      then rank 0 is killed, and all others tell when SIGTERM
//     comes
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "launch_page.h"

namespace {

LaunchPage* page = nullptr;

int number(const char* name) {
  const char* const text = ::getenv(name);
  return text != nullptr ? ::atoi(text) : 0;
}

void stamp_first(std::atomic<std::int64_t>& place, std::int64_t time) {
  std::int64_t none = 0;
  place.compare_exchange_strong(none, time);
}

void stamp_last(std::atomic<std::int64_t>& place, std::int64_t time) {
  std::int64_t before = place.load();
  while (before < time && !place.compare_exchange_weak(before, time)) {
  }
}

void wait_for_all(int attempt) {
  std::atomic<std::uint32_t>& arrived = page->arrived[attempt];
  std::uint32_t count = ++arrived;
  if (count == page->expected) {
    ::syscall(SYS_futex, &arrived, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return;
  }
  for (; count < page->expected; count = arrived.load())
    ::syscall(SYS_futex, &arrived, FUTEX_WAIT, count, nullptr, nullptr, 0);
}

void on_term(int) {
  stamp_first(page->told[number("GROUP_RANK") != 0 ? 1 : 0], now_ns());
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t time = now_ns();
  if (argc != 3) return 2;
  const int fd = ::open(argv[1], O_RDWR | O_CLOEXEC);
  void* const memory =
      ::mmap(nullptr, sizeof(LaunchPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || memory == MAP_FAILED) return 3;
  page = static_cast<LaunchPage*>(memory);
  const bool death = ::strcmp(argv[2], "death") == 0, restart = ::strcmp(argv[2], "restart") == 0;
  const int attempt = number("TORCHELASTIC_RESTART_COUNT") > 0 ? 1 : 0;
  if (death) ::signal(SIGTERM, on_term);
  stamp_first(page->first[attempt], time);
  stamp_last(page->last[attempt], time);
  wait_for_all(attempt);
  if (!death && (!restart || attempt == 1)) return 0;
  if (number("RANK") != 0)
    while (true) ::pause();
  page->death = now_ns();
  if (death) ::raise(SIGKILL);
  ::_exit(1);
}
