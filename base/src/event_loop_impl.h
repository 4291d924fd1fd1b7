// What EventLoop is made of, for the sources of base that give Asio an object of their own.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "dtrun/base/event_loop.h"

namespace dtrun::base {

struct EventLoop::Impl {
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work =
      boost::asio::make_work_guard(context);
};

}  // namespace dtrun::base
