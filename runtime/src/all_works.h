// Several operations as one.
#pragma once

#include <vector>

#include "dtrun/collectives/work.h"

namespace dtrun::dist {

/// Is over when the last of them is; fails with the error of the first that does.
collectives::Work all_of(std::vector<collectives::Work> works,
                         collectives::Work::State::Clock::time_point started);

}  // namespace dtrun::dist
