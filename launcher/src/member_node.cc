#include "member_node.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "node_roster.h"

namespace dtrun::launcher {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

constexpr auto kExitBarrier = std::chrono::seconds(300);
constexpr auto kConnectSlice = std::chrono::milliseconds(500);

}  // namespace

MemberNode::MemberNode(base::EventLoop& loop, const LaunchPlan& plan, Head where,
                       NodesCallbacks callbacks)
    : loop_(loop),
      plan_(plan),
      where_(std::move(where)),
      callbacks_(std::move(callbacks)),
      timer_(loop) {}

std::string MemberNode::head_name() const {
  return where_.name();
}

void MemberNode::join() {
  start_ = Deadline::Clock::now();
  join_limit_ = Deadline::after(plan_.options.rounds.join_timeout);
  reach_limit_ = join_limit_.earlier(Deadline::after(where_.patience));
  loop_.post([this] { connect(); });
}

// By slices, so that the signals that stop this dtrun are seen in between.
void MemberNode::connect() {
  if (done_ || failed_) return;
  base::UniqueFd socket;
  try {
    const std::string& address = where_.addresses[attempts_++ % where_.addresses.size()];
    socket = base::connect_tcp(address, where_.port,
                               reach_limit_.earlier(Deadline::after(kConnectSlice)));
  } catch (const Error& error) {
    if (reach_limit_.expired()) throw unreachable(error.why());
    loop_.post([this] { connect(); });
    return;
  }
  say_hello(std::move(socket));
}

void MemberNode::say_hello(base::UniqueFd socket) {
  head_ =
      std::make_unique<NodeConnection>(loop_, NodeConnection::Side::kConnected, std::move(socket));
  head_->start([this](const NodeMessage& message) { on_message(message); },
               [this](const std::string& why) { on_lost(why); });
  head_->send(Hello{plan_.options.node_rank.value_or(kNoNodeRank), plan_.options.rounds.max_nodes,
                    plan_.local_ranks, plan_.run_id, base::host_name()});
  timer_.start(Deadline::after(plan_.options.answer_timeout), [this] {
    throw no_dtrun_there(fmt::format("it did not answer in {}",
                                     base::format_duration(plan_.options.answer_timeout)));
  });
}

Error MemberNode::unreachable(const std::string& cause) const {
  const std::string what = fmt::format("cannot reach {} for {}", head_name(),
                                       base::format_duration(Deadline::Clock::now() - start_));
  if (where_.reason.empty())
    return Error(ErrorCode::kConnection, what, cause,
                 "start node 0 first; check --master_addr, --master_port and the firewall");
  return Error(ErrorCode::kConnection, fmt::format("no dtrun hosts the rendezvous: {}", what),
               fmt::format("{}; {}", cause, where_.reason),
               "--rdzv_endpoint must name one of the job's nodes: name it as all of them know it, "
               "start dtrun there, too, and see that no firewall is between");
}

Error MemberNode::no_dtrun_there(const std::string& why) const {
  return Error(ErrorCode::kConnection,
               fmt::format("what listens at {} is no dtrun that this job could join", head_name()),
               why,
               "another program holds that port (ss -ltnp there shows it): end it, or choose "
               "another port for all nodes");
}

Error MemberNode::not_started() const {
  return Error(ErrorCode::kTimeout,
               fmt::format("node 0 at {} has not started the job for {}", head_name(),
                           base::format_duration(plan_.options.rounds.join_timeout)),
               "it waits for other nodes; its own message names them",
               "start dtrun on all nodes; a longer --join_timeout waits longer");
}

Error MemberNode::refused(const std::string& text) const {
  return Error(ErrorCode::kUsage, fmt::format("node 0 at {} refused this node", head_name()), text,
               "start all nodes with the same --nnodes and --rdzv_id, and jobs that run at the "
               "same time with different ports");
}

StartOrder MemberNode::order_of(const Welcome& welcome) const {
  StartOrder order;
  order.group_rank = welcome.node_rank;
  order.group_world_size = plan_.options.rounds.max_nodes;
  order.base_rank = welcome.base_rank;
  order.world_size = welcome.world_size;
  order.master_port = static_cast<std::uint16_t>(welcome.store_port);
  where_.host.copy(order.master_addr, sizeof order.master_addr - 1);
  return order;
}

void MemberNode::on_message(const NodeMessage& message) {
  answered_ = true;
  if (const auto* refuse = std::get_if<Refuse>(&message)) throw refused(refuse->text);
  if (std::holds_alternative<Joined>(message)) {
    timer_.start(join_limit_, [this] { throw not_started(); });
  } else if (const auto* welcome = std::get_if<Welcome>(&message)) {
    started_ = true;
    timer_.cancel();
    callbacks_.on_ready(order_of(*welcome));
  } else if (const auto* failure = std::get_if<JobFailure>(&message)) {
    timer_.cancel();
    if (!failed_) callbacks_.on_failure(*failure);
    failed_ = true;
  } else if (std::holds_alternative<Release>(message) && done_) {
    callbacks_.on_release();
  }
}

void MemberNode::on_lost(const std::string& why) {
  if (!answered_ && !failed_) throw no_dtrun_there(why);
  if (!started_ && !failed_)
    throw Error(ErrorCode::kConnection,
                fmt::format("node 0 at {} has gone before the job began", head_name()), why,
                "look at node 0's own messages");
  gone_ = true;
  if (done_) return callbacks_.on_release();
  if (failed_) return;
  failed_ = true;
  JobFailure failure;
  failure.text = fmt::format("node 0 ({}) is gone: {}", head_name(), why);
  callbacks_.on_failure(failure);
}

void MemberNode::tell_failure(const JobFailure& failure) {
  failed_ = true;
  if (head_ && !gone_) head_->send(failure);
}

void MemberNode::tell_done() {
  done_ = true;
  if (gone_ || !head_) return callbacks_.on_release();
  timer_.start(Deadline::after(kExitBarrier), [this] { callbacks_.on_release(); });
  head_->send(Done{});
}

}  // namespace dtrun::launcher
