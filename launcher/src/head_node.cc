#include "head_node.h"

#include <fmt/core.h>

#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::log::Component;

namespace {

// torchrun's exit barrier waits as long.
constexpr auto kExitBarrier = std::chrono::seconds(300);
constexpr auto kStopPatience = std::chrono::seconds(10);

}  // namespace

HeadNode::HeadNode(base::EventLoop& loop, const LaunchPlan& plan, base::UniqueFd listener,
                   NodesCallbacks callbacks)
    : loop_(loop),
      plan_(plan),
      callbacks_(std::move(callbacks)),
      timer_(loop),
      server_(loop, std::move(listener), store_options()) {}

rendezvous::TcpStoreServerOptions HeadNode::store_options() {
  rendezvous::TcpStoreServerOptions options;
  if (plan_.options.node_count > 1)
    options.on_agent = [this](base::UniqueFd socket, std::string bytes) {
      accept(std::move(socket), std::move(bytes));
    };
  return options;
}

void HeadNode::join() {
  if (plan_.options.node_count == 1) return start_job();
  timer_.start(Deadline::after(plan_.options.join_timeout), [this] { give_up_joining(); });
}

void HeadNode::accept(base::UniqueFd socket, std::string bytes) {
  const int id = next_id_++;
  Member& member = members_[id];
  member.connection = std::make_unique<NodeConnection>(loop_, NodeConnection::Side::kAccepted,
                                                       std::move(socket), std::move(bytes));
  member.connection->start([this, id](const NodeMessage& message) { on_message(id, message); },
                           [this, id](const std::string& why) { on_lost(id, why); });
}

void HeadNode::on_message(int id, const NodeMessage& message) {
  Member& member = members_.at(id);
  if (const auto* hello = std::get_if<Hello>(&message)) {
    on_hello(id, *hello);
  } else if (!member.hello) {
    on_lost(id, "it did not say who it is");
  } else if (const auto* failure = std::get_if<JobFailure>(&message)) {
    pass_on(*failure, id);
  } else if (std::holds_alternative<Done>(message)) {
    member.done = true;
    release_if_all_are_done();
  }
}

void HeadNode::on_hello(int id, const Hello& hello) {
  const std::string objection = objection_to(hello);
  if (!objection.empty()) {
    base::log::warning(Component::kLauncher, "node {} ({}) was sent away: {}", hello.node_rank,
                       hello.host, objection);
    members_.at(id).connection->send(Refuse{objection});
    // The connection stays until the other side closes it: a close here could overtake the words.
    return;
  }
  members_.at(id).hello = hello;
  base::log::info(Component::kLauncher, "node {} ({}) has joined with {} ranks", hello.node_rank,
                  hello.host, hello.local_ranks);
  if (joined() == plan_.options.node_count) start_job();
}

std::string HeadNode::objection_to(const Hello& hello) const {
  if (started_ || failed_ || done_)
    return "the job has begun already, or is ending: start it anew on all nodes";
  if (hello.run_id != plan_.run_id)
    return fmt::format("it belongs to job '{}', and this is job '{}' (--rdzv_id)", hello.run_id,
                       plan_.run_id);
  if (hello.node_count != plan_.options.node_count)
    return fmt::format("it was started with --nnodes={}, node 0 with --nnodes={}", hello.node_count,
                       plan_.options.node_count);
  if (hello.node_rank < 1 || hello.node_rank >= plan_.options.node_count || hello.local_ranks < 1)
    return fmt::format("there is no node {} in a job of {}", hello.node_rank,
                       plan_.options.node_count);
  for (const auto& [id, member] : members_)
    if (member.hello && member.hello->node_rank == hello.node_rank)
      return fmt::format("--node_rank={} is taken already, by {}", hello.node_rank,
                         member.hello->host);
  return "";
}

int HeadNode::joined() const {
  int count = 1;
  for (const auto& [id, member] : members_) count += member.hello ? 1 : 0;
  return count;
}

void HeadNode::start_job() {
  started_ = true;
  timer_.cancel();
  std::map<int, Member*> by_rank;
  int world_size = plan_.local_ranks;
  for (auto& [id, member] : members_)
    if (member.hello) {
      by_rank[member.hello->node_rank] = &member;
      world_size += member.hello->local_ranks;
    }
  int base_rank = plan_.local_ranks;
  for (const auto& [node_rank, member] : by_rank) {
    member->connection->send(Welcome{base_rank, world_size, server_.port()});
    base_rank += member->hello->local_ranks;
  }
  callbacks_.on_ready(StartOrder{0, world_size, server_.port()});
}

void HeadNode::give_up_joining() {
  std::vector<bool> here(static_cast<std::size_t>(plan_.options.node_count));
  here[0] = true;
  for (const auto& [id, member] : members_)
    if (member.hello) here[static_cast<std::size_t>(member.hello->node_rank)] = true;
  std::string missing;
  for (std::size_t i = 0; i < here.size(); ++i)
    if (!here[i]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i);
  throw Error(ErrorCode::kTimeout,
              fmt::format("{} of {} nodes have joined in {}; missing: node {}", joined(),
                          plan_.options.node_count,
                          base::format_duration(plan_.options.join_timeout), missing),
              "their dtrun was not started, or cannot reach this port",
              fmt::format("start dtrun there with --master_addr={} --master_port={}; a longer "
                          "--join_timeout waits longer",
                          plan_.options.master_addr, server_.port()));
}

void HeadNode::on_lost(int id, const std::string& why) {
  const Member member = std::move(members_.at(id));
  members_.erase(id);
  if (!member.hello) return;
  if (!started_) {
    base::log::warning(Component::kLauncher, "node {} ({}) has left before the start: {}",
                       member.hello->node_rank, member.hello->host, why);
    return;
  }
  if (!member.done && !failed_) {
    JobFailure failure;
    failure.node_rank = member.hello->node_rank;
    failure.host = member.hello->host;
    failure.text = fmt::format("node {} ({}) is gone: {}", failure.node_rank, failure.host, why);
    pass_on(failure, -1);
  }
  release_if_all_are_done();
}

void HeadNode::pass_on(const JobFailure& failure, int except) {
  if (failed_) return;
  failed_ = true;
  for (auto& [id, member] : members_)
    if (id != except && member.hello) member.connection->send(failure);
  callbacks_.on_failure(failure);
}

void HeadNode::tell_failure(const JobFailure& failure) {
  if (failed_) return;
  failed_ = true;
  for (auto& [id, member] : members_)
    if (member.hello) member.connection->send(failure);
}

void HeadNode::tell_done() {
  done_ = true;
  // A node that was told to stop has its grace for it.
  const Deadline::Duration patience =
      failed_ ? plan_.options.shutdown_grace + kStopPatience : Deadline::Duration(kExitBarrier);
  timer_.start(Deadline::after(patience), [this] { release(); });
  release_if_all_are_done();
}

void HeadNode::release_if_all_are_done() {
  if (!done_) return;
  for (const auto& [id, member] : members_)
    if (started_ && member.hello && !member.done) return;
  release();
}

void HeadNode::release() {
  timer_.cancel();
  for (auto& [id, member] : members_)
    if (member.hello) member.connection->send(Release{});
  callbacks_.on_release();
}

}  // namespace dtrun::launcher
