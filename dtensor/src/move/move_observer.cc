#include "move/move_observer.h"

#include "move/cause.h"
#include "move/legal_layouts.h"

namespace dtrun::dtensor {

constinit thread_local MoveObserver* MoveObserver::innermost_ = nullptr;
constinit thread_local const Cause* Cause::innermost_ = nullptr;
constinit thread_local const LegalLayouts* LegalLayouts::innermost_ = nullptr;

bool MoveObserver::allow(const Movement& move) {
  for (MoveObserver* observer = innermost_; observer != nullptr; observer = observer->outer_) {
    if (!observer->on_move(move)) return false;
  }
  return true;
}

bool MoveObserver::allow(const CrossMovement& move) {
  for (MoveObserver* observer = innermost_; observer != nullptr; observer = observer->outer_) {
    if (!observer->on_crossing(move)) return false;
  }
  return true;
}

bool MoveObserver::allow(const BlockMovement& move) {
  for (MoveObserver* observer = innermost_; observer != nullptr; observer = observer->outer_) {
    if (!observer->on_blocks(move)) return false;
  }
  return true;
}

void MoveObserver::tell(const EntryMovement& move) {
  for (MoveObserver* observer = innermost_; observer != nullptr; observer = observer->outer_)
    observer->on_entry(move);
}

}  // namespace dtrun::dtensor
