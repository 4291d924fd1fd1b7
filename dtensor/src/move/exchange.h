// The exchange step of a redistribute plan: an all_to_all with exact counts, without padding and
// without sending what the receiver has.
#pragma once

#include "dtrun/base/call_site.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

/// The intersection with `wanted`, as a view of `tensor`, which holds `box`.
tensors::LocalTensor shared_part(const tensors::LocalTensor& tensor, const Box& box,
                                 const Box& wanted);

/// Collective along the step's axes.
StartedStage start_exchange(const PlanSite& site, const Step& step,
                            const tensors::LocalTensor& local,
                            const collectives::CallOptions& options, const base::CallSite& call);

}  // namespace dtrun::dtensor
