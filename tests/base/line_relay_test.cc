#include "dtrun/base/line_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <termios.h>
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

// Writes what each stream still takes, until none takes more; nobody reads the destination.
std::size_t fill(EventLoop& loop, const std::vector<UniqueFd>& streams, std::string_view text) {
  std::size_t taken = 0;
  for (int refusals = 0; refusals < 20; ++refusals) {
    for (const UniqueFd& stream : streams) {
      const ssize_t n = ::write(stream.get(), text.data(), text.size());
      if (n <= 0) continue;
      refusals = 0;
      taken += static_cast<std::size_t>(n);
    }
    while (loop.run_some(Deadline::after(Deadline::Duration::zero())) > 0) continue;
  }
  return taken;
}

TEST_F(LineRelayTest, ManyStreamsThatWaitForALongLineKeepLittleBetweenThem) {
  open_pipe();
  const UniqueFd holder = add();
  std::vector<UniqueFd> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(add());
    set_nonblocking(others.back().get());
  }
  for (int i = 0; i < 20; ++i) {
    write(holder, std::string(60'000, 'x'));
    turn();
  }
  ASSERT_FALSE(out_.empty());
  const std::size_t in_pipes = others.size() * (64 << 10);
  std::string lines;
  while (lines.size() < 60'000) lines += "line\n";
  EXPECT_LT(fill(loop_, others, lines), in_pipes + (18u << 20));
  write(holder, "\n");
  others.clear();
  turn();
  EXPECT_EQ(ended_, 100);
}

TEST_F(LineRelayTest, ManyUnfinishedLinesKeepLittleBetweenThemAndComeWhole) {
  open_pipe();
  std::vector<UniqueFd> streams;
  for (int i = 0; i < 100; ++i) {
    streams.push_back(add());
    set_nonblocking(streams.back().get());
  }
  const std::size_t in_pipes = streams.size() * (64 << 10);
  const std::size_t taken = fill(loop_, streams, std::string(999, 'x'));
  EXPECT_LT(taken, in_pipes + (18u << 20));
  streams.clear();
  turn();
  EXPECT_EQ(ended_, 100);
  EXPECT_EQ(out_.size(), taken);
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

TEST_F(LineRelayTest, ASmallLineWaitsNotLongForALongOneThatDoesNotGoOn) {
  open_pipe();
  UniqueFd a = add(), b = add(), c = add();
  for (int i = 0; i < 20; ++i) {
    write(a, std::string(60'000, 'x'));
    turn();
  }
  write(b, "b\n");
  write(c, "no newline");
  c.reset();
  const Deadline deadline = Deadline::after(seconds(20));
  while (out_.find("b\n") == std::string::npos && !deadline.expired()) turn();
  EXPECT_NE(out_.find("b\n"), std::string::npos);
  turn();
  EXPECT_TRUE(out_.ends_with("no newline"));
}

TEST_F(LineRelayTest, ALongLineThatDribblesOnDoesNotHoldUpTheOthersForEver) {
  open_pipe();
  UniqueFd bar = add(), other = add();
  for (int i = 0; i < 40; ++i) {
    write(bar, std::string(32 << 10, '#'));
    turn();
  }
  write(other, std::string(4096, 'x') + "line\n");
  for (int i = 0; i < 3000 && !out_.ends_with("line\n"); ++i) {
    write(bar, std::string(600, '#'));
    turn();
    if (i < 40) write(other, std::string(60000, 'y') + "line\n");
  }
  EXPECT_NE(out_.find("line\n"), std::string::npos);
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

TEST_F(LineRelayTest, WhatGoesToTheSinkCanBeChangedOnItsWay) {
  open_pipe();
  std::string seen;
  LineRelayOptions options;
  options.put = [this](std::string_view bytes) { sink_->put("<" + std::string(bytes) + ">"); };
  options.observe = [&seen](std::string_view bytes) { seen += bytes; };
  options.beginnings = LineRelayOptions::Beginnings::kWithTheRest;
  UniqueFd a = add(options);
  write(a, "one\ntwo\nthr");
  turn();
  EXPECT_EQ(out_, "<one\ntwo\n>");
  EXPECT_EQ(seen, "one\ntwo\nthr");
  a.reset();
  turn();
  EXPECT_EQ(out_, "<one\ntwo\n><thr>");
}

// A file that is gone from its folder, and what is in it.
struct CopyFile {
  CopyFile() {
    std::string path = testing::TempDir() + "stream_copy_XXXXXX";
    fd = ::mkostemp(path.data(), O_APPEND | O_CLOEXEC);
    ::unlink(path.c_str());
    copy = std::make_unique<StreamCopy>(UniqueFd(fd));
  }
  std::string content() const {
    std::string result(copy->size() + 1, '\0');
    result.resize(static_cast<std::size_t>(::pread(fd, result.data(), result.size(), 0)));
    return result;
  }
  int fd = -1;
  std::unique_ptr<StreamCopy> copy;
};

LineRelayOptions with_copy(const CopyFile& file) {
  LineRelayOptions options;
  options.copy = file.copy.get();
  return options;
}

TEST_F(LineRelayTest, AStalledReaderDoesNotHoldUpAStreamWithACopyAndGetsAllInTheEnd) {
  open_pipe();
  CopyFile file, other_file;
  UniqueFd a = add(with_copy(file)), b = add(with_copy(other_file));
  std::string written;
  for (int i = 0; i < 3000; ++i) {  // many times what pipes and queue hold
    const std::string line = std::to_string(i) + std::string(1000, 'l') + "\n";
    write(a, line);  // blocks for ever where the relay does not read
    written += line;
    loop_.run_some(Deadline::after(Deadline::Duration::zero()));
  }
  write(b, "b\n");
  a.reset();
  while (file.copy->size() < written.size()) loop_.run_some(Deadline::after(seconds(10)));
  EXPECT_EQ(file.content(), written);
  EXPECT_FALSE(relays_[0]->ended());
  b.reset();
  turn();
  EXPECT_EQ(ended_, 2);
  const auto of_b = out_.find("b\n");
  ASSERT_NE(of_b, std::string::npos);
  out_.erase(of_b, 2);
  EXPECT_EQ(out_, written);
}

TEST_F(LineRelayTest, ACopyThatFailsIsTheBeginningAndTheReaderGetsAll) {
  open_pipe();
  StreamCopy full(UniqueFd(::open("/dev/full", O_RDWR | O_APPEND | O_CLOEXEC)));
  LineRelayOptions options;
  options.copy = &full;
  UniqueFd a = add(std::move(options));
  write(a, "one\ntwo\n");
  a.reset();
  turn();
  EXPECT_EQ(out_, "one\ntwo\n");
  EXPECT_EQ(full.error_number(), ENOSPC);
  EXPECT_EQ(full.lost_bytes(), 8u);
}

TEST_F(LineRelayTest, WhoIsGivenUpMissesNothingThatIsInACopy) {
  open_pipe();
  CopyFile file;
  UniqueFd a = add(with_copy(file));
  std::string written;
  for (int i = 0; i < 2000; ++i) {
    write(a, std::string(1000, 'l') + "\n");
    loop_.run_some(Deadline::after(Deadline::Duration::zero()));
  }
  a.reset();
  while (file.copy->size() < 2000 * 1001) loop_.run_some(Deadline::after(seconds(10)));
  const std::uint64_t queued = sink_->lost_bytes();
  sink_->abandon();
  while (ended_ == 0) loop_.run_some(Deadline::after(seconds(10)));
  EXPECT_LT(sink_->lost_bytes() - queued, 1u << 20);  // what it had been given already
}

TEST_F(LineRelayTest, AFooterGivesWayToLinesAndWaitsForTheirEnd) {
  open_pipe();
  const UniqueFd a = add(), b = add();
  EXPECT_TRUE(sink_->show_footer("[foot]"));
  write(a, "line\n");
  turn();
  EXPECT_TRUE(sink_->show_footer("[foot]"));
  EXPECT_TRUE(sink_->show_footer("[new]"));
  sink_->put("prompt> ");
  EXPECT_FALSE(sink_->show_footer("[foot]"));
  sink_->clear_footer();
  turn();
  EXPECT_EQ(out_, "[foot]\r\x1b[Kline\n[foot]\r\x1b[K[new]\r\x1b[Kprompt> ");
}

// --- on a terminal

class TerminalRelayTest : public LineRelayTest {
 protected:
  TerminalRelayTest() {
    int reader = -1, terminal = -1;
    EXPECT_EQ(::openpty(&reader, &terminal, nullptr, nullptr, nullptr), 0);
    termios modes{};
    ::tcgetattr(terminal, &modes);
    ::cfmakeraw(&modes);
    ::tcsetattr(terminal, TCSANOW, &modes);
    destination_ = {UniqueFd(reader), UniqueFd(terminal)};
    set_nonblocking(reader);
    sink_ = std::make_unique<OutputSink>(loop_, terminal);
  }

  // What comes, until it ends so.
  std::string shown(std::string_view end) {
    out_.clear();
    for (int turns = 0; turns < 1000 && !out_.ends_with(end); ++turns) turn();
    return out_;
  }
};

TEST_F(TerminalRelayTest, WhatALineBeginsWithIsSeenAndStaysBelowTheOthersLines) {
  UniqueFd prompt = add(), other = add();
  write(prompt, "name? ");
  EXPECT_EQ(shown("name? "), "name? ");
  write(other, "line\n");
  EXPECT_EQ(shown("name? "), "\r\x1b[Kline\nname? ");
  write(prompt, "hello\n");
  EXPECT_EQ(shown("\n"), "hello\n");
}

TEST_F(TerminalRelayTest, ABarGoesOnInItsRow) {
  UniqueFd bar = add(), other = add();
  write(bar, "\r10%");
  EXPECT_EQ(shown("%"), "\r10%");
  write(bar, "\r20%");
  EXPECT_EQ(shown("20%"), "\r20%");
  write(other, "line\n");
  EXPECT_EQ(shown("20%"), "\r\x1b[Kline\n20%");
  write(bar, "\r30%");
  bar.reset();
  EXPECT_EQ(shown("30%"), "\r30%");
  write(other, "line\n");
  EXPECT_EQ(shown("\n"), "\nline\n");
}

TEST(TerminalRowsTest, RowsOfSeveralTakeTurnsAndNoneIsTorn) {
  const int a = 0, b = 0;
  TerminalRows rows;
  EXPECT_EQ(rows.put(&a, "a 1", 80), "a 1");
  EXPECT_EQ(rows.put(&b, "b 1", 80), "\r\x1b[Kb 1");
  EXPECT_EQ(rows.put(&a, " 2", 80), "\r\x1b[Ka 1 2");
  EXPECT_EQ(rows.put(&a, "\n", 80), "\n");
  EXPECT_EQ(rows.put(&b, " 2\n", 80), "b 1 2\n");
  EXPECT_TRUE(rows.empty());
  // Of one that has ended, the beginning is all there is.
  rows.put(&a, "a", 80);
  rows.put(&b, "b", 80);
  EXPECT_EQ(rows.end(&a, 80), "\r\x1b[Ka\nb");
  EXPECT_EQ(rows.end(&b, 80), "");
  EXPECT_EQ(rows.put(&a, "x\n", 80), "\nx\n");
  EXPECT_TRUE(rows.empty());
}

TEST(TerminalRowsTest, WhatCannotBeErasedIsEnded) {
  const int a = 0, b = 0;
  const std::string wide(10, 'w');
  TerminalRows rows;
  rows.put(&a, wide, 10);
  EXPECT_EQ(rows.put(&b, "x\n", 10), "\nx\n");
  rows.put(&a, "\x1b[36m12345678\x1b[0m\u2588", 10);
  EXPECT_EQ(rows.put(&b, "x\n", 10).substr(0, 4), "\r\x1b[K");
  EXPECT_EQ(rows.put(&b, "x\n", 0).substr(0, 2), "\nx");
}

TEST_F(LineRelayTest, APieceOfALongLineCutsNoCharacter) {
  open_pipe();
  add();
  std::vector<std::string> pieces;
  LineRelayOptions options;
  options.beginnings = LineRelayOptions::Beginnings::kWithTheRest;
  options.put = [&](std::string_view bytes) { pieces.emplace_back(bytes); };
  UniqueFd a = add(std::move(options));
  std::string line;
  for (const std::string_view part : {"", "x"}) {
    const std::size_t before = pieces.size();
    line = part;
    while (line.size() < 3u << 19) line += "\u20ac";  // three bytes
    std::string_view left = line;
    for (; !left.empty(); left.remove_prefix(std::min<std::size_t>(left.size(), 60000))) {
      write(a, left.substr(0, 60000));
      turn();
    }
    write(a, "\n");
    turn();
    EXPECT_GT(pieces.size(), before + 1);
    std::string all;
    for (std::size_t i = before; i < pieces.size(); ++i) {
      EXPECT_NE(static_cast<unsigned char>(pieces[i][0]) & 0xc0, 0x80) << i;
      all += pieces[i];
    }
    EXPECT_EQ(all, line + "\n");
  }
}

TEST_F(LineRelayTest, TheTailIsTheEndOfTheStream) {
  open_pipe();
  LineRelayOptions options;
  options.tail_bytes = 10;
  const UniqueFd a = add(std::move(options));
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
