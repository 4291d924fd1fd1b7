// The exchange step of a redistribute plan, with exact counts: nothing is padded, and no rank gets
// what it has.
#pragma once

#include "dtrun/base/call_site.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

/// The part of `tensor`, which holds `box`, that lies in `wanted`, too: a view.
tensors::LocalTensor shared_part(const tensors::LocalTensor& tensor, const Box& box,
                                 const Box& wanted);

/// Collective along the step's axes.
StartedStage start_exchange(const PlanSite& site, const Step& step,
                            const tensors::LocalTensor& local,
                            const collectives::CallOptions& options, const base::CallSite& call);

}  // namespace dtrun::dtensor
