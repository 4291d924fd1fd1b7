// The gloo backend in the conformance suite. Nothing of it is left out: what libgloo has no word
// for is composed of what it has. For its time (60 s with all dtypes and worlds to 5) it runs with
// fewer of both; gloo_test reduces every dtype with every op.
#include <gtest/gtest.h>

#include "support/conformance_suite.h"

namespace dtrun::collectives {
namespace {

using conformance::Part;

void run(Part part) {
  conformance::Subject subject;
  subject.name = "gloo";
  subject.run = [](int size, const test::RankBody& body) {
    test::RankOptions options;
    options.backend = "gloo";
    test::run_ranks(size, options, body);
  };
  subject.worlds = {1, 3};
  subject.dtypes = {tensors::DType::f32, tensors::DType::bf16, tensors::DType::i64};
  subject.breadth = conformance::Breadth::small;
  run_part(subject, part);
}

TEST(GlooConformanceTest, ReductionsAreThoseOfTheReference) {
  run(Part::reductions);
}
TEST(GlooConformanceTest, PiecesComeWhereTheyBelong) {
  run(Part::pieces);
}
TEST(GlooConformanceTest, MessagesComeWhole) {
  run(Part::messages);
}
TEST(GlooConformanceTest, GroupsWorkSideBySide) {
  run(Part::groups);
}

}  // namespace
}  // namespace dtrun::collectives
