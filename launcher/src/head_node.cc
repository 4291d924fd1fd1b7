#include "head_node.h"

#include <fmt/core.h>

#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "exit_code.h"
#include "host_election.h"

namespace dtrun::launcher {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::log::Component;

namespace {

// torchrun's exit barrier waits as long.
constexpr auto kExitBarrier = std::chrono::seconds(300);
constexpr auto kStopPatience = std::chrono::seconds(10);
// For the others to read why before this node's end closes their connections, and for those to
// come who are about to.
constexpr auto kFarewellPatience = std::chrono::seconds(5);

}  // namespace

HeadNode::HeadNode(base::EventLoop& loop, const LaunchPlan& plan, base::UniqueFd listener,
                   NodesCallbacks callbacks)
    : loop_(loop),
      plan_(plan),
      callbacks_(std::move(callbacks)),
      timer_(loop),
      listening_at_(base::local_address(listener.get())),
      roster_(Hello{plan.options.node_rank.value_or(kNoNodeRank), plan.options.rounds.max_nodes,
                    plan.local_ranks, plan.run_id, base::host_name()}),
      server_(loop, std::move(listener), store_options()) {}

rendezvous::TcpStoreServerOptions HeadNode::store_options() {
  rendezvous::TcpStoreServerOptions options;
  if (plan_.options.rounds.max_nodes > 1)
    options.on_agent = [this](base::UniqueFd socket, std::string bytes) {
      accept(std::move(socket), std::move(bytes));
    };
  return options;
}

void HeadNode::join() {
  if (plan_.options.rounds.max_nodes == 1) return start_job();
  timer_.start(Deadline::after(plan_.options.rounds.join_timeout),
               [this] { fail_joining(joined_too_few()); });
}

void HeadNode::accept(base::UniqueFd socket, std::string bytes) {
  const int id = next_id_++;
  Member& member = members_[id];
  member.reached_at = base::local_address(socket.get());
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
    if (farewell_) return member.connection->send(Release{});
    release_if_all_are_done();
  }
}

void HeadNode::on_hello(int id, const Hello& hello) {
  const Objection objection = roster_.objection_to(hello);
  if (objection.kind != Objection::Kind::kNone) return send_away(id, hello, objection);
  members_.at(id).hello = hello;
  roster_.add(id, hello);
  members_.at(id).connection->send(Joined{});
  base::log::info(Component::kLauncher, "{} has joined with {} ranks", hello.describe(),
                  hello.local_ranks);
  if (roster_.complete()) start_job();
}

void HeadNode::send_away(int id, const Hello& hello, const Objection& objection) {
  base::log::warning(Component::kLauncher, "{} was sent away: {}", hello.describe(),
                     objection.text);
  // The connection stays until the other side closes it: a close here could overtake the words.
  members_.at(id).connection->send(Refuse{objection.text});
  if (hello.run_id == plan_.run_id) ++told_;
  // One line started all of them, so the job cannot come about. The static rendezvous, where every
  // node has a line of its own, waits for the right one.
  if (objection.kind == Objection::Kind::kContradiction &&
      plan_.options.rendezvous == Rendezvous::kC10d)
    fail_joining(Error(ErrorCode::kUsage,
                       fmt::format("the nodes of job '{}' contradict each other: {} was sent away",
                                   plan_.run_id, hello.describe()),
                       objection.text, "start all nodes with the same line"));
}

void HeadNode::start_job() {
  started_ = true;
  roster_.start();
  timer_.cancel();
  places_ = roster_.places();
  for (const auto& [id, place] : places_) {
    if (id == NodeRoster::kHead) continue;
    members_.at(id).hello->node_rank = place.node_rank;
    base::log::info(Component::kLauncher, "{} has ranks {} to {}",
                    members_.at(id).hello->describe(), place.base_rank,
                    place.base_rank + members_.at(id).hello->local_ranks - 1);
    members_.at(id).connection->send(
        Welcome{place.base_rank, roster_.world_size(), server_.port(), place.node_rank});
  }
  callbacks_.on_ready(order_for(places_.at(NodeRoster::kHead)));
}

