// The ranks of a world that are threads: each has the default group that a program would have.
#pragma once

#include <functional>

#include "dtrun/collectives/default_group.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {

inline void run_world(int size, const std::function<void(int rank)>& body) {
  test::run_ranks(size, [&](const collectives::ProcessGroup& group) {
    collectives::set_default_group(&group);
    body(group.rank());
    collectives::set_default_group(nullptr);
  });
}

}  // namespace dtrun::dtensor
