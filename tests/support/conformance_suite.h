// The conformance suite: every operation of a ProcessGroup against a plain reference, for whatever
// backend a Subject makes groups of. A backend's test is one TEST per part:
//
//   Subject subject{.name = "gloo", .run = [](int size, const test::RankBody& body) {
//     test::run_ranks(size, {.backend = "gloo"}, body);  // or any other way to make a group
//   }};
//   subject.dtypes = {DType::f32, DType::i32};   // what the library has
//   subject.supports = [](OpKind kind, DType dtype, ReduceOp op) { return op != ReduceOp::avg; };
//   TEST(GlooConformanceTest, ReductionsAreThoseOfTheReference) { run_part(subject,
//   Part::reductions); }
//
// What `supports` denies is not called by the other parts; Part::refusals calls it, and wants a
// kUnavailable on every rank. The first failures of a part are reported, with the case.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "support/rank_threads.h"
#include "tensor/all_dtypes.h"

namespace dtrun::conformance {

using collectives::OpKind;
using collectives::ReduceOp;
using tensors::DType;

/// How much of the product of all settings is run: `small` where a sanitizer makes it dear.
enum class Breadth { full, small };
/// That of this build.
Breadth build_breadth();

struct Subject {
  std::string name;  ///< for messages
  /// Runs the body on every rank of a new group of that size, and fails the test if one throws.
  std::function<void(int size, const test::RankBody& body)> run;
  std::vector<int> worlds = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<DType> dtypes = {std::begin(tensors::kAllDTypes), std::end(tensors::kAllDTypes)};
  /// Elements of a tensor or piece: those that meet all settings, and those that take turns at
  /// them.
  std::vector<std::int64_t> counts = {0, 1, 7, 1023};
  std::vector<std::int64_t> large_counts = {65536 + 3};
  /// The large ones meet every dtype, op and kind.
  bool large_meet_all = false;
  /// Of what means something for the dtype at all. Kinds without a reduction are asked with sum.
  std::function<bool(OpKind kind, DType dtype, ReduceOp op)> supports =
      [](OpKind, DType, ReduceOp) { return true; };
  /// Where a rank's tensors lie.
  std::function<tensors::Device(int rank)> device = [](int) { return tensors::kCpu; };
  /// Receives from any rank, which some libraries have no word for.
  bool any_source = true;
  /// Messages that are told apart by numbers, and overtake one another.
  bool tags = true;
  Breadth breadth = build_breadth();
  /// Larger worlds are left out where a sanitizer makes them dear.
  int most_sanitized_ranks = 3;
};

enum class Part {
  reductions,  ///< all_reduce, reduce, reduce_scatter and its tensor form
  pieces,      ///< broadcast, gathers, scatters, all_to_all, barriers
  messages,    ///< send, recv, tags, any source, batches
  groups,      ///< subgroups, several groups at once, two threads using two groups
  refusals,    ///< what the subject does not support
};
void run_part(const Subject& subject, Part part);

}  // namespace dtrun::conformance
