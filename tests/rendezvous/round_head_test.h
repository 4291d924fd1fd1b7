// A head of rounds on a clock that only the test moves, and the words that it says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/rendezvous/round_head.h"

namespace dtrun::rendezvous::rounds {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RoundHeadTest : public testing::Test {
 protected:
  void begin(int min_nodes, int max_nodes, int max_restarts = 0) {
    RoundSettings settings;
    settings.min_nodes = min_nodes;
    settings.max_nodes = max_nodes;
    settings.max_restarts = max_restarts;
    head_ = make_head(settings, "job", now_);
  }

  Hello hello(const std::string& host, int node_rank = kNoNodeRank) const {
    Hello result;
    result.run_id = "job";
    result.host = host;
    result.node_rank = node_rank;
    result.local_ranks = 2;
    result.min_nodes = head_.settings.min_nodes;
    result.max_nodes = head_.settings.max_nodes;
    return result;
  }

  void event(const HeadEvent& what) {
    for (HeadAction& action : step(head_, what, now_)) {
      if (auto* send = std::get_if<Send>(&action)) heard_[send->id].push_back(send->message);
      if (auto* hang_up = std::get_if<HangUp>(&action)) hung_up_.push_back(hang_up->id);
      if (std::holds_alternative<End>(action)) ended_ = true;
    }
  }
  void join(MemberId id, const std::string& host, int node_rank = kNoNodeRank) {
    event(Said{id, hello(host, node_rank)});
  }
  void say(MemberId id, AgentMessage message) { event(Said{id, std::move(message)}); }
  void lose(MemberId id, LossKind kind = LossKind::kGone) { event(Lost{id, kind, "its end"}); }
  // Time passes as in life: ticks come when they are due, and members beat.
  void pass(Moment time) {
    const Moment end = now_ + time;
    while (now_ < end) {
      now_ = std::min(end, std::max(now_ + milliseconds(1), head_deadline(head_)));
      for (const MemberId id : beating()) say(id, Beat{});
      event(Tick{});
    }
  }
  std::vector<MemberId> beating() const {
    std::vector<MemberId> result;
    for (const auto& [id, member] : head_.members)
      if (!silent_.contains(id)) result.push_back(id);
    return result;
  }

  // Answers whoever is asked for a store.
  void open_store() {
    for (const auto& [id, member] : head_.members)
      if (member.group_rank == 0) return say(id, StoreReady{head_.round, "10.0.0.1", 4711});
    FAIL() << "nobody is to open a store";
  }
  void start() {
    open_store();
    ASSERT_EQ(head_.phase, HeadPhase::kRunning);
  }
  void stop_all() {
    for (const MemberId id : beating())
      if (head_.members.contains(id) && head_.members.at(id).participant())
        say(id, Stopped{head_.round});
  }

  template <typename Message>
  const Message* last(MemberId id) {
    const std::vector<HeadMessage>& all = heard_[id];
    for (auto message = all.rbegin(); message != all.rend(); ++message)
      if (const auto* found = std::get_if<Message>(&*message)) return found;
    return nullptr;
  }
  std::map<std::string, int> places() const {
    std::map<std::string, int> result;
    for (const auto& [id, member] : head_.members) result[member.hello.host] = member.group_rank;
    return result;
  }

  Moment now_ = seconds(1000);
  HeadState head_;
  std::map<MemberId, std::vector<HeadMessage>> heard_;
  std::vector<MemberId> hung_up_;
  std::map<MemberId, bool> silent_;
  bool ended_ = false;
};

inline JobFailure failure(int rank) {
  JobFailure result;
  result.rank = rank;
  result.node_rank = 0;
  result.host = "h";
  result.signal = 9;
  return result;
}

}  // namespace dtrun::rendezvous::rounds
