#include "quiet_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::collectives {

std::thread start_quiet_thread(std::string name, std::function<void()> body) {
  // A new thread inherits the mask, so no signal can come in between.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const struct Restore {
    const sigset_t& mask;
    ~Restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  try {
    return std::thread([name = std::move(name), body = std::move(body)] {
      ::pthread_setname_np(::pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    throw base::system_error("start a thread", error.code().value(),
                             "raise the limit of processes (ulimit -u, pids.max)");
  }
}

}  // namespace dtrun::collectives
