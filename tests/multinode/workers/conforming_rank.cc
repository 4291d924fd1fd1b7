// conforming_rank: a rank of any job, with every operation of a ProcessGroup against the reference:
// the conformance suite with few settings, for links that are slow. Ends with gtest's summary.
#include <gtest/gtest.h>

#include <numeric>
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

}  // namespace
}  // namespace dtrun

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  dtrun::runtime::InitOptions options;
  options.timeout = std::chrono::seconds(60);
  const dtrun::Worker worker = dtrun::init(std::move(options));
  dtrun::the_world = &worker.world();
  return RUN_ALL_TESTS();
}
