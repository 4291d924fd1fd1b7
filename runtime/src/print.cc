#include "dtrun/runtime/print.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "dtrun/base/error.h"

namespace dtrun::runtime {

void print_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  std::fflush(stdout);  // keeps the order with printf and std::cout
  for (std::string_view left = text; !left.empty();) {
    const ssize_t n = ::write(STDOUT_FILENO, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw base::system_error("write to standard output");
    left.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace dtrun::runtime
