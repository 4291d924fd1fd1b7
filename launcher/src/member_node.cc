#include "member_node.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

constexpr auto kExitBarrier = std::chrono::seconds(300);

}  // namespace

MemberNode::MemberNode(base::EventLoop& loop, const LaunchPlan& plan, NodesCallbacks callbacks)
    : loop_(loop), plan_(plan), callbacks_(std::move(callbacks)), timer_(loop) {}

std::string MemberNode::head_name() const {
  return base::HostPort{plan_.options.master_addr, plan_.options.master_port}.to_string();
}

void MemberNode::join() {
  const Deadline deadline = Deadline::after(plan_.options.join_timeout);
  head_ = std::make_unique<NodeConnection>(
      loop_, NodeConnection::Side::kConnected,
      base::connect_tcp(plan_.options.master_addr, *plan_.options.master_port, deadline));
  head_->start([this](const NodeMessage& message) { on_message(message); },
               [this](const std::string& why) { on_lost(why); });
  head_->send(Hello{plan_.options.node_rank, plan_.options.node_count, plan_.local_ranks,
                    plan_.run_id, base::host_name()});
  timer_.start(deadline, [this] {
    throw Error(ErrorCode::kTimeout,
                fmt::format("node 0 at {} has not started the job for {}", head_name(),
                            base::format_duration(plan_.options.join_timeout)),
                "it waits for other nodes; its own message names them",
                "start dtrun on all nodes; a longer --join_timeout waits longer");
  });
}

void MemberNode::on_message(const NodeMessage& message) {
  if (const auto* refuse = std::get_if<Refuse>(&message)) {
    throw Error(ErrorCode::kUsage, fmt::format("node 0 at {} refused this node", head_name()),
                refuse->text, "start all nodes with the same --nnodes and --rdzv_id");
  } else if (const auto* welcome = std::get_if<Welcome>(&message)) {
    started_ = true;
    timer_.cancel();
    callbacks_.on_ready(StartOrder{welcome->base_rank, welcome->world_size,
                                   static_cast<std::uint16_t>(welcome->store_port)});
  } else if (const auto* failure = std::get_if<JobFailure>(&message)) {
    if (!failed_) callbacks_.on_failure(*failure);
    failed_ = true;
  } else if (std::holds_alternative<Release>(message) && done_) {
    callbacks_.on_release();
  }
}

void MemberNode::on_lost(const std::string& why) {
  if (!started_)
    throw Error(ErrorCode::kConnection,
                fmt::format("node 0 at {} has gone before the job began", head_name()), why,
                "look at node 0's own messages; is it a dtrun that listens there?");
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
  if (gone_) return callbacks_.on_release();
  timer_.start(Deadline::after(kExitBarrier), [this] { callbacks_.on_release(); });
  head_->send(Done{});
}

}  // namespace dtrun::launcher
