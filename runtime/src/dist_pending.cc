// dist's calls whose counterparts in ProcessGroup are being written; an object file of their own,
// so that programs without them link.
#include "current_world.h"
#include "dtrun/runtime/dist.h"

namespace dtrun::dist {
namespace {

collectives::CallOptions call_options(const OpOptions& options) {
  return {.async = options.async_op, .timeout = options.timeout};
}
int peer_in(const ProcessGroup& group, int global_rank) {
  return global_rank == -1 ? -1 : get_group_rank(group, global_rank);
}

}  // namespace

Work all_gather_into_tensor(const Tensor& output, const Tensor& input, OpOptions options,
                            Site site) {
  return chosen(options.group).all_gather_into_tensor(output, input, call_options(options), site);
}

Work reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op,
                           OpOptions options, Site site) {
  return chosen(options.group)
      .reduce_scatter_tensor(output, input, op, call_options(options), site);
}

Work all_to_all_single(const Tensor& output, const Tensor& input,
                       const std::vector<std::int64_t>& output_split_sizes,
                       const std::vector<std::int64_t>& input_split_sizes, OpOptions options,
                       Site site) {
  return chosen(options.group)
      .all_to_all_single(output, input, output_split_sizes, input_split_sizes,
                         call_options(options), site);
}

void monitored_barrier(MonitoredBarrier options, Site site) {
  chosen(options.group)
      .monitored_barrier({.timeout = options.timeout, .wait_all_ranks = options.wait_all_ranks},
                         site);
}

std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations, const ProcessGroup& group,
                                    Site site) {
  const ProcessGroup& meant = chosen(group);
  std::vector<collectives::P2POp> batch;
  for (const P2POp& one : operations) {
    const bool receives = one.kind == collectives::P2POp::Kind::receive;
    const int peer = receives ? peer_in(meant, one.peer) : get_group_rank(meant, one.peer);
    batch.push_back({one.kind, one.tensor, peer, one.tag});
  }
  return meant.batch_isend_irecv(batch, site);
}

}  // namespace dtrun::dist
