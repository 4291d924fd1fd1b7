#include "lasting_thread.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

namespace dtrun::mp {
namespace {

struct LastingThread {
  std::mutex lock;
  std::condition_variable added;
  std::deque<std::packaged_task<void()>> tasks;

  [[noreturn]] void run() {
    // So that the refusal of fork() says whose thread is in its way.
    ::prctl(PR_SET_NAME, "dtrun-mp");
    // The program's handlers run where the program expects them.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    while (true) {
      std::unique_lock held(lock);
      added.wait(held, [&] { return !tasks.empty(); });
      std::packaged_task<void()> task = std::move(tasks.front());
      tasks.pop_front();
      held.unlock();
      task();
    }
  }
};

}  // namespace

void on_lasting_thread(const std::function<void()>& action) {
  if (::gettid() == ::getpid()) return action();
  // Not destroyed, as its thread runs until the process is gone.
  static LastingThread* const thread = [] {
    auto* const made = new LastingThread;
    std::thread([made] { made->run(); }).detach();
    return made;
  }();
  std::packaged_task<void()> task(action);
  std::future<void> done = task.get_future();
  {
    const std::lock_guard held(thread->lock);
    thread->tasks.push_back(std::move(task));
  }
  thread->added.notify_one();
  done.get();
}

}  // namespace dtrun::mp
