#include "dtrun/base/quick_mutex.h"

#include "dtrun/base/futex.h"

namespace dtrun::base {

// Who has slept takes it as awaited, because others may sleep yet (Drepper, Futexes Are Tricky).
void QuickMutex::wait_and_lock() {
  while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree)
    futex_wait(word_, kAwaited, Deadline::never());
}

void QuickMutex::wake() {
  futex_wake_all(word_);
}

}  // namespace dtrun::base
