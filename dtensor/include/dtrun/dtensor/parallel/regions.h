// Regions: what goes into and out of a part of a program in which the ranks of an axis share the
// work of plain tensors, each with the gradient that belongs to it. Megatron-LM's
// mappings (Shoeybi et al., 2019; Korthikanti et al., 2022). Collective over the axis, forward and
// backward. A mesh of one axis; @throws Error kInvalidArgument otherwise.
//
//     const Tensor h = copy_to_region(x, mesh["tp"]);            // backward sums
//     const Tensor y = reduce_from_region(part_of(h), mesh["tp"]);  // forward sums
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// x as it is; its gradient is the sum over the ranks.
Tensor copy_to_region(const Tensor& x, const DeviceMesh& mesh,
                      Tensor::Site site = Tensor::Site::current());
/// The sum over the ranks; its gradient goes back as it is.
Tensor reduce_from_region(const Tensor& x, const DeviceMesh& mesh,
                          Tensor::Site site = Tensor::Site::current());
/// This rank's part of x along the dim; its gradient is all parts' gradients together.
/// @throws Error kInvalidArgument where the ranks do not divide the dim
Tensor scatter_to_region(const Tensor& x, const DeviceMesh& mesh, int dim = -1,
                         Tensor::Site site = Tensor::Site::current());
/// All ranks' parts along the dim; its gradient is this rank's part of what comes back, which is
/// the same on all ranks.
Tensor gather_from_region(const Tensor& x, const DeviceMesh& mesh, int dim = -1,
                          Tensor::Site site = Tensor::Site::current());
/// This rank's part of the sum over the ranks; its gradient is all parts' gradients together.
Tensor reduce_scatter_to_region(const Tensor& x, const DeviceMesh& mesh, int dim = 1,
                                Tensor::Site site = Tensor::Site::current());
/// All ranks' parts along the dim, for work that the ranks share: its gradient is this rank's part
/// of the sum over the ranks.
Tensor gather_to_region(const Tensor& x, const DeviceMesh& mesh, int dim = 1,
                        Tensor::Site site = Tensor::Site::current());

/// Rows to other ranks, as experts need them: input_splits[r] rows of x go to rank r, from which
/// output_splits[r] come. Gradients go back the same way.
/// torch.distributed._functional_collectives.all_to_all_single_autograd.
Tensor all_to_all_rows(const Tensor& x, const std::vector<std::int64_t>& output_splits,
                       const std::vector<std::int64_t>& input_splits, const DeviceMesh& mesh,
                       Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor
