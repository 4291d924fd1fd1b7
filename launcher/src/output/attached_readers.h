// AttachedReaders: those that read along (`dtrun attach`): they get what this dtrun writes to its
// standard output and error, from the next whole line on, and at the end the job's exit code. None
// of them is waited for: for one that is slow a megabyte is kept, and beyond that it is told how
// many bytes are dropped. Only processes of this user, and of root, are let in. On the EventLoop of
// the output's thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "options/stream_choice.h"

namespace dtrun::launcher {

class AttachedReaders {
 public:
  /// More are refused.
  static constexpr std::size_t kMost = 16;

  /// Where no socket can be had nobody can attach, and that is logged.
  explicit AttachedReaders(base::EventLoop& loop);

  bool any() const { return !readers_.empty(); }
  /// What has just been written.
  void add(Stream stream, std::string_view bytes);
  /// The job has ended. Waits for readers that have not taken all yet, a fifth of a second at the
  /// most; what one has not taken by then is dropped.
  void end(int exit_code);

 private:
  struct Reader {
    Reader(base::EventLoop& loop, base::UniqueFd socket);

    base::UniqueFd fd;
    base::FdWatch watch;
    std::deque<std::string> frames = {};  ///< that wait
    std::size_t waiting = 0;              ///< bytes of them
    std::size_t sent = 0;                 ///< of the first
    std::uint64_t dropped = 0;
    /// By Stream: the rest of the line that is being written is not for it.
    std::array<bool, 2> skips = {};
    bool is_gone = false;
  };

  void accept_one();
  void give(Reader& reader, Stream stream, std::string_view bytes);
  void tell_dropped(Reader& reader);
  void push(Reader& reader, std::string frame);
  void say_end(Reader& reader, int exit_code);
  void send_some(Reader& reader);
  void forget_gone();

  base::EventLoop& loop_;
  base::UniqueFd listener_;
  std::unique_ptr<base::FdWatch> watch_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::array<bool, 2> in_line_ = {};  // by Stream: the last byte ended no line
  bool forget_posted_ = false;
};

}  // namespace dtrun::launcher
