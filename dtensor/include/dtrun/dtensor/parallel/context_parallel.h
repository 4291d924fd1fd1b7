// context_parallel: every rank of an axis has some positions of each sequence. Keys and values go
// round the ring of ranks while each computes with those that it has (Liu et al., "Ring Attention",
// 2023). torch.distributed.tensor.experimental.context_parallel.
//
//     context_parallel(*model, mesh["cp"]);
//     const Tensor part = context_shard(tokens, mesh["cp"], 1);   // dim 1: positions
//     const Tensor places = context_positions(mesh["cp"], tokens.size(1));
//     loss_of((*model)(part, places), context_shard(targets, mesh["cp"], 1)).backward();
//
// Everything but attention computes with this rank's positions alone. Parameters' gradients are
// averaged by data_parallel() or fully_shard() over an axis that has these ranks, too, such as
// mesh[{"dp", "cp"}].flatten().
#pragma once

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/ops/attention.h"

namespace dtrun::dtensor {

/// Which positions of a sequence each of p ranks has, in rising order.
enum class SequenceOrder : unsigned char {
  /// Of 2p equal chunks the r-th and the r-th last: causal attention is the same work on all ranks.
  balanced,
  contiguous,  ///< of p equal chunks the r-th
};

struct ContextParallelOptions {
  SequenceOrder order = SequenceOrder::balanced;
};

/// In the forward of the module and of all modules within, scaled_dot_product_attention() of plain
/// tensors is ring_attention() along the axis. Collective.
/// @throws Error kInvalidArgument for a mesh of several axes; kDisagreement where the ranks'
/// modules or orders differ
void context_parallel(nn::Module& module, const DeviceMesh& mesh,
                      ContextParallelOptions options = {},
                      Tensor::Site site = Tensor::Site::current());

/// As scaled_dot_product_attention() of the whole sequences; query, key and value are this rank's
/// positions, in dim -2. Memory grows with this rank's positions. Collective over the axis, and so
/// is its backward, which has no gradient of its own.
/// @throws Error kInvalidArgument for distributed tensors, a mask, dropout, a CUDA device
Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const DeviceMesh& mesh, const AttentionOptions& attention = {},
                      ContextParallelOptions options = {},
                      Tensor::Site site = Tensor::Site::current());

/// This rank's positions of a tensor that all ranks of the axis have. No communication.
/// @param dim of the positions @throws Error kInvalidArgument where they are no multiple of the
/// chunks
Tensor context_shard(const Tensor& whole, const DeviceMesh& mesh, int dim,
                     ContextParallelOptions options = {});
/// The whole of it again, on every rank. Collective.
Tensor context_unshard(const Tensor& part, const DeviceMesh& mesh, int dim,
                       ContextParallelOptions options = {},
                       Tensor::Site site = Tensor::Site::current());
/// Where this rank's positions lie in a sequence of that length: i64.
Tensor context_positions(const DeviceMesh& mesh, std::int64_t length,
                         ContextParallelOptions options = {});

}  // namespace dtrun::dtensor
