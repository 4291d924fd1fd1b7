// Writes much:   flood_worker BYTES END      END: newline, none, kill
// Records of flood_records.h, in pieces that end anywhere, at least BYTES of them, to standard
// output (even ranks) or to both streams in turns (odd ranks write every third record to standard
// error). "none": the last newline is left out. "kill": local rank 3 writes half a record more and
// kills itself. SIGTERM is ignored: the launcher wants to end the job when a rank is killed.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "dtrun/base/env.h"
#include "launcher/flood_records.h"

namespace {

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0) std::exit(3);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Holds records back and lets them go in pieces of a size that fits nothing.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {}
  void put(std::string_view text) {
    held_ += text;
    constexpr std::size_t kPiece = 10'007;
    std::size_t begin = 0;
    for (; held_.size() - begin >= kPiece; begin += kPiece)
      write_all(fd_, std::string_view(held_).substr(begin, kPiece));
    held_.erase(0, begin);
  }
  void end(bool with_newline) {
    if (!with_newline && !held_.empty() && held_.back() == '\n') held_.pop_back();
    write_all(fd_, held_);
    held_.clear();
  }

 private:
  int fd_;
  std::string held_;
};

}  // namespace

int main(int, char** argv) {
  using namespace dtrun;
  const auto bytes = static_cast<std::size_t>(*base::parse_integer(argv[1]));
  const std::string end = argv[2];
  const int rank = static_cast<int>(*base::parse_integer(*base::get_env("RANK")));
  ::signal(SIGTERM, SIG_IGN);
  Stream out(STDOUT_FILENO), err(STDERR_FILENO);
  std::size_t written = 0;
  for (std::uint32_t sequence = 0; written < bytes; ++sequence) {
    const std::string text =
        launcher::record(rank, sequence, launcher::record_length(rank, sequence));
    written += text.size();
    Stream& stream = rank % 2 == 1 && sequence % 3 == 2 ? err : out;
    stream.put(text);
    if (end == "kill" && rank == 3 && written > bytes / 2) {
      // What is half-written, and not held back, arrives all the same.
      out.end(true);
      err.end(true);
      write_all(STDOUT_FILENO, text.substr(0, launcher::kRecordHeaderBytes + 1));
      ::raise(SIGKILL);
    }
  }
  out.end(end != "none");
  err.end(end != "none");
  return 0;
}
