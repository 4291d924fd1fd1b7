// PalsMeeting: where the dtruns of one mpiexec of PALS meet, by the file that it writes.
#pragma once

#include "engines/engine.h"

namespace dtrun::launcher {

/// Completes head, node and number of nodes by engine.places_file. If that cannot be read, it only
/// sets engine.no_places, the reason.
void meet_by_pals(Engine& engine);

}  // namespace dtrun::launcher
