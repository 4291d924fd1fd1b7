// What the nccl backend composes of NCCL's calls, in the conformance suite: over the simulation of
// NCCL, with tensors in host memory.
#include <gtest/gtest.h>

#include "collectives/nccl_job.h"
#include "support/conformance_suite.h"

namespace dtrun::conformance {
namespace {

Subject simulated_nccl() {
  Subject subject;
  subject.name = "nccl, simulated";
  if (build_breadth() == Breadth::full)
    subject.worlds = {1, 2, 3};
  else
    subject.worlds = {2};
  subject.breadth = Breadth::small;
  subject.any_source = false;
  subject.tags = false;
  subject.supports = [](OpKind kind, DType dtype, ReduceOp op) {
    const bool reduces =
        kind == OpKind::all_reduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter;
    if (reduces && dtype == DType::i16) return false;
    const bool bits = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
    if (!reduces || !bits) return true;
    return dtype == DType::boolean && op != ReduceOp::bxor;
  };
  subject.run = [](int size, const test::RankBody& body) {
    test::NcclJob job(size);
    job.host_wait = test::HostWait::yes;
    job.tensors_of = tensors::DeviceType::cpu;
    job.expect_well(job.run_owners([&](std::unique_ptr<collectives::Backend> backend) {
      collectives::GroupOptions options =
          test::group_options(job.store, backend->rank(), backend->size());
      body(collectives::ProcessGroup::over(std::move(options), std::move(backend)));
    }));
  };
  return subject;
}

TEST(NcclConformanceTest, ReductionsAreThoseOfTheReference) {
  run_part(simulated_nccl(), Part::reductions);
}
TEST(NcclConformanceTest, PiecesComeWhereTheyBelong) {
  run_part(simulated_nccl(), Part::pieces);
}
TEST(NcclConformanceTest, MessagesComeWhole) {
  run_part(simulated_nccl(), Part::messages);
}
TEST(NcclConformanceTest, GroupsWorkSideBySide) {
  run_part(simulated_nccl(), Part::groups);
}
TEST(NcclConformanceTest, WhatNcclLacksIsRefused) {
  run_part(simulated_nccl(), Part::refusals);
}

}  // namespace
}  // namespace dtrun::conformance
