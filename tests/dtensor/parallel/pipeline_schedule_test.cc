// Pipeline schedules: every action once, none that waits for ever, the bubbles that the papers
// give, and how much is kept.
#include "dtrun/dtensor/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "dtensor/refusal.h"

namespace dtrun::dtensor {
namespace {

using Kind = PipelineAction::Kind;

/// Forwards whose backward has not come, at most.
int kept_at_most(const std::vector<PipelineAction>& actions) {
  int kept = 0, most = 0;
  for (const PipelineAction& action : actions) {
    kept += action.kind == Kind::forward ? 1 : -1;
    most = std::max(most, kept);
  }
  return most;
}

TEST(PipelineScheduleTest, EveryActionComesOnceAndNoneWaitsForEver) {
  for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int stages = 1; stages <= 4; ++stages) {
        for (int microbatches = 1; microbatches <= 18; ++microbatches) {
          const bool in_rounds = order == PipelineOrder::one_f_one_b && stages > 1;
          if (in_rounds && microbatches % ranks != 0) continue;
          const PipelineTimeline timeline = pipeline_timeline(order, {ranks, stages, microbatches});
          for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
            std::set<std::tuple<Kind, int, int>> seen;
            for (const auto& [action, begin, end] : timeline.ranks[rank]) {
              EXPECT_EQ(action.stage % ranks, static_cast<int>(rank));
              EXPECT_TRUE(seen.insert({action.kind, action.stage, action.microbatch}).second);
            }
            EXPECT_EQ(seen.size(), static_cast<std::size_t>(2 * stages * microbatches))
                << ranks << " ranks, " << stages << " stages each, " << microbatches;
          }
        }
      }
    }
  }
}

TEST(PipelineScheduleTest, TheBubbleIsThatOfThePapers) {
  for (const int ranks : {1, 2, 4, 5}) {
    for (const int rounds : {1, 2, 4}) {
      const int microbatches = rounds * ranks;
      for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
        EXPECT_NEAR(pipeline_timeline(order, {ranks, 1, microbatches}).bubble(),
                    (ranks - 1.0) / (microbatches + ranks - 1.0), 1e-12);
      }
      for (const int stages : {2, 3}) {
        EXPECT_NEAR(
            pipeline_timeline(PipelineOrder::one_f_one_b, {ranks, stages, microbatches}).bubble(),
            (ranks - 1.0) / (stages * microbatches + ranks - 1.0), 1e-12)
            << ranks << " " << stages << " " << microbatches;
      }
    }
  }
}

TEST(PipelineScheduleTest, OneForwardOneBackwardKeepsAsManyAsThereAreStagesToCome) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(kept_at_most(pipeline_actions(PipelineOrder::one_f_one_b, {4, 1, 16}, rank)),
              4 - rank);
    EXPECT_EQ(kept_at_most(pipeline_actions(PipelineOrder::gpipe, {4, 1, 16}, rank)), 16);
  }
}

TEST(PipelineScheduleTest, ATimelineIsDrawn) {
  EXPECT_EQ(pipeline_timeline(PipelineOrder::gpipe, {2, 1, 3}).to_string(),
            "rank 0  012...0-1-2-\n"
            "rank 1  .0120-1-2-..\n");
  EXPECT_EQ(pipeline_timeline(PipelineOrder::one_f_one_b, {2, 1, 3}).to_string(),
            "rank 0  01..0-21-.2-\n"
            "rank 1  .00-11-22-..\n");
  EXPECT_EQ(pipeline_timeline(PipelineOrder::one_f_one_b, {2, 2, 2}).to_string(),
            "rank 0  01ab..a-.b-0-1-\n"
            "rank 1  .01aa-bb-0-1-..\n");
}

TEST(PipelineScheduleTest, WhatHasNoScheduleIsRefused) {
  expect_refused(
      [] {
        pipeline_actions(PipelineOrder::gpipe, {2, 1, 0}, 0);
      },
      {"2 ranks with 1 stages each and 0 microbatches", "numbers from 1"});
  expect_refused(
      [] {
        pipeline_actions(PipelineOrder::one_f_one_b, {2, 2, 3}, 0);
      },
      {"interleaved pipeline of 2 ranks with 3 microbatches", "multiple of the ranks"});
}

}  // namespace
}  // namespace dtrun::dtensor
