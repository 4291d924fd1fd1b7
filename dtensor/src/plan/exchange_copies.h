// ExchangeCopies: what a rank copies in an exchange because the parts that it gives and gets have
// gaps in memory. Dim by dim, so that no rank is looked at that shares nothing with this one. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// Whether a part of a tensor that lies in rows is itself without gaps.
bool lies_together(const tensors::Shape& part, const tensors::Shape& whole);

/// Of the parts that `own` has in common with what each rank along the axes holds as `layout`: the
/// elements of those that have gaps in `own`.
/// @param coordinate of this rank; the others differ along `axes` only
std::int64_t exchange_copies(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                             const std::vector<int>& axes, const std::vector<int>& coordinate,
                             const Box& own, const Layout& layout);

}  // namespace dtrun::dtensor
