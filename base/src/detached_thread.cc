#include "dtrun/base/detached_thread.h"

#include <system_error>
#include <thread>
#include <utility>

#include "dtrun/base/blocked_signals.h"
#include "dtrun/base/error.h"

namespace dtrun::base {

void start_detached_thread(std::function<void()> run) {
  const BlockedSignals inherited_by_the_thread;
  try {
    std::thread(std::move(run)).detach();
  } catch (const std::system_error& error) {
    throw system_error("start a thread", error.code().value(), "raise the limit of processes");
  }
}

}  // namespace dtrun::base
