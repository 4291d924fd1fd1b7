#include "dtrun/base/line_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "dtrun/base/socket.h"

namespace dtrun::base {
namespace {

using std::chrono::seconds;

class LineRelayTest : public testing::Test {
 protected:
  LineRelayTest() { ::signal(SIGPIPE, SIG_IGN); }

  // A sink into a pipe that the test reads.
  void open_pipe() {
    destination_ = make_pipe();
    set_nonblocking(destination_.read_end.get());
    sink_ = std::make_unique<OutputSink>(loop_, destination_.write_end.get());
  }

  // A stream of its own; returns the end that a rank would have.
  UniqueFd add(LineRelayOptions options = {}) {
    Pipe pipe = make_pipe();
    relays_.push_back(std::make_unique<LineRelay>(loop_, std::move(pipe.read_end), *sink_,
                                                  std::move(options), [this] { ++ended_; }));
    return std::move(pipe.write_end);
  }

  void write(const UniqueFd& fd, std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd.get(), text.data(), text.size());
      ASSERT_GT(n, 0);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  // Turns the loop while anything is ready, then takes what has arrived.
  void turn() {
    while (loop_.run_some(Deadline::after(std::chrono::milliseconds(20))) > 0) take();
    take();
  }

  void take() {
    char block[65536];
    for (ssize_t n; (n = ::read(destination_.read_end.get(), block, sizeof block)) > 0;)
      out_.append(block, static_cast<std::size_t>(n));
  }

