#include "dtrun/base/background_call.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

#include "dtrun/base/error.h"

namespace dtrun::base {
namespace {

using std::chrono::seconds;

TEST(BackgroundCallTest, TheOutcomeIsDeliveredOnTheLoopsThread) {
  EventLoop loop;
  std::thread::id worked_on, delivered_on;
  bool all_blocked = true;
  const BackgroundCall call(loop, [&] {
    worked_on = std::this_thread::get_id();
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD})
      all_blocked = all_blocked && ::sigismember(&mask, number) == 1;
    return [&] {
      delivered_on = std::this_thread::get_id();
      loop.stop();
    };
  });
  loop.run();
  EXPECT_EQ(delivered_on, std::this_thread::get_id());
  EXPECT_NE(worked_on, delivered_on);
  EXPECT_TRUE(all_blocked);
}

TEST(BackgroundCallTest, WhatTheWorkThrowsTheLoopThrows) {
  EventLoop loop;
  const BackgroundCall call(loop, []() -> BackgroundCall::Outcome {
    throw Error(ErrorCode::kConnection, "the name 'x' does not resolve");
  });
  try {
    loop.run();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.summary(), "the name 'x' does not resolve");
  }
}

TEST(BackgroundCallTest, TheOutcomeMayDestroyTheCall) {
  EventLoop loop;
  std::unique_ptr<BackgroundCall> call;
  call = std::make_unique<BackgroundCall>(loop, [&] {
    return [&] {
      call.reset();
      loop.stop();
    };
  });
  loop.run();
  EXPECT_EQ(call, nullptr);
}

TEST(BackgroundCallTest, ACallThatIsGivenUpIsNotWaitedForAndDeliversNothing) {
  EventLoop loop;
  std::promise<void> may_end, has_ended;
  auto delivered = std::make_shared<bool>(false);
  {
    const BackgroundCall call(loop, [&, delivered] {
      may_end.get_future().wait();
      has_ended.set_value_at_thread_exit();
      return [delivered] { *delivered = true; };
    });
  }
  may_end.set_value();
  has_ended.get_future().wait();
  loop.run_some(Deadline::after(std::chrono::milliseconds(10)));
  EXPECT_FALSE(*delivered);
}

}  // namespace
}  // namespace dtrun::base
