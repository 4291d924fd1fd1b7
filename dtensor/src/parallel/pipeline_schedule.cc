#include "dtrun/dtensor/parallel/pipeline_schedule.h"

#include <algorithm>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using ActionKind = PipelineAction::Kind;

void check_shape(PipelineOrder order, const PipelineShape& shape) {
  const auto refuse = [](const std::string& what, const std::string& why, const char* remedy) {
    throw Error(ErrorCode::kInvalidArgument, what, why, remedy);
  };
  if (shape.ranks < 1 || shape.stages_per_rank < 1 || shape.microbatches < 1) {
    refuse("a pipeline of " + std::to_string(shape.ranks) + " ranks with " +
               std::to_string(shape.stages_per_rank) + " stages each and " +
               std::to_string(shape.microbatches) + " microbatches",
           "", "numbers from 1");
  }
  if (order == PipelineOrder::one_f_one_b && shape.stages_per_rank > 1 &&
      shape.microbatches % shape.ranks != 0) {
    refuse("an interleaved pipeline of " + std::to_string(shape.ranks) + " ranks with " +
               std::to_string(shape.microbatches) + " microbatches",
           "they go through in rounds of as many as there are ranks",
           "a multiple of the ranks, or PipelineOrder::gpipe");
  }
}

/// All of one kind on a rank: rounds of `round` microbatches, each through all of the rank's
/// stages.
std::vector<PipelineAction> of_kind(ActionKind kind, const PipelineShape& shape, int rank,
                                    int round) {
  std::vector<PipelineAction> actions;
  for (int first = 0; first < shape.microbatches; first += round) {
    const int last = std::min(first + round, shape.microbatches);
    for (int i = 0; i < shape.stages_per_rank; ++i) {
      const int own = kind == ActionKind::forward ? i : shape.stages_per_rank - 1 - i;
      for (int microbatch = first; microbatch < last; ++microbatch)
        actions.push_back({kind, own * shape.ranks + rank, microbatch});
    }
  }
  return actions;
}

/// Forwards that a rank does before its first backward.
int warm_up(const PipelineShape& shape, int rank) {
  const int behind = shape.ranks - rank - 1;
  if (shape.stages_per_rank == 1) return behind;
  return 2 * behind + (shape.stages_per_rank - 1) * shape.ranks;
}

}  // namespace

std::vector<PipelineAction> pipeline_actions(PipelineOrder order, const PipelineShape& shape,
                                             int rank) {
  check_shape(order, shape);
  const bool alternates = order == PipelineOrder::one_f_one_b;
  const int round = alternates && shape.stages_per_rank > 1 ? shape.ranks : shape.microbatches;
  const auto forwards = of_kind(ActionKind::forward, shape, rank, round);
  const auto backwards = of_kind(ActionKind::backward, shape, rank, round);
  const std::size_t ahead =
      alternates ? std::min(forwards.size(), static_cast<std::size_t>(warm_up(shape, rank)))
                 : forwards.size();
  std::vector<PipelineAction> actions(forwards.begin(),
                                      forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (ahead + i < forwards.size()) actions.push_back(forwards[ahead + i]);
    actions.push_back(backwards[i]);
  }
  return actions;
}

namespace {

/// When actions have ended; -1 before.
class Ends {
 public:
  explicit Ends(const PipelineShape& shape)
      : shape_(shape),
        ends_(2 * static_cast<std::size_t>(shape.stages() * shape.microbatches), -1) {}
  int& of(const PipelineAction& action) {
    const int half = action.kind == ActionKind::forward ? 0 : shape_.stages();
    return ends_[static_cast<std::size_t>((half + action.stage) * shape_.microbatches +
                                          action.microbatch)];
  }
  /// When all is there that the action needs; -1: not yet known.
  int ready(const PipelineAction& action) {
    const auto [kind, stage, microbatch] = action;
    if (kind == ActionKind::forward)
      return stage == 0 ? 0 : of({ActionKind::forward, stage - 1, microbatch});
    const int own = of({ActionKind::forward, stage, microbatch});
    if (stage + 1 == shape_.stages() || own < 0) return own;
    const int next = of({ActionKind::backward, stage + 1, microbatch});
    return next < 0 ? -1 : std::max(own, next);
  }

 private:
  const PipelineShape shape_;
  std::vector<int> ends_;
};

}  // namespace

PipelineTimeline pipeline_timeline(PipelineOrder order, const PipelineShape& shape) {
  std::vector<std::vector<PipelineAction>> lists;
  for (int rank = 0; rank < shape.ranks; ++rank)
    lists.push_back(pipeline_actions(order, shape, rank));
  PipelineTimeline timeline{std::vector<std::vector<PipelineTimeline::Entry>>(lists.size())};
  Ends ends(shape);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      auto& done = timeline.ranks[rank];
      while (done.size() < lists[rank].size()) {
        const PipelineAction& action = lists[rank][done.size()];
        const int ready = ends.ready(action);
        if (ready < 0) break;
        const int begin = std::max(ready, done.empty() ? 0 : done.back().end);
        const int end = begin + (action.kind == ActionKind::forward ? 1 : 2);
        done.push_back({action, begin, end});
        ends.of(action) = end;
        timeline.end = std::max(timeline.end, end);
        moved = true;
      }
    }
  }
  return timeline;
}

double PipelineTimeline::bubble() const {
  double busy = 0;
  for (const auto& entries : ranks) {
    for (const Entry& entry : entries) busy += entry.end - entry.begin;
  }
  return 1 - busy / (static_cast<double>(end) * static_cast<double>(ranks.size()));
}

std::string PipelineTimeline::to_string() const {
  std::string text;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::string line(static_cast<std::size_t>(end), '.');
    for (const Entry& entry : ranks[rank]) {
      const auto own = static_cast<std::size_t>(entry.action.stage) / ranks.size();
      const int digit = entry.action.microbatch % 10;
      const auto begin = static_cast<std::size_t>(entry.begin);
      line[begin] = static_cast<char>((own == 0 ? '0' : 'a') + digit);
      if (entry.end - entry.begin > 1) line[begin + 1] = '-';
    }
    text += "rank " + std::to_string(rank) + "  " + line + "\n";
  }
  return text;
}

}  // namespace dtrun::dtensor
