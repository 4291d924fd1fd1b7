#include "meeting/endpoint.h"

#include <fmt/core.h>

#include <cstdio>

#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/round_clock.h"
#include "meeting/host_election.h"
#include "output/notice.h"

namespace dtrun::launcher {

using base::log::Component;
using rendezvous::rounds::Contradiction;
using rendezvous::rounds::Note;

namespace {

// As --rdzv_endpoint says it.
std::string where_to_meet(const Options& options) {
  return options.rendezvous == Rendezvous::kFile
             ? options.head_file
             : base::HostPort{options.master_addr, options.master_port}.to_string();
}

// Why too few have come, and what to do about it.
std::string how_to_join(const Options& options, const Head& head) {
  const bool by_host = options.rendezvous == Rendezvous::kC10d;
  if (options.rendezvous == Rendezvous::kStatic)
    return fmt::format(
        "  why: their dtrun was not started, or cannot reach this port\n"
        "  try: start dtrun there with --master_addr={} --master_port={}; a longer --join_timeout "
        "waits longer",
        options.master_addr, head.port);
  if (by_host && (head.host == "localhost" || is_loopback(head.host)))
    return fmt::format(
        "  why: {} is every machine itself: agents on other machines do not come here by it\n"
        "  try: name one of the nodes in --rdzv_endpoint, by a name that all of them know",
        head.host);
  return fmt::format(
      "  why: their dtrun was not started, or cannot reach {}\n"
      "  try: start dtrun there with --rdzv_endpoint={}; a longer --join_timeout waits longer",
      head.name(), where_to_meet(options));
}

void tell(const LaunchPlan& plan, const Note& note) {
  switch (note.weight) {
    case Note::Weight::kDetail:
      return base::log::info(Component::kLauncher, "{}", note.text);
    case Note::Weight::kWarning:
      return base::log::warning(Component::kLauncher, "{}", note.text);
    case Note::Weight::kPlain:
      print_note(plan, note.text);
  }
}

rendezvous::rounds::HeadState make_state(const LaunchPlan& plan, const Head& head) {
  auto state = rendezvous::rounds::make_head(plan.options.rounds, plan.run_id,
                                             rendezvous::rounds::read_clock());
  // With the static rendezvous each node has a command line of its own. An agent with a wrong one
  // is sent away, and the head waits for the right one.
  state.contradiction = plan.options.rendezvous == Rendezvous::kStatic ? Contradiction::kIsSentAway
                                                                       : Contradiction::kEndsTheJob;
  state.how_to_join = how_to_join(plan.options, head);
  if (head.last_round)
    rendezvous::rounds::take_over(state, *head.last_round, rendezvous::rounds::read_clock());
  return state;
}

}  // namespace

void demand_token(const LaunchPlan& plan, rendezvous::TcpStoreServerOptions& store) {
  if (plan.store_token.empty()) return;
  store.token.emplace(plan.store_token, "the ranks' store");
  store.token_advice =
      "; ranks that use PyTorch cannot: --rdzv_conf store_token=false on all nodes lets them in";
}

Endpoint::Endpoint(
    base::EventLoop& loop, const LaunchPlan& plan, Head head, base::EventLoop::Callback on_end,
    std::function<void(int round, base::EventLoop::Callback go)> before_round,
    std::function<void(const rendezvous::rounds::Close&, base::EventLoop::Callback go)>
        before_close,
    std::function<void(const rendezvous::rounds::WorkerEnd&)> on_worker_end,
    base::EventLoop::Callback on_store_client)
    : listening_at_(base::local_address(head.listener.get())) {
  rendezvous::HeadServiceOptions options;
  options.proof = plan.proof;
  options.endpoint_host = head.host;
  options.listening_at = listening_at_;
  head_ = std::make_unique<rendezvous::HeadService>(
      loop, make_state(plan, head), std::move(options),
      rendezvous::HeadServiceCallbacks{[&plan](const Note& note) { tell(plan, note); },
                                       [this, on_end = std::move(on_end)] {
                                         ended_ = true;
                                         on_end();
                                       },
                                       std::move(before_round), std::move(before_close),
                                       std::move(on_worker_end)});
  rendezvous::TcpStoreServerOptions store;
  store.on_client = std::move(on_store_client);
  demand_token(plan, store);
  if (plan.options.rounds.max_nodes > 1) {
    store.on_agent = [this](base::UniqueFd socket, const std::string& bytes) {
      head_->adopt(std::move(socket), bytes);
    };
    store.part_with_agent_since = [this](base::Deadline::Clock::time_point moment) {
      return head_->part_with_one_since(moment);
    };
  }
  server_ = std::make_unique<rendezvous::TcpStoreServer>(loop, std::move(head.listener), store);
}

void Endpoint::step_down() {
  if (ended_) return;
  stepped_down_ = true;
  head_->step_down();
}

std::string Endpoint::waiting_text() const {
  return rendezvous::rounds::waiting_text(head_->state(), rendezvous::rounds::read_clock());
}

void Endpoint::open_store() {
  if (store_used_) server_->start_over();
  store_used_ = true;
}

}  // namespace dtrun::launcher
