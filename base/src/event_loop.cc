#include "dtrun/base/event_loop.h"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "event_loop_impl.h"

namespace dtrun::base {
namespace asio = boost::asio;

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() {
  impl_->context.run();
  impl_->context.restart();
}

std::size_t EventLoop::run_some(Deadline deadline) {
  impl_->context.restart();
  const std::size_t first = deadline.is_never() ? impl_->context.run_one()
                                                : impl_->context.run_one_until(deadline.when());
  return first + impl_->context.poll();
}

void EventLoop::stop() {
  impl_->context.stop();
}

void EventLoop::post(Callback callback) {
  asio::post(impl_->context, std::move(callback));
}

// Asio may still hold a completion after the watch is gone; it then finds the weak pointer empty.
struct FdWatch::Impl : std::enable_shared_from_this<FdWatch::Impl> {
  Impl(EventLoop& loop, int fd) : descriptor(loop.impl().context, fd) {}
  ~Impl() { descriptor.release(); }

  asio::posix::stream_descriptor descriptor;
  struct Interest {
    EventLoop::Callback callback;
    bool waiting = false;
  };
  Interest readable, writable;

  void arm(Interest Impl::*which, asio::posix::descriptor_base::wait_type type) {
    Interest& interest = this->*which;
    if (interest.waiting || !interest.callback) return;
    interest.waiting = true;
    descriptor.async_wait(
        type, [weak = weak_from_this(), which, type](const boost::system::error_code& error) {
          const auto self = weak.lock();
          if (!self) return;
          Interest& fired = (*self).*which;
          fired.waiting = false;
          if (error) return;
          // A copy: the callback may replace itself or destroy the watch.
          if (const auto callback = fired.callback) callback();
          if (!weak.expired()) self->arm(which, type);
        });
  }
};

FdWatch::FdWatch(EventLoop& loop, int fd) : impl_(std::make_shared<Impl>(loop, fd)) {}

FdWatch::~FdWatch() {
  impl_->readable.callback = nullptr;
  impl_->writable.callback = nullptr;
  impl_->descriptor.release();
}

void FdWatch::on_readable(EventLoop::Callback callback) {
  impl_->readable.callback = std::move(callback);
  impl_->arm(&Impl::readable, asio::posix::descriptor_base::wait_read);
}

void FdWatch::on_writable(EventLoop::Callback callback) {
  impl_->writable.callback = std::move(callback);
  impl_->arm(&Impl::writable, asio::posix::descriptor_base::wait_write);
}

struct Timer::Impl : std::enable_shared_from_this<Timer::Impl> {
  explicit Impl(EventLoop& loop) : timer(loop.impl().context) {}
  asio::steady_timer timer;
  unsigned generation = 0;
};

Timer::Timer(EventLoop& loop) : impl_(std::make_shared<Impl>(loop)) {}
Timer::~Timer() {
  cancel();
}

void Timer::start(Deadline deadline, EventLoop::Callback callback) {
  cancel();
  if (deadline.is_never()) return;
  impl_->timer.expires_at(deadline.when());
  impl_->timer.async_wait([weak = std::weak_ptr<Impl>(impl_), generation = impl_->generation,
                           callback = std::move(callback)](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (!error && self && self->generation == generation) callback();
  });
}

void Timer::cancel() {
  ++impl_->generation;
  impl_->timer.cancel();
}

struct SignalWatch::Impl : std::enable_shared_from_this<SignalWatch::Impl> {
  Impl(EventLoop& loop, std::function<void(int)> on_signal)
      : signals(loop.impl().context), callback(std::move(on_signal)) {}
  asio::signal_set signals;
  std::function<void(int)> callback;

  void arm() {
    signals.async_wait(
        [weak = weak_from_this()](const boost::system::error_code& error, int signal_number) {
          const auto self = weak.lock();
          if (!self || error) return;
          self->callback(signal_number);
          self->arm();
        });
  }
};

SignalWatch::SignalWatch(EventLoop& loop, const std::vector<int>& signals,
                         std::function<void(int)> callback)
    : impl_(std::make_shared<Impl>(loop, std::move(callback))) {
  for (const int signal_number : signals) impl_->signals.add(signal_number);
  impl_->arm();
}

SignalWatch::~SignalWatch() = default;

}  // namespace dtrun::base
