#include "dtrun/base/event_loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include "dtrun/base/unique_fd.h"

namespace dtrun::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(EventLoopTest, AReadableCallbackIsCalledAgainWhileThereIsSomethingToRead) {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  ASSERT_EQ(::write(pipe.write_end.get(), "abc", 3), 3);
  FdWatch watch(loop, pipe.read_end.get());
  std::string read;
  watch.on_readable([&] {
    char c = 0;
    ASSERT_EQ(::read(pipe.read_end.get(), &c, 1), 1);
    read += c;
    if (read.size() == 3) loop.stop();
  });
  loop.run();
  EXPECT_EQ(read, "abc");
}

TEST(EventLoopTest, AStopBeforeTheRunEndsThatRunAndNoOther) {
  EventLoop loop;
  int ran = 0;
  loop.post([&] { ++ran; });
  loop.stop();
  loop.run();
  EXPECT_EQ(ran, 0);
  loop.post([&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(ran, 1);
}

TEST(EventLoopTest, OneDescriptorMayBeWatchedForReadingAndWriting) {
  EventLoop loop;
  Pipe there = make_pipe();
  FdWatch watch(loop, there.write_end.get());
  int writes = 0;
  watch.on_writable([&] {
    if (++writes == 2) {
      watch.on_writable(nullptr);
      loop.stop();
    }
  });
  loop.run();
  EXPECT_EQ(writes, 2);
}

TEST(EventLoopTest, AWatchMayBeDestroyedInItsOwnCallback) {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  ASSERT_EQ(::write(pipe.write_end.get(), "a", 1), 1);
  auto watch = std::make_unique<FdWatch>(loop, pipe.read_end.get());
  int calls = 0;
  watch->on_readable([&] {
    ++calls;
    watch.reset();
  });
  loop.run_some(Deadline::after(seconds(5)));
  loop.run_some(Deadline::after(milliseconds(10)));
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, TheDescriptorStaysOpenWhenItsWatchGoes) {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  { FdWatch watch(loop, pipe.read_end.get()); }
  EXPECT_EQ(::write(pipe.write_end.get(), "a", 1), 1);
}

TEST(EventLoopTest, ARestartedTimerFiresOnceAndACancelledOneNever) {
  EventLoop loop;
  int replaced = 0, fired = 0, cancelled = 0;
  Timer timer(loop), other(loop);
  timer.start(Deadline::after(milliseconds(1)), [&] { ++replaced; });
  timer.start(Deadline::after(milliseconds(5)), [&] {
    ++fired;
    loop.stop();
  });
  other.start(Deadline::after(milliseconds(1)), [&] { ++cancelled; });
  other.cancel();
  loop.run();
  EXPECT_EQ(replaced, 0);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(cancelled, 0);
}

TEST(EventLoopTest, ASignalArrivesAsACallbackAndDoesNotKill) {
  EventLoop loop;
  int got = 0;
  SignalWatch watch(loop, {SIGUSR1}, [&](int signal_number) {
    got = signal_number;
    loop.stop();
  });
  ::raise(SIGUSR1);
  loop.run();
  EXPECT_EQ(got, SIGUSR1);
}

TEST(EventLoopTest, AnotherThreadMayPostAndStop) {
  EventLoop loop;
  bool ran = false;
  std::thread other([&] {
    loop.post([&] { ran = true; });
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  other.join();
  EXPECT_TRUE(ran);
}

TEST(EventLoopTest, AnExceptionInACallbackLeavesRun) {
  EventLoop loop;
  loop.post([] { throw std::runtime_error("from a callback"); });
  EXPECT_THROW(loop.run(), std::runtime_error);
}

TEST(EventLoopTest, RunSomeGivesUpAtItsDeadline) {
  EventLoop loop;
  EXPECT_EQ(loop.run_some(Deadline::after(milliseconds(5))), 0u);
}

}  // namespace
}  // namespace dtrun::base