StartOrder HeadNode::order_for(const NodePlace& place) const {
  std::vector<std::string> reached_at;
  for (const auto& [id, member] : members_)
    if (member.hello) reached_at.push_back(member.reached_at);
  StartOrder order;
  order.group_rank = place.node_rank;
  order.group_world_size = roster_.count();
  order.base_rank = place.base_rank;
  order.world_size = roster_.world_size();
  order.master_port = server_.port();
  const std::string address =
      plan_.options.rendezvous == Rendezvous::kC10d
          ? master_address(plan_.options.master_addr, listening_at_, reached_at)
      : plan_.options.rendezvous == Rendezvous::kFile ? listening_at_
                                                      : plan_.options.master_addr;
  address.copy(order.master_addr, sizeof order.master_addr - 1);
  return order;
}

Error HeadNode::joined_too_few() const {
  const Options& options = plan_.options;
  const std::string what = roster_.who_is_here(base::format_duration(options.rounds.join_timeout));
  if (options.rendezvous == Rendezvous::kStatic)
    return Error(ErrorCode::kTimeout, what,
                 "their dtrun was not started, or cannot reach this port",
                 fmt::format("start dtrun there with --master_addr={} --master_port={}; a longer "
                             "--join_timeout waits longer",
                             options.master_addr, server_.port()));
  const std::string endpoint = base::HostPort{options.master_addr, server_.port()}.to_string();
  const bool everywhere = options.master_addr == "localhost" || is_loopback(options.master_addr);
  return Error(
      ErrorCode::kTimeout, what,
      everywhere ? fmt::format("{} is every machine itself: agents on other machines do not come "
                               "here by it",
                               options.master_addr)
                 : fmt::format("their dtrun was not started, or cannot reach {}", endpoint),
      everywhere ? "name one of the nodes in --rdzv_endpoint, by a name that all of them know"
                 : fmt::format("start dtrun there with --rdzv_endpoint={}; a longer "
                               "--join_timeout waits longer",
                               endpoint));
}

void HeadNode::set_failed(const std::string& why) {
  failed_ = true;
  if (!started_) roster_.end(why);
}

void HeadNode::fail_joining(const Error& error) {
  if (failed_) return;
  set_failed(error.why());
  farewell_ = error;
  JobFailure failure;
  failure.host = base::host_name();
  failure.code = error.code() == ErrorCode::kTimeout ? kExitUnreachable : kExitUsage;
  failure.text = error.what();
  for (auto& [id, member] : members_) {
    if (!member.hello) continue;
    member.connection->send(failure);
    ++told_;
  }
  if (all_are_told()) throw Error(error);
  timer_.start(Deadline::after(kFarewellPatience), [this] { throw Error(*farewell_); });
}

// And have gone. Those who have not come at all are waited for only where they may be on their way.
bool HeadNode::all_are_told() const {
  const bool more_may_come = farewell_->code() != ErrorCode::kTimeout;
  return members_.empty() && (!more_may_come || told_ + 1 >= plan_.options.rounds.max_nodes);
}

void HeadNode::on_lost(int id, const std::string& why) {
  const Member member = std::move(members_.at(id));
  members_.erase(id);
  if (farewell_ && all_are_told()) throw Error(*farewell_);
  if (!member.hello) return;
  if (!started_) {
    roster_.remove(id);
    base::log::warning(Component::kLauncher, "{} has left before the start: {}",
                       member.hello->describe(), why);
    return;
  }
  if (!member.done && !failed_) {
    JobFailure failure;
    failure.node_rank = member.hello->node_rank;
    failure.host = member.hello->host;
    failure.text = fmt::format("{} is gone: {}", member.hello->describe(), why);
    pass_on(failure, -1);
  }
  release_if_all_are_done();
}

void HeadNode::pass_on(const JobFailure& failure, int except) {
  if (failed_) return;
  set_failed(failure.describe());
  for (auto& [id, member] : members_)
    if (id != except && member.hello) member.connection->send(failure);
  callbacks_.on_failure(failure);
}

void HeadNode::tell_failure(const JobFailure& failure) {
  if (failed_) return;
  set_failed(failure.describe());
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
