// EventLoop: the one waiting point of a thread: file descriptors, timers, signals, posted
// functions. Built on Boost.Asio, which stays inside event_loop.cc. Callbacks run on the thread in
// run(). Only post() and stop() may be called from other threads. Handles (FdWatch, Timer,
// SignalWatch) must be destroyed before their loop and on its thread; destroying one, also inside
// its own callback, stops its callbacks for good.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dtrun/base/deadline.h"

namespace dtrun::base {

class FdWatch;
class Timer;
class SignalWatch;

class EventLoop {
 public:
  using Callback = std::function<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs callbacks until stop(). An exception that leaves a callback leaves run().
  void run();
  /// Runs what is ready, waiting at most until the deadline for the first. Returns how many ran.
  std::size_t run_some(Deadline deadline);
  /// Ends the current run(); without one, the next.
  void stop();
  void post(Callback callback);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Watches one descriptor (pipe, socket, pidfd; not a regular file), which it borrows: it must stay
/// open for as long as the watch lives. Callbacks are level-triggered: called again while the fd is
/// ready.
class FdWatch {
 public:
  FdWatch(EventLoop& loop, int fd);
  ~FdWatch();
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;

  /// An empty callback stops the watching.
  void on_readable(EventLoop::Callback callback);
  void on_writable(EventLoop::Callback callback);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Calls back once per start(). Restarting replaces what was pending.
class Timer {
 public:
  explicit Timer(EventLoop& loop);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void start(Deadline deadline, EventLoop::Callback callback);
  void cancel();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Takes the signals over from their default action while it lives.
class SignalWatch {
 public:
  SignalWatch(EventLoop& loop, const std::vector<int>& signals, std::function<void(int)> callback);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace dtrun::base
