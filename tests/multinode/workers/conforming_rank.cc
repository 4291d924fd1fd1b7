// conforming_rank [--long-sum]: a rank of any job, with every operation of a ProcessGroup against
// the reference: the conformance suite with few settings, for links that are slow. Ends with
// gtest's summary. Before that rank 0 prints the least round trip between it and the last rank, as
// "round trip NANOSECONDS". With --long-sum one all_reduce of 64 MiB comes first: each rank prints
// when it begins ("long sum from ..."), and when it has ended ("long sum until ..., right"), by the
// machine's steady clock in nanoseconds.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "dtrun/dtrun.h"
#include "support/conformance_suite.h"

namespace dtrun {
namespace {

using conformance::Part;

const ProcessGroup* the_world = nullptr;  // gtest's bodies take no argument

void run(Part part) {
  conformance::Subject subject;
  subject.name = "a job's world";
  subject.run = [](int, const test::RankBody& body) {
    std::vector<int> all(static_cast<std::size_t>(the_world->size()));
    std::iota(all.begin(), all.end(), 0);
    body(the_world->split({all}, "case"));
  };
  subject.worlds = {the_world->size()};
  subject.dtypes = {DType::f32, DType::i32};
  subject.counts = {7};
  subject.large_counts = {65536 + 3};
  subject.large_meet_all = true;
  subject.breadth = conformance::Breadth::full;
  run_part(subject, part);
}

TEST(ConformingRank, ReductionsAreThoseOfTheReference) {
  run(Part::reductions);
}
TEST(ConformingRank, PiecesComeWhereTheyBelong) {
  run(Part::pieces);
}
TEST(ConformingRank, MessagesComeWhole) {
  run(Part::messages);
}
TEST(ConformingRank, GroupsWorkSideBySide) {
  run(Part::groups);
}

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of a message of one number, there and back: nothing can come back sooner than the link lets it.
void tell_round_trip(const ProcessGroup& world) {
  constexpr int kTries = 10;
  const int last = world.size() - 1;
  const Tensor number = full({1}, 1);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t begin = now_ns();
    if (world.rank() == 0) {
      world.send(number, last);
      world.recv(number, last);
    } else if (world.rank() == last) {
      world.recv(number, 0);
      world.send(number, 0);
    }
    least = std::min(least, now_ns() - begin);
  }
  if (world.rank() == 0) print("round trip {}", least);
}

void tell_long_sum(const ProcessGroup& world) {
  constexpr std::int64_t kElements = 16 << 20;
  const Tensor tensor = full({kElements}, world.rank() + 1);
  world.barrier();
  print("long sum from {}", now_ns());
  world.all_reduce(tensor);
  const std::int64_t end = now_ns();
  const bool is_right = equal(tensor, full({kElements}, world.size() * (world.size() + 1) / 2));
  print("long sum until {}, {}", end, is_right ? "right" : "wrong");
}

}  // namespace
}  // namespace dtrun

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  dtrun::runtime::InitOptions options;
  options.timeout = std::chrono::seconds(60);
  const dtrun::Worker worker = dtrun::init(std::move(options));
  dtrun::the_world = &worker.world();
  dtrun::tell_round_trip(worker.world());
  if (argc > 1 && std::string_view(argv[1]) == "--long-sum") dtrun::tell_long_sum(worker.world());
  return RUN_ALL_TESTS();
}
