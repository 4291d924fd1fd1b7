// In which order the ranks of a pipeline work: pure lists, one for each rank, known to all of them.
// Stage s of a model lies on rank s % ranks.
//
//     rank 0  01..0-21-.2-     forwards of microbatches 0 and 1, a wait, backward of 0, ...
//     rank 1  .00-11-22-..
#pragma once

#include <string>
#include <vector>

namespace dtrun::dtensor {

enum class PipelineOrder : unsigned char {
  /// All forwards, then all backwards (Huang et al., 2019). Of every microbatch something is kept.
  gpipe,
  /// Forward and backward alternate as soon as they can (Narayanan et al., 2019): rank r of p keeps
  /// at most p - r microbatches. With several stages on a rank: Megatron's interleaved schedule
  /// (Narayanan et al., 2021).
  one_f_one_b,
};

struct PipelineShape {
  int ranks = 1;
  int stages_per_rank = 1;
  int microbatches = 1;

  int stages() const { return ranks * stages_per_rank; }
};

struct PipelineAction {
  enum class Kind : unsigned char { forward, backward };
  Kind kind;
  int stage;
  int microbatch;
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

/// What a rank does, in this order. @throws Error kInvalidArgument for numbers below 1, and for
/// one_f_one_b with several stages on a rank where the microbatches are no multiple of the ranks:
/// they go through in rounds of that many
std::vector<PipelineAction> pipeline_actions(PipelineOrder order, const PipelineShape& shape,
                                             int rank);

/// When each action of each rank begins, if ranks wait for nothing but what they need.
struct PipelineTimeline {
  struct Entry {
    PipelineAction action;
    int begin;
    int end;
  };
  std::vector<std::vector<Entry>> ranks;
  int end = 0;

  /// The part of all time in which ranks wait: (p - 1) / (m + p - 1) for p ranks, m microbatches.
  double bubble() const;
  /// A line for each rank: a column for each unit of time, microbatches as their last digits, "-"
  /// after those of backwards, "." where the rank waits. Stages of a rank after its first stand in
  /// letters: 'a' is microbatch 0.
  std::string to_string() const;
};

/// With a forward of one unit of time and a backward of two.
PipelineTimeline pipeline_timeline(PipelineOrder order, const PipelineShape& shape);

}  // namespace dtrun::dtensor
