// Preloaded into a program: while the fifo DTRUN_TEST_HANG.fifo is there, what it does with files
// below the folder DTRUN_TEST_HANG hangs, as on a network file system whose server is away; until
// somebody opens the fifo for writing. Who hangs says so before, in the fifo DTRUN_TEST_HANG.words.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void hang_if_below(const char* path) {
  static const char* const folder = std::getenv("DTRUN_TEST_HANG");
  static const std::size_t length = folder == nullptr ? 0 : std::strlen(folder);
  if (length == 0 || std::strncmp(path, folder, length) != 0 || path[length] != '/') return;
  const std::string fifo = std::string(folder) + ".fifo";
  static const auto open_it = next<int (*)(const char*, int, ...)>("open");
  if (::access(fifo.c_str(), F_OK) != 0) return;
  const int words = open_it((std::string(folder) + ".words").c_str(), O_WRONLY | O_CLOEXEC);
  static const auto write_it = next<ssize_t (*)(int, const void*, size_t)>("write");
  (void)!write_it(words, "hangs\n", 6);
  ::close(words);
  const int fd = open_it(fifo.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
}

void hang_if_below(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof path - 1);
  if (n <= 0) return;
  path[n] = '\0';
  hang_if_below(path);
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  hang_if_below(fd);
  return real(fd, bytes, size);
}

int open(const char* path, int flags, ...) {
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);  // of no meaning where no file is made
  va_end(more);
  hang_if_below(path);
  return real(path, flags, mode);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  hang_if_below(path);
  return real(path, mode);
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  static const auto real = next<int (*)(int, const char*, mode_t)>("mkdirat");
  hang_if_below(folder);
  return real(folder, path, mode);
}
}
