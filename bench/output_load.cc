// A rank of output_bench: MIB mebibytes of lines of 80 bytes to its standard output, 64 KiB at a
// time, the same in all ranks, or each rank's own.
//
//     output_load same|own MIB
//     output_load splice            passes its standard input on: what a relay can be at the best
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr std::size_t kPiece = 64 << 10, kBlock = 16 * kPiece;

int splice_all() {
  while (true) {
    const ssize_t n = ::splice(STDIN_FILENO, nullptr, STDOUT_FILENO, nullptr, kBlock, 0);
    if (n <= 0) return n == 0 ? 0 : 1;
  }
}

std::string block_of_lines(const std::string& kind) {
  const char* const rank = std::getenv("RANK");
  const std::string who = kind == "own" && rank != nullptr ? rank : "x";
  std::string block;
  for (int step = 0; block.size() < kBlock; ++step) {
    char line[128];
    std::snprintf(line, sizeof line, "of %4s: step %8d, loss %12.6f, gradients' norm %12.6f %15s\n",
                  who.c_str(), step, 1.0 / (1 + step), 2.0 / (3 + step), "ok");
    block += line;
  }
  return block;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if (kind == "splice") return splice_all();
  if (argc != 3 || (kind != "same" && kind != "own")) {
    std::fputs("usage: output_load same|own MIB, or output_load splice\n", stderr);
    return 2;
  }
  const std::string block = block_of_lines(kind);
  std::size_t left = std::strtoull(argv[2], nullptr, 10) << 20;
  std::size_t at = 0;
  while (left > 0) {
    const std::size_t size = std::min({left, kPiece, block.size() - at});
    const ssize_t n = ::write(STDOUT_FILENO, block.data() + at, size);
    if (n <= 0) return 1;
    left -= static_cast<std::size_t>(n);
    at = (at + static_cast<std::size_t>(n)) % block.size();
  }
}
