// PalsMeeting: where the dtruns of one mpiexec of PALS meet, which tells it in a file.
#pragma once

#include "engines/engine.h"

namespace dtrun::launcher {

/// Completes head, node and number of nodes by engine.places_file; what cannot be read leaves them,
/// and its reason in engine.no_places.
void meet_by_pals(Engine& engine);

}  // namespace dtrun::launcher
