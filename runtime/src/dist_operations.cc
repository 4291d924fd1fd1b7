// dist's collectives and messages: each finds the group that it means, and says the ranks in it.
#include <fmt/core.h>

#include <utility>

#include "current_world.h"
#include "dtrun/base/error.h"
#include "dtrun/runtime/dist.h"

namespace dtrun::dist {
namespace {

using collectives::OpKind;

collectives::CallOptions call_options(const OpOptions& options) {
  return {.async = options.async_op, .timeout = options.timeout};
}
collectives::CallOptions call_options(const MessageOptions& options) {
  return {.timeout = options.timeout};
}

/// A root outside the group fails the collective on all members: they would wait for this rank.
int root_in(const ProcessGroup& group, OpKind kind, int global_rank, const Site& site) {
  const int rank = find_in(group, global_rank);
  if (rank < 0) group.refuse(kind, not_in_group(group, global_rank), site);
  return rank;
}

/// A message has no other members that wait. -1 stays what it is: any rank.
int peer_in(const ProcessGroup& group, int global_rank) {
  return global_rank == -1 ? -1 : get_group_rank(group, global_rank);
}

}  // namespace

Work broadcast(const LocalTensor& tensor, int src, OpOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  const int source = root_in(group, OpKind::broadcast, src, site);
  return group.broadcast(tensor, source, call_options(options), site);
}

Work all_reduce(const LocalTensor& tensor, ReduceOp op, OpOptions options, Site site) {
  return chosen(options.group).all_reduce(tensor, op, call_options(options), site);
}

Work reduce(const LocalTensor& tensor, int dst, ReduceOp op, OpOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  const int destination = root_in(group, OpKind::reduce, dst, site);
  return group.reduce(tensor, destination, op, call_options(options), site);
}

Work all_gather(const std::vector<LocalTensor>& tensor_list, const LocalTensor& tensor,
                OpOptions options, Site site) {
  return chosen(options.group).all_gather(tensor_list, tensor, call_options(options), site);
}

Work gather(const LocalTensor& tensor, const std::vector<LocalTensor>& gather_list, int dst,
            OpOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  const int destination = root_in(group, OpKind::gather, dst, site);
  return group.gather(tensor, gather_list, destination, call_options(options), site);
}

Work scatter(const LocalTensor& tensor, const std::vector<LocalTensor>& scatter_list, int src,
             OpOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  const int source = root_in(group, OpKind::scatter, src, site);
  return group.scatter(tensor, scatter_list, source, call_options(options), site);
}

Work reduce_scatter(const LocalTensor& output, const std::vector<LocalTensor>& input_list,
                    ReduceOp op, OpOptions options, Site site) {
  return chosen(options.group).reduce_scatter(output, input_list, op, call_options(options), site);
}

Work all_to_all(const std::vector<LocalTensor>& output_list,
                const std::vector<LocalTensor>& input_list, OpOptions options, Site site) {
  return chosen(options.group).all_to_all(output_list, input_list, call_options(options), site);
}

Work barrier(OpOptions options, Site site) {
  return chosen(options.group).barrier(call_options(options), site);
}

void send(const LocalTensor& tensor, int dst, MessageOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  group.send(tensor, get_group_rank(group, dst), options.tag, call_options(options), site);
}

int recv(const LocalTensor& tensor, int src, MessageOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  const int source =
      group.recv(tensor, peer_in(group, src), options.tag, call_options(options), site);
  return get_global_rank(group, source);
}

Work isend(const LocalTensor& tensor, int dst, MessageOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  return group.isend(tensor, get_group_rank(group, dst), options.tag, call_options(options), site);
}

Work irecv(const LocalTensor& tensor, int src, MessageOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  return group.irecv(tensor, peer_in(group, src), options.tag, call_options(options), site);
}

Work all_gather_into_tensor(const LocalTensor& output, const LocalTensor& input, OpOptions options,
                            Site site) {
  return chosen(options.group).all_gather_into_tensor(output, input, call_options(options), site);
}

Work reduce_scatter_tensor(const LocalTensor& output, const LocalTensor& input, ReduceOp op,
                           OpOptions options, Site site) {
  return chosen(options.group)
      .reduce_scatter_tensor(output, input, op, call_options(options), site);
}

Work all_to_all_single(const LocalTensor& output, const LocalTensor& input,
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
