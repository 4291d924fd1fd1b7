// NodeRoster: the nodes that have come to a job, as node 0 sees them: who may still come, who is
// missing, and which place each gets. Pure.
#pragma once

#include <map>
#include <string>

#include "node_protocol.h"

namespace dtrun::launcher {

inline constexpr int kNoNodeRank = -1;  ///< in a Hello: node 0 gives it out

struct NodePlace {
  int node_rank = 0;
  int base_rank = 0;
};

struct Objection {
  enum class Kind {
    kNone,
    kStranger,       ///< it has come to the wrong job, or too late: the job does not mind
    kContradiction,  ///< it is of this job, and was started otherwise than node 0
  };
  Kind kind = Kind::kNone;
  std::string text;
};

class NodeRoster {
 public:
  enum class Phase { kJoining, kStarted, kEnding };

  static constexpr int kHead = -1;  ///< node 0's own id

  explicit NodeRoster(Hello head) : nodes_{{kHead, std::move(head)}} {}

  Objection objection_to(const Hello& hello) const;
  /// @param id rises from node to node, from 0
  void add(int id, Hello hello) { nodes_[id] = std::move(hello); }
  /// A node that has left before the start.
  void remove(int id) { nodes_.erase(id); }

  int count() const { return static_cast<int>(nodes_.size()); }
  bool complete() const { return count() == head().node_count; }
  Phase phase() const { return phase_; }
  void start() { phase_ = Phase::kStarted; }
  /// @param why for those who come now
  void end(std::string why) {
    phase_ = Phase::kEnding;
    why_ending_ = std::move(why);
  }

  /// By --node_rank where all have given it; else node 0, then the others in the natural order of
  /// their host names (node2 before node10), those of one host as they came.
  std::map<int, NodePlace> places() const;
  int world_size() const;
  /// "2 of 3 nodes have joined in 5 s", and who: the missing by number where they have one.
  std::string who_is_here(const std::string& elapsed) const;

 private:
  const Hello& head() const { return nodes_.begin()->second; }
  Objection check_node_rank(const Hello& hello) const;
  std::string hosts() const;

  std::map<int, Hello> nodes_;  // the head first, then as they came
  Phase phase_ = Phase::kJoining;
  std::string why_ending_;
};

/// "node2" before "node10": runs of digits compare as numbers.
bool naturally_before(const std::string& left, const std::string& right);

}  // namespace dtrun::launcher
