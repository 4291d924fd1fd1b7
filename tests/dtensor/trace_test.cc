// Trace: what it records of a step, how that lies in time, and the file of all ranks.
#include "dtrun/dtensor/move/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <filesystem>
#include <latch>
#include <map>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/base/json.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "move/trace_text.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

namespace json = boost::json;
using collectives::ProcessGroup;

const TraceEvent* find(const std::vector<TraceEvent>& events, const std::string& name) {
  const auto found = std::ranges::find(events, name, &TraceEvent::name);
  return found == events.end() ? nullptr : &*found;
}

/// Two stretches of a thread are apart from each other, or one is within the other.
void expect_nested(std::vector<std::pair<double, double>> stretches) {
  std::sort(stretches.begin(), stretches.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  std::vector<double> ends;
  for (const auto& [begin, end] : stretches) {
    while (!ends.empty() && ends.back() <= begin) ends.pop_back();
    if (!ends.empty()) {
      EXPECT_LE(end, ends.back());
    }
    ends.push_back(end);
  }
}

TEST(TraceTest, AStepIsModulesOperatorsTheirBackwardsAndTheOptimizersStep) {
  const auto model = made_reader();
  optim::AdamW optimizer(model->parameters());
  const Trace trace;
  const Tensor loss = loss_of(*model, 0, 12);
  const std::size_t forward = trace.events().size();
  loss.backward();
  optimizer.step();
  const std::vector<TraceEvent> events = trace.events();
  EXPECT_GT(events.size(), forward);
  for (const char* const name :
       {"Reader", "Reader.blocks.1", "Reader.blocks.1.up", "linear", "linear, backward",
        "layer_norm", "cross_entropy, backward", "AdamW"})
    EXPECT_NE(find(events, name), nullptr) << name;
  const TraceEvent& block = *find(events, "Reader.blocks.0");
  const TraceEvent& norm = *find(events, "layer_norm");
  EXPECT_EQ(norm.section, "Reader.blocks.0.norm");
  EXPECT_LE(block.begin, norm.begin);
  EXPECT_GE(block.end, norm.end);
  // Of a backward the module is told in which its forward was.
  const TraceEvent& last = *std::find_if(events.rbegin(), events.rend(), [](const TraceEvent& one) {
    return one.name == "layer_norm, backward";
  });
  EXPECT_EQ(last.section, "Reader.blocks.0.norm");
  std::vector<std::pair<double, double>> stretches;
  for (const TraceEvent& event : events) stretches.emplace_back(event.begin, event.end);
  expect_nested(stretches);
  EXPECT_EQ(trace.hidden_share(), 0);
}

TEST(TraceTest, WhatIsSentWhileBackwardGoesOnOverlapsIt) {
  // The second rank's first bucket waits until the first rank has gone on to the table.
  std::latch table_reached(1);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    data_parallel(*model, mesh, {.bucket_bytes = 1, .first_bucket_bytes = 1});
    part_of_loss(*model, group).backward();
    model->zero_grad();
    bool has_waited = false;
    if (group.rank() == 0) {
      model->blocks->at(0).as<Block>()->norm->register_forward_hook(
          [&](nn::Module&, const Tensors&, const Tensors& outputs) {
            outputs[0].register_hook([&](const Tensor&) {
              table_reached.count_down();
              return Tensor();
            });
            return Tensors();
          });
    } else {
      model->head->weight.register_hook([&](const Tensor&) {
        if (!has_waited) table_reached.wait();
        has_waited = true;
        return Tensor();
      });
    }
    const Trace trace;
    part_of_loss(*model, group).backward();
    if (group.rank() == 1) return;
    const std::vector<TraceEvent> events = trace.events();
    const auto is_sent = [](const TraceEvent& one) { return one.is_communication(); };
    EXPECT_EQ(std::ranges::count_if(events, is_sent), 14);  // as many as there are parameters
    const TraceEvent& first = *std::ranges::find_if(events, is_sent);
    EXPECT_EQ(first.name, "all_reduce");
    EXPECT_FALSE(first.blocks);
    EXPECT_GT(first.bytes, 0);
    EXPECT_EQ(first.ranks, 2);
    const TraceEvent& gelu = *find(events, "gelu, backward");
    EXPECT_LT(first.begin, gelu.begin);
    EXPECT_GT(first.end, gelu.end);
    EXPECT_GT(trace.hidden_share(), 0);
    EXPECT_NE(find(events, "wait for gradients"), nullptr);
  });
}

TEST(TraceTest, AFileHasAllRanksAndThreadsThatDoOneThingAtATime) {
  const std::string path = testing::TempDir() + "trace" + std::to_string(::getpid()) + ".json";
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    fully_shard(*model, mesh, {.units = {"blocks.*"}});
    const Trace trace;
    part_of_loss(*model, group).backward();
    trace.write(path, group);
    EXPECT_NE(trace.to_json(7).find("\"rank 7\""), std::string::npos);
  });
  const json::value file = base::read_json_file(path);
  std::filesystem::remove(path);
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::pair<double, double>>> threads;
  std::map<std::int64_t, std::map<std::string, int>> sent;
  std::map<std::string, int> names;
  for (const json::value& value : file.at("traceEvents").as_array()) {
    const json::object& event = value.as_object();
    const std::int64_t rank = event.at("pid").as_int64();
    if (event.at("ph").as_string() == "M") {
      ++names[std::string(event.at("args").at("name").as_string())];
      continue;
    }
    const double begin = event.at("ts").to_number<double>();
    const double length = event.at("dur").to_number<double>();
    EXPECT_GE(length, 0);
    // Differences of large numbers are not exact.
    threads[{rank, event.at("tid").as_int64()}].emplace_back(begin, begin + length - 1e-3);
    if (event.at("cat").as_string() == "communication") {
      ++sent[rank][std::string(event.at("name").as_string())];
      EXPECT_GT(event.at("args").at("bytes sent").as_int64(), 0);
      EXPECT_EQ(event.at("args").at("ranks").as_int64(), 2);
    }
  }
  for (const auto& [thread, stretches] : threads) expect_nested(stretches);
  for (const std::int64_t rank : {0, 1}) {
    EXPECT_EQ(sent[rank]["all_gather"], 5);
    EXPECT_EQ(sent[rank]["reduce_scatter"], 3);
    EXPECT_EQ(names["rank " + std::to_string(rank)], 1);
  }
  EXPECT_EQ(names["compute"], 2);
  EXPECT_GE(names["communication 1"], 2);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const Trace trace;
    const auto write = [&] { trace.write("/nowhere/trace.json", group); };
    if (group.rank() == 0) {
      expect_refused(write, "/nowhere", base::ErrorCode::kSystem);
    } else {
      write();
    }
  });
}

TEST(TraceTest, HiddenIsWhatIsComputedMeanwhile) {
  const auto event = [](const char* category, double begin, double end) {
    TraceEvent one;
    one.category = category;
    one.begin = begin;
    one.end = end;
    return one;
  };
  TraceEvent blocking = event("communication", 40, 50);
  blocking.blocks = true;
  const Overlap overlap =
      overlap_of({event("communication", 0, 10), event("communication", 5, 20), event("op", 2, 4),
                  event("backward", 3, 8), event("backward", 15, 60), event("wait", 18, 30),
                  blocking, event("module", 0, 100)});
  EXPECT_EQ(overlap.all, 30);
  EXPECT_EQ(overlap.hidden, 6 + 3);
}

}  // namespace
}  // namespace dtrun::dtensor
