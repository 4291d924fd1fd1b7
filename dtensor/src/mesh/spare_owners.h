// SpareOwners: of one spec, the owners that tensors of this thread have given up, kept for the next
// ones. A repeated move makes a tensor of the same spec in each call: to count its owners up and
// down is two atomic steps, three percent of a short message. Whoever keeps the spec for such moves
// releases the spares when it ends, so they outlive it on other threads only, until those take one
// of another spec or end.
#pragma once

#include <cstdint>

#include "dtrun/dtensor/mesh/spec.h"

namespace dtrun::dtensor {

class SpareOwners {
 public:
  /// As a copy of the spec. From now on this thread keeps spares of it, and no others.
  static Spec take(const Spec& spec) {
    if (kept_.body == spec.body() && kept_.count > 0) [[likely]] {
      --kept_.count;
      return Spec(base::Counted<SpecBody>(kept_.body));
    }
    return take_first(spec);
  }
  /// @return whether the thread keeps that owner
  static bool keep(SpecBody* body) noexcept {
    if (kept_.body != body || kept_.count == kMost) return false;
    ++kept_.count;
    return true;
  }
  /// Lets this thread's spares of that spec go, if it has any.
  static void release(const Spec& spec) noexcept {
    if (kept_.body == spec.body()) let_go();
  }

 private:
  static constexpr std::uint32_t kMost = 4;

  /// Without a destructor: tensors may end after those of the thread have run.
  struct Kept {
    SpecBody* body;  ///< null: of none
    std::uint32_t count;
    bool is_closed;  ///< the thread ends
  };
  struct EndOfThread {
    ~EndOfThread();
    bool stands = true;
  };

  static Spec take_first(const Spec& spec);
  static void let_go() noexcept;

  static constinit thread_local Kept kept_;
  static thread_local EndOfThread end_of_thread_;
};

}  // namespace dtrun::dtensor
