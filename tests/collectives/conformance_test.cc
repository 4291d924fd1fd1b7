// The cpu backend in the conformance suite, over shared memory and over TCP.
#include <gtest/gtest.h>

#include "support/conformance_suite.h"

namespace dtrun::collectives {
namespace {

using conformance::Part;
using conformance::Subject;

class CpuConformanceTest : public testing::TestWithParam<Transport> {
 protected:
  void run(Part part) const {
    const Transport transport = GetParam();
    Subject subject;
    subject.name = transport == Transport::tcp ? "cpu over TCP" : "cpu";
    subject.run = [transport](int size, const test::RankBody& body) {
      test::run_ranks(size, {.transport = transport}, body);
    };
    run_part(subject, part);
  }
};

TEST_P(CpuConformanceTest, ReductionsAreThoseOfTheReference) {
  run(Part::reductions);
}
TEST_P(CpuConformanceTest, PiecesComeWhereTheyBelong) {
  run(Part::pieces);
}
TEST_P(CpuConformanceTest, MessagesComeWhole) {
  run(Part::messages);
}
TEST_P(CpuConformanceTest, GroupsWorkSideBySide) {
  run(Part::groups);
}

INSTANTIATE_TEST_SUITE_P(, CpuConformanceTest,
                         testing::Values(Transport::automatic, Transport::tcp),
                         [](const auto& tested) {
                           return tested.param == Transport::tcp ? "Tcp" : "Automatic";
                         });

}  // namespace
}  // namespace dtrun::collectives
