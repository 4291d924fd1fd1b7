#include "mesh/spare_owners.h"

#include <utility>

#include "mesh/spec_table.h"

namespace dtrun::dtensor {

constinit thread_local SpareOwners::Kept SpareOwners::kept_{};
thread_local SpareOwners::EndOfThread SpareOwners::end_of_thread_;

SpareOwners::EndOfThread::~EndOfThread() {
  kept_.is_closed = true;
  let_go();
}

Spec SpareOwners::take_first(const Spec& spec) {
  if (kept_.body != spec.body()) {
    let_go();
    // The first use of it in a thread orders its end.
    if (!kept_.is_closed && end_of_thread_.stands) kept_.body = spec.body();
  }
  return spec;
}

void SpareOwners::let_go() noexcept {
  SpecBody* const body = std::exchange(kept_.body, nullptr);
  // The last may be the last of all, whose end may come here again.
  for (std::uint32_t left = std::exchange(kept_.count, 0); left > 0; --left)
    base::Counted<SpecBody> owner(body);
}

}  // namespace dtrun::dtensor
