// Gathers the facts by which host_election.h decides: asks the resolver and the interfaces, and
// blocks as long as they do.
#pragma once

#include "dtrun/base/deadline.h"
#include "meeting/host_election.h"

namespace dtrun::launcher {

/// @param deadline until which a name that does not resolve is asked for again: it may be new
EndpointFacts gather_endpoint_facts(const Options& options, base::Deadline deadline);
/// The endpoint's addresses alone, which is all that a static rendezvous must know. @param deadline
/// as above
EndpointFacts resolve_endpoint(const Options& options, base::Deadline deadline);
/// For choose_own_address().
EndpointFacts gather_own_facts(const Options& options);

}  // namespace dtrun::launcher
