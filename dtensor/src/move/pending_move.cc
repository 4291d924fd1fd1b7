#include "move/pending_move.h"

#include <algorithm>

namespace dtrun::dtensor {

template <typename Function>
void PendingMove::told(const Function& function) const {
  try {
    function();
  } catch (const base::Error& error) {
    if (tell_) tell_(error);
    throw;
  }
}

PendingMove::PendingMove(Stages stages, LocalTensor local, const collectives::CallOptions& options,
                         ErrorTeller tell)
    : stages_(std::move(stages)), tell_(std::move(tell)), current_{std::move(local)} {
  std::ranges::reverse(stages_);
  told([&] {
    for (bool has_started = false; !has_started && !stages_.empty(); stages_.pop_back()) {
      has_started = stages_.back().is_collective;
      current_ = stages_.back().start(current_.result, options);
    }
  });
}

tensors::LocalTensor PendingMove::wait() {
  told([&] {
    current_.work.wait();
    for (; !stages_.empty(); stages_.pop_back())
      current_ = stages_.back().start(current_.result, {});
  });
  return current_.result;
}

}  // namespace dtrun::dtensor