  EventLoop loop_;
  Pipe destination_;
  std::unique_ptr<OutputSink> sink_;
  std::vector<std::unique_ptr<LineRelay>> relays_;
  std::string out_;
  int ended_ = 0;
};

TEST_F(LineRelayTest, OnlyWholeLinesPassAndTheLastOneAsItIs) {
  open_pipe();
  UniqueFd a = add(), b = add();
  write(a, "a1\na2 be");
  turn();
  EXPECT_EQ(out_, "a1\n");
  write(b, "b1\n");
  turn();
  write(a, "gun\nno end");
  a.reset();
  turn();
  EXPECT_EQ(out_, "a1\nb1\na2 begun\nno end");
  EXPECT_EQ(ended_, 1);
  EXPECT_TRUE(relays_[0]->ended());
}

TEST_F(LineRelayTest, TheOnlyStreamPassesAtOnce) {
  open_pipe();
  const UniqueFd a = add();
  write(a, "prompt> ");
  turn();
  EXPECT_EQ(out_, "prompt> ");
}

TEST_F(LineRelayTest, ALongLineIsNotInterruptedByOthers) {
  open_pipe();
  UniqueFd a = add(), b = add();
  const std::string part(200'000, 'x');
  set_nonblocking(b.get());
  for (int i = 0; i < 15; ++i) {
    write(a, part.substr(0, 60'000));
    write(b, "b\n");
    turn();
  }
  EXPECT_EQ(out_.find('x'), std::string::npos);  // a is still below the limit
  out_.clear();
  for (int i = 0; i < 20; ++i) {
    write(a, part.substr(0, 60'000));
    write(b, "b\n");
    turn();
  }
  a.reset();
  b.reset();
  turn();
  const std::size_t first = out_.find('x'), last = out_.rfind('x');
  EXPECT_EQ(last - first + 1, 35u * 60'000u);
  EXPECT_EQ(std::count(out_.begin(), out_.end(), 'b'), 20);
}

TEST_F(LineRelayTest, AStreamThatStopsInsideALongLineDoesNotHoldUpTheOthersForEver) {
  open_pipe();
  UniqueFd a = add(), b = add();
  for (int i = 0; i < 20; ++i) {
    write(a, std::string(60'000, 'x'));
    turn();
  }
  EXPECT_FALSE(out_.empty());
  // More than is held back for b: its pipe fills, and b's writer would block.
  std::string lines;
  while (lines.size() < (3 << 20)) lines += "b\n";
  set_nonblocking(b.get());
  std::string_view left = lines;
  const Deadline deadline = Deadline::after(seconds(20));
  while (!left.empty() && !deadline.expired()) {
    const ssize_t n = ::write(b.get(), left.data(), left.size());
    if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
    loop_.run_some(Deadline::after(std::chrono::milliseconds(50)));
    take();
  }
  EXPECT_TRUE(left.empty());
}

TEST_F(LineRelayTest, ASlowReaderHoldsTheWritersUpAndNothingIsLost) {
  open_pipe();
  UniqueFd a = add();
  set_nonblocking(a.get());
  std::string written;
  int refusals = 0;
  // Nobody reads: the sink fills up, then the pipe, and the writer is refused.
  while (refusals < 20) {
    const std::string line = "line " + std::to_string(written.size()) + "\n";
    if (::write(a.get(), line.data(), line.size()) > 0) {
      written += line;
      refusals = 0;
    } else {
      ++refusals;
    }
    loop_.run_some(Deadline::after(Deadline::Duration::zero()));
  }
  EXPECT_LT(written.size(), 4u << 20);
  a.reset();
  turn();
  EXPECT_EQ(out_, written);
  EXPECT_EQ(sink_->lost_bytes(), 0u);
  EXPECT_TRUE(sink_->idle());
}

TEST_F(LineRelayTest, EveryLineGetsTheTag) {
  open_pipe();
  UniqueFd a = add({"[0:1] ", 0}), b = add({"[0:2] ", 0});
  write(a, "one\ntwo\n");
  turn();
  write(b, "three");
  b.reset();
  turn();
  EXPECT_EQ(out_, "[0:1] one\n[0:1] two\n[0:2] three");
}

TEST_F(LineRelayTest, TheTailIsTheEndOfTheStream) {
  open_pipe();
  const UniqueFd a = add({"", 10});
  write(a, "0123456789abc");
  turn();
  EXPECT_EQ(relays_[0]->tail(), "3456789abc");
  for (int i = 0; i < 10; ++i) {
    write(a, "xyz");
    turn();
  }
  EXPECT_EQ(relays_[0]->tail().substr(relays_[0]->tail().size() - 10), "zxyzxyzxyz");
  EXPECT_LE(relays_[0]->tail().size(), 20u);
}

TEST_F(LineRelayTest, AClosedDestinationSwallowsAndCounts) {
  open_pipe();
  const UniqueFd a = add();
  destination_.read_end.reset();
  write(a, "lost\n");
  while (sink_->lost_bytes() == 0) loop_.run_some(Deadline::after(seconds(10)));
  EXPECT_EQ(sink_->lost_bytes(), 5u);
  EXPECT_EQ(sink_->error_number(), EPIPE);
  EXPECT_TRUE(sink_->idle());
}

TEST_F(LineRelayTest, AFullDiskIsAnErrorNumberAndNotAHang) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  sink_ = std::make_unique<OutputSink>(loop_, full.get());
  const UniqueFd a = add();
  write(a, "lost\n");
  while (sink_->lost_bytes() == 0) loop_.run_some(Deadline::after(seconds(10)));
  EXPECT_EQ(sink_->error_number(), ENOSPC);
}

TEST_F(LineRelayTest, ASocketIsWrittenToWithoutMakingItNonBlocking) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  sink_ = std::make_unique<OutputSink>(loop_, ours.get());
  UniqueFd a = add();
  set_nonblocking(a.get());
  set_nonblocking(theirs.get());
  const std::string text(1 << 20, 's');
  std::string_view left = text;
  std::string got;
  char block[65536];
  const Deadline deadline = Deadline::after(seconds(20));
  while (got.size() < text.size() && !deadline.expired()) {
    const ssize_t n = left.empty() ? 0 : ::write(a.get(), left.data(), left.size());
    if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
    loop_.run_some(Deadline::after(std::chrono::milliseconds(10)));
    const ssize_t m = ::read(theirs.get(), block, sizeof block);
    if (m > 0) got.append(block, static_cast<std::size_t>(m));
  }
  EXPECT_EQ(got, text);
  EXPECT_EQ(::fcntl(ours.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(LineRelayTest, ARegularFileGetsAllInOrder) {
  std::string path = testing::TempDir() + "line_relay_XXXXXX";
  const UniqueFd file(::mkstemp(path.data()));
  sink_ = std::make_unique<OutputSink>(loop_, file.get());
  UniqueFd a = add(), b = add();
  write(a, "a\n");
  write(b, "b\n");
  a.reset();
  b.reset();
  while (ended_ < 2) loop_.run_some(Deadline::after(seconds(10)));
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), 4);
  ::unlink(path.c_str());
}

TEST_F(LineRelayTest, AStreamCanBeEndedThoughAWriterHoldsIt) {
  open_pipe();
  const UniqueFd a = add(), b = add();
  write(a, "whole\nhalf");
  relays_[0]->finish();
  turn();
  EXPECT_TRUE(relays_[0]->ended());
  EXPECT_EQ(out_, "whole\nhalf");
  EXPECT_EQ(ended_, 1);
}

TEST_F(LineRelayTest, WhatIsQueuedCanBeAbandoned) {
  open_pipe();
  UniqueFd a = add();
  set_nonblocking(a.get());
  const std::string line(1000, 'l');
  for (int refusals = 0; refusals < 20;) {
    if (::write(a.get(), line.data(), line.size()) <= 0) ++refusals;
    loop_.run_some(Deadline::after(Deadline::Duration::zero()));
  }
  EXPECT_FALSE(sink_->idle());
  a.reset();
  bool idle = false;
  sink_->on_idle([&] { idle = true; });
  sink_->abandon();
  EXPECT_TRUE(idle);
  while (ended_ == 0) loop_.run_some(Deadline::after(seconds(10)));
  EXPECT_GT(sink_->lost_bytes(), 0u);
}

}  // namespace
}  // namespace dtrun::base
