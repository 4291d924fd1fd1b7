#include "quiet_thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace dtrun::collectives::cpu {

std::thread start_quiet_thread(std::string name, std::function<void()> body) {
  // A new thread inherits the mask, so no signal can come in between.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([name = std::move(name), body = std::move(body)] {
    ::pthread_setname_np(::pthread_self(), name.c_str());
    body();
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace dtrun::collectives::cpu
