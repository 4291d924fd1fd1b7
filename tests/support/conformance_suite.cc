#include "support/conformance_suite.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "support/conformance_rank.h"

namespace dtrun::conformance {

namespace {

using collectives::ProcessGroup;

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg,  ReduceOp::product,
                             ReduceOp::min, ReduceOp::max,  ReduceOp::band,
                             ReduceOp::bor, ReduceOp::bxor, ReduceOp::premul_sum};
constexpr OpKind kReductions[] = {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter};
constexpr Layout kLayouts[] = {Layout::contiguous, Layout::strided};
constexpr Mode kModes[] = {Mode::sync, Mode::async};

using Reduction = std::pair<DType, ReduceOp>;

std::vector<Reduction> reductions(const Subject& subject) {
  std::vector<Reduction> all;
  for (const DType dtype : subject.dtypes)
    for (const ReduceOp op : kOps)
      if (collectives::reduce_op_supports(op, dtype)) all.emplace_back(dtype, op);
  return all;
}

constexpr std::int64_t kMostInAllSettings = 7;

std::vector<std::int64_t> all_counts(const Subject& subject) {
  std::vector<std::int64_t> all = subject.counts;
  all.insert(all.end(), subject.large_counts.begin(), subject.large_counts.end());
  return all;
}
bool is_large(const Subject& subject, std::int64_t count) {
  return std::ranges::count(subject.large_counts, count) > 0;
}

/// The whole product of the small sizes for all_reduce; the other kinds take turns at layout and
/// mode, and the large size at the dtypes and ops.
void run_reductions(const Subject& subject, const ProcessGroup& group) {
  RankCases rank(subject, group);
  int turn = 0;
  for (const auto& [dtype, op] : reductions(subject)) {
    ++turn;
    for (const std::int64_t count : subject.counts) {
      if (subject.breadth == Breadth::small && count > 7 && turn % 4 != 0) continue;
      for (const Layout layout : kLayouts)
        for (const Mode mode : kModes) rank.all_reduce({dtype, op, count, layout, mode});
      ++turn;
      const Setting turning{dtype, op, count, kLayouts[turn % 2], kModes[turn / 2 % 2]};
      rank.reduce(turning, turn % group.size());
      rank.reduce_scatter(turning);
      rank.reduce_scatter_tensor(turning);
    }
    if (!subject.large_meet_all && turn % 5 != group.size() % 5) continue;
    for (const std::int64_t count : subject.large_counts) {
      const Setting large{dtype, op, count, kLayouts[turn % 2], kModes[turn / 2 % 2]};
      rank.all_reduce(large);
      rank.reduce(large, turn % group.size());
      rank.reduce_scatter(large);
      ++turn;
    }
  }
}

/// The kinds whose pieces have lengths of their own.
void run_pieces_to_each(RankCases& rank, const Setting& setting, int root) {
  rank.all_gather(setting);
  rank.gather(setting, root);
  rank.scatter(setting, root);
  rank.all_to_all(setting);
  rank.all_to_all_agreed(setting);
}

/// The large sizes take turns at all else, and pieces of equal lengths at layout and mode.
void run_pieces(const Subject& subject, const ProcessGroup& group) {
  RankCases rank(subject, group);
  int turn = group.size();
  for (const DType dtype : subject.dtypes) {
    for (const std::int64_t count : all_counts(subject)) {
      if (is_large(subject, count) && !subject.large_meet_all && ++turn % 3 != 0) continue;
      for (const Layout layout : kLayouts)
        for (const Mode mode : kModes) {
          if (count > kMostInAllSettings && ++turn % 4 != 0) continue;
          const Setting setting{dtype, ReduceOp::sum, count, layout, mode};
          const int root = ++turn % group.size();
          rank.broadcast(setting, root);
          run_pieces_to_each(rank, setting, root);
          if (turn % 4 < 2 || count > kMostInAllSettings) {
            rank.give_equal_pieces(true);
            run_pieces_to_each(rank, setting, root);
            rank.give_equal_pieces(false);
          }
          rank.all_gather_into_tensor(setting);
          rank.all_to_all_single(setting);
          rank.barrier(setting);
        }
    }
  }
  rank.tensors_without_dims();
}

void run_messages(const Subject& subject, const ProcessGroup& group) {
  RankCases rank(subject, group);
  if (group.size() == 1) return;
  for (const DType dtype : subject.dtypes)
    for (const std::int64_t count : all_counts(subject))
      for (const Layout layout : kLayouts) {
        if (count == 1) continue;
        if (is_large(subject, count) && dtype != DType::f32 && dtype != DType::u8) continue;
        const Setting setting{dtype, ReduceOp::sum, count, layout, Mode::async};
        rank.ring(setting);
        rank.batch(setting);
        if (subject.tags) rank.tags(setting);
        if (subject.any_source) rank.any_source(setting);
      }
}

void run_groups(const Subject& subject, const ProcessGroup& group) {
  RankCases rank(subject, group);
  rank.subgroups();
  rank.groups_at_once();
  rank.threads_with_groups_of_their_own();
}

void run_refusals(const Subject& subject) {
  for (const DType dtype : subject.dtypes)
    for (const ReduceOp op : kOps)
      for (const OpKind kind : kReductions) {
        if (!collectives::reduce_op_supports(op, dtype) || subject.supports(kind, dtype, op))
          continue;
        // A refused collective ends its group.
        subject.run(2, [&](const ProcessGroup& group) {
          RankCases(subject, group)
              .is_refused({dtype, op, 3, Layout::contiguous, Mode::sync}, kind);
        });
      }
}

}  // namespace

Breadth build_breadth() {
#ifdef DTRUN_CONFORMANCE_SMALL
  return Breadth::small;
#else
  return Breadth::full;
#endif
}

void run_part(const Subject& whole, Part part) {
  Subject subject = whole;
  std::vector<int>& worlds = subject.worlds;
  if (subject.breadth == Breadth::small) {
    std::erase_if(worlds, [most = subject.most_sanitized_ranks](int size) { return size > most; });
    // One each of those whose code differs.
    std::erase_if(subject.dtypes, [](DType dtype) {
      return dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::i32 &&
             dtype != DType::boolean;
    });
    std::printf("%s: the small product, for the sake of the sanitizer\n", subject.name.c_str());
  }
  if (worlds.empty()) GTEST_SKIP() << "a sanitizer runs smaller worlds";
  if (part == Part::refusals) return run_refusals(subject);
  for (const int size : worlds)
    subject.run(size, [&](const ProcessGroup& group) {
      switch (part) {
        case Part::reductions:
          return run_reductions(subject, group);
        case Part::pieces:
          return run_pieces(subject, group);
        case Part::messages:
          return run_messages(subject, group);
        case Part::groups:
          return run_groups(subject, group);
        case Part::refusals:
          return;
      }
    });
}

}  // namespace dtrun::conformance
