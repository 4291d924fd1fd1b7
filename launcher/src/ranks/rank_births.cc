#include "ranks/rank_births.h"

#include <utility>

namespace dtrun::launcher {
namespace {

// More at once are no faster: the exec of the first is over by then.
constexpr std::size_t kAtOnce = 8;

}  // namespace

void RankBirths::begin(int local_rank, base::ChildCommand command, base::ChildSetup setup,
                       RankEnds ends) {
  if (births_.size() == kAtOnce) finish_oldest();
  whose_turn_ = local_rank;
  base::ChildBirth child(std::move(command), std::move(setup));
  births_.push_back({local_rank, std::move(ends), std::move(child)});
}

void RankBirths::finish() {
  while (!births_.empty()) finish_oldest();
}

void RankBirths::finish_oldest() {
  Birth birth = std::move(births_.front());
  births_.pop_front();
  whose_turn_ = birth.local_rank;
  on_born_(birth.local_rank, birth.child.finish());
}

}  // namespace dtrun::launcher
