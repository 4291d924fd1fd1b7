// RankCases: the cases of the conformance suite on one rank of one group. Every rank runs the same
// ones in the same order. A wrong result is reported as a failure with its case; the rank goes on,
// so that its peers do not wait for it.
#pragma once

#include <string>
#include <vector>

#include "support/conformance_suite.h"
#include "support/conformance_values.h"

namespace dtrun::conformance {

enum class Mode { sync, async };

struct Setting {
  DType dtype;
  ReduceOp op;
  std::int64_t count;
  Layout layout;
  Mode mode;
};

class RankCases {
 public:
  RankCases(const Subject& subject, const collectives::ProcessGroup& group)
      : subject_(subject), group_(group), rank_(group.rank()), size_(group.size()) {}

  // Those that the subject does not support are passed over.
  void all_reduce(const Setting& setting);
  void reduce(const Setting& setting, int root);
  void reduce_scatter(const Setting& setting);
  void reduce_scatter_tensor(const Setting& setting);

  // Where pieces may be uneven, rank r's has a few more elements than the setting says, unless all
  // are to be equal.
  void give_equal_pieces(bool equal) { has_equal_pieces_ = equal; }
  void broadcast(const Setting& setting, int root);
  void all_gather(const Setting& setting);
  void gather(const Setting& setting, int root);
  void scatter(const Setting& setting, int root);
  void all_to_all(const Setting& setting);
  void all_gather_into_tensor(const Setting& setting);
  void all_to_all_single(const Setting& setting);
  /// About two of three ranks have a piece for each other one, and all know which.
  void all_to_all_agreed(const Setting& setting);
  void barrier(const Setting& setting);
  void tensors_without_dims();

  void ring(const Setting& setting);
  void batch(const Setting& setting);
  void tags(const Setting& setting);
  void any_source(const Setting& setting);

  void subgroups();
  void groups_at_once();
  void threads_with_groups_of_their_own();

  /// @throws what is no Error kUnavailable
  void is_refused(const Setting& setting, OpKind kind);

 private:
  /// How many elements more than the setting's count are for that rank.
  std::int64_t more(int rank) const { return has_equal_pieces_ ? 0 : rank * 5 % 4; }
  bool skips(OpKind kind, const Setting& setting) const;
  collectives::CallOptions options(const Setting& setting) const {
    collectives::CallOptions made{.async = setting.mode == Mode::async};
    if (setting.op == ReduceOp::premul_sum) made.factor = factor_of(rank_);
    return made;
  }
  LocalTensor make(const Setting& setting, const Values& values) const;
  LocalTensor blank(const Setting& setting, std::int64_t count) const;
  /// Waits, looks at the Work, compares.
  void finish(const collectives::Work& work, const char* what, const Setting& setting) const;
  void expect(const LocalTensor& actual, const Values& expected, const char* what,
              const Setting& setting) const;
  void report(const std::string& what, const Setting& setting, const std::string& problem) const;
  /// All reduce 1 + rank once, in that group.
  void reduce_in(const collectives::ProcessGroup& group, std::int64_t count) const;

  const Subject& subject_;
  const collectives::ProcessGroup& group_;
  const int rank_;
  const int size_;
  bool has_equal_pieces_ = false;
};

}  // namespace dtrun::conformance
