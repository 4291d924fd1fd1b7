#include "support/conformance_rank.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "dtrun/base/error.h"
#include "dtrun/collectives/agreed_exchange.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::conformance {

using collectives::P2POp;
using collectives::ProcessGroup;
using collectives::Work;

namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}
Values joined(const std::vector<Values>& parts) {
  Values all;
  for (const Values& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

bool RankCases::skips(OpKind kind, const Setting& setting) const {
  return !subject_.supports(kind, setting.dtype, setting.op);
}

LocalTensor RankCases::make(const Setting& setting, const Values& values) const {
  return conformance::make(values, setting.dtype, setting.layout, subject_.device(rank_));
}

LocalTensor RankCases::blank(const Setting& setting, std::int64_t count) const {
  return make(setting, Values(static_cast<std::size_t>(count), 1));
}

void RankCases::report(const std::string& what, const Setting& setting,
                       const std::string& problem) const {
  ADD_FAILURE() << fmt::format(
      "{}: {} of {} x {}, {}, {}, {}, rank {} of {}: {}", subject_.name, what, setting.count,
      tensors::dtype_name(setting.dtype), collectives::reduce_op_name(setting.op),
      setting.layout == Layout::strided ? "strided" : "contiguous",
      setting.mode == Mode::async ? "async" : "sync", rank_, size_, problem);
}

void RankCases::finish(const Work& work, const char* what, const Setting& setting) const {
  if (setting.mode == Mode::async) work.wait(base::Deadline::after(std::chrono::seconds(60)));
  if (!work.is_completed()) report(what, setting, "is not completed after its wait");
  if (work.exception()) report(what, setting, "has an exception");
}

void RankCases::expect(const LocalTensor& actual, const Values& expected, const char* what,
                       const Setting& setting) const {
  const std::string problem = difference(actual, expected, setting.op);
  if (!problem.empty()) report(what, setting, problem);
}

void RankCases::all_reduce(const Setting& setting) {
  if (skips(OpKind::all_reduce, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  const Values own = values_of(dtype, op, rank_, count);
  const LocalTensor tensor = make(setting, own);
  // Some ranks in place, their peers not.
  if ((rank_ + count) % 2 == 0) {
    finish(group_.all_reduce(tensor, op, options(setting)), "all_reduce", setting);
    return expect(tensor, reduced(dtype, op, size_, count), "all_reduce", setting);
  }
  const LocalTensor output = blank(setting, count);
  finish(group_.all_reduce_into_tensor(output, tensor, op, options(setting)),
         "all_reduce_into_tensor", setting);
  expect(output, reduced(dtype, op, size_, count), "all_reduce_into_tensor", setting);
  expect(tensor, own, "the input of all_reduce_into_tensor", setting);
}

void RankCases::reduce(const Setting& setting, int root) {
  if (skips(OpKind::reduce, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  const Values own = values_of(dtype, op, rank_, count);
  const LocalTensor tensor = make(setting, own);
  finish(group_.reduce(tensor, root, op, options(setting)), "reduce", setting);
  expect(tensor, rank_ == root ? reduced(dtype, op, size_, count) : own, "reduce", setting);
}

void RankCases::reduce_scatter(const Setting& setting) {
  if (skips(OpKind::reduce_scatter, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<LocalTensor> inputs;
  for (int peer = 0; peer < size_; ++peer)
    inputs.push_back(make(setting, values_of(dtype, op, rank_, count + more(peer), peer)));
  const LocalTensor output = blank(setting, count + more(rank_));
  finish(group_.reduce_scatter(output, inputs, op, options(setting)), "reduce_scatter", setting);
  expect(output, reduced(dtype, op, size_, count + more(rank_), rank_), "reduce_scatter", setting);
}

void RankCases::reduce_scatter_tensor(const Setting& setting) {
  if (skips(OpKind::reduce_scatter, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<Values> parts;
  for (int peer = 0; peer < size_; ++peer)
    parts.push_back(values_of(dtype, op, rank_, count, peer));
  const LocalTensor output = blank(setting, count);
  finish(group_.reduce_scatter_tensor(output, make(setting, joined(parts)), op, options(setting)),
         "reduce_scatter_tensor", setting);
  expect(output, reduced(dtype, op, size_, count, rank_), "reduce_scatter_tensor", setting);
}

void RankCases::broadcast(const Setting& setting, int root) {
  if (skips(OpKind::broadcast, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  const LocalTensor tensor = make(setting, values_of(dtype, op, rank_, count));
  finish(group_.broadcast(tensor, root, options(setting)), "broadcast", setting);
  expect(tensor, values_of(dtype, op, root, count), "broadcast", setting);
}

void RankCases::all_gather(const Setting& setting) {
  if (skips(OpKind::all_gather, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<LocalTensor> outputs;
  for (int peer = 0; peer < size_; ++peer) outputs.push_back(blank(setting, count + more(peer)));
  const LocalTensor input = make(setting, values_of(dtype, op, rank_, count + more(rank_)));
  finish(group_.all_gather(outputs, input, options(setting)), "all_gather", setting);
  for (int peer = 0; peer < size_; ++peer)
    expect(outputs[index(peer)], values_of(dtype, op, peer, count + more(peer)), "all_gather",
           setting);
}

void RankCases::gather(const Setting& setting, int root) {
  if (skips(OpKind::gather, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<LocalTensor> outputs;
  for (int peer = 0; rank_ == root && peer < size_; ++peer)
    outputs.push_back(blank(setting, count + more(peer)));
  const LocalTensor input = make(setting, values_of(dtype, op, rank_, count + more(rank_)));
  finish(group_.gather(input, outputs, root, options(setting)), "gather", setting);
  for (int peer = 0; rank_ == root && peer < size_; ++peer)
    expect(outputs[index(peer)], values_of(dtype, op, peer, count + more(peer)), "gather", setting);
}

void RankCases::scatter(const Setting& setting, int root) {
  if (skips(OpKind::scatter, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<LocalTensor> inputs;
  for (int peer = 0; rank_ == root && peer < size_; ++peer)
    inputs.push_back(make(setting, values_of(dtype, op, rank_, count + more(peer), peer)));
  const LocalTensor output = blank(setting, count + more(rank_));
  finish(group_.scatter(output, inputs, root, options(setting)), "scatter", setting);
  expect(output, values_of(dtype, op, root, count + more(rank_), rank_), "scatter", setting);
}

void RankCases::all_to_all(const Setting& setting) {
  if (skips(OpKind::all_to_all, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<LocalTensor> inputs;
  std::vector<LocalTensor> outputs;
  for (int peer = 0; peer < size_; ++peer) {
    inputs.push_back(make(setting, values_of(dtype, op, rank_, count + more(peer), peer)));
    outputs.push_back(blank(setting, count + more(rank_)));
  }
  finish(group_.all_to_all(outputs, inputs, options(setting)), "all_to_all", setting);
  for (int peer = 0; peer < size_; ++peer)
    expect(outputs[index(peer)], values_of(dtype, op, peer, count + more(rank_), rank_),
           "all_to_all", setting);
}

void RankCases::all_gather_into_tensor(const Setting& setting) {
  if (skips(OpKind::all_gather, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<Values> parts;
  for (int peer = 0; peer < size_; ++peer) parts.push_back(values_of(dtype, op, peer, count));
  const LocalTensor input = make(setting, parts[index(rank_)]);
  const LocalTensor output = blank(setting, count * size_);
  finish(group_.all_gather_into_tensor(output, input, options(setting)), "all_gather_into_tensor",
         setting);
  expect(output, joined(parts), "all_gather_into_tensor", setting);
  // Columns of rows: the output has one dim more.
  const LocalTensor stacked =
      tensors::zeros({count, size_}, {.dtype = dtype, .device = subject_.device(rank_)})
          .transpose(0, 1);
  finish(group_.all_gather_into_tensor(stacked, input, options(setting)), "stacked all_gather",
         setting);
  expect(stacked.contiguous(), joined(parts), "stacked all_gather", setting);
}

void RankCases::all_to_all_single(const Setting& setting) {
  if (skips(OpKind::all_to_all, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<std::int64_t> to;
  std::vector<std::int64_t> from;
  std::vector<Values> inputs;
  std::vector<Values> outputs;
  for (int peer = 0; peer < size_; ++peer) {
    to.push_back(count / size_ + more(peer));
    from.push_back(count / size_ + more(rank_));
    inputs.push_back(values_of(dtype, op, rank_, to.back(), peer));
    outputs.push_back(values_of(dtype, op, peer, from.back(), rank_));
  }
  const LocalTensor output =
      blank(setting, std::accumulate(from.begin(), from.end(), std::int64_t{0}));
  finish(
      group_.all_to_all_single(output, make(setting, joined(inputs)), from, to, options(setting)),
      "all_to_all_single", setting);
  expect(output, joined(outputs), "all_to_all_single", setting);
}

void RankCases::all_to_all_agreed(const Setting& setting) {
  if (skips(OpKind::all_to_all, setting)) return;
  const auto& [dtype, op, count, layout, mode] = setting;
  const auto gives = [](int giver, int taker) { return (giver + 2 * taker) % 3 != 1; };
  std::vector<int> givers, takers;
  std::vector<LocalTensor> inputs, outputs;
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    if (gives(rank_, peer)) {
      takers.push_back(peer);
      inputs.push_back(make(setting, values_of(dtype, op, rank_, count + more(peer), peer)));
    }
    if (gives(peer, rank_)) {
      givers.push_back(peer);
      outputs.push_back(blank(setting, count + more(rank_)));
    }
  }
  const collectives::AgreedExchange exchange{.plan = static_cast<std::uint64_t>(count),
                                             .dtype = dtype,
                                             .device = subject_.device(rank_),
                                             .outputs = {givers, outputs},
                                             .inputs = {takers, inputs}};
  finish(group_.all_to_all_agreed(exchange, options(setting)), "all_to_all_agreed", setting);
  for (std::size_t i = 0; i < givers.size(); ++i)
    expect(outputs[i], values_of(dtype, op, givers[i], count + more(rank_), rank_),
           "all_to_all_agreed", setting);
}

void RankCases::barrier(const Setting& setting) {
  if (skips(OpKind::barrier, setting)) return;
  finish(group_.barrier(options(setting)), "barrier", setting);
}

void RankCases::tensors_without_dims() {
  const Setting setting{subject_.dtypes.front(), ReduceOp::sum, 1, Layout::contiguous, Mode::sync};
  const auto& [dtype, op, count, layout, mode] = setting;
  if (skips(OpKind::all_reduce, setting) || skips(OpKind::all_gather, setting)) return;
  const tensors::TensorOptions place{.dtype = dtype, .device = subject_.device(rank_)};
  const LocalTensor tensor = tensors::full({}, values_of(dtype, op, rank_, 1)[0], place);
  const LocalTensor gathered = tensors::zeros({size_}, place);
  group_.all_gather_into_tensor(gathered, tensor);
  std::vector<Values> parts;
  for (int peer = 0; peer < size_; ++peer) parts.push_back(values_of(dtype, op, peer, 1));
  expect(gathered, joined(parts), "all_gather of tensors without dims", setting);
  group_.all_reduce(tensor, op);
  expect(tensor, reduced(dtype, op, size_, 1), "all_reduce of a tensor without dims", setting);
}

void RankCases::reduce_in(const ProcessGroup& group, std::int64_t count) const {
  const Setting setting{subject_.dtypes.front(), ReduceOp::sum, count, Layout::contiguous,
                        Mode::sync};
  const LocalTensor tensor =
      make(setting, values_of(setting.dtype, setting.op, group.rank(), count));
  group.all_reduce(tensor);
  expect(tensor, reduced(setting.dtype, setting.op, group.size(), count),
         "all_reduce in a subgroup", setting);
}

void RankCases::subgroups() {
  std::vector<int> all(index(size_));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> even;
  std::vector<int> odd;
  for (const int rank : all) (rank % 2 == 0 ? even : odd).push_back(rank);
  const ProcessGroup half = group_.split({even, odd}, "half");
  reduce_in(half, 9);
  // Another order of the ranks.
  const ProcessGroup reversed = group_.split({{all.rbegin(), all.rend()}}, "reversed");
  if (reversed.rank() != size_ - 1 - rank_) ADD_FAILURE() << "rank " << reversed.rank();
  reduce_in(reversed, 1023);
  const ProcessGroup first = group_.split({{0}}, "first");
  if (first.valid() != (rank_ == 0)) ADD_FAILURE() << "rank " << rank_ << " and the first";
  // A subgroup of a subgroup.
  const ProcessGroup quarter = half.split({{0}}, "quarter");
  if (quarter.valid()) reduce_in(quarter, 5);
  reduce_in(group_, 7);
}

void RankCases::groups_at_once() {
  std::vector<int> all(index(size_));
  std::iota(all.begin(), all.end(), 0);
  const ProcessGroup other = group_.split({all}, "other");
  const Setting setting{subject_.dtypes.front(), ReduceOp::sum, 1023, Layout::contiguous,
                        Mode::async};
  const Values own = values_of(setting.dtype, setting.op, rank_, setting.count);
  std::vector<LocalTensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(make(setting, own));
    // Each rank begins with another group.
    for (const int step : {0, 1}) {
      if (step == 1) tensors.push_back(make(setting, own));
      const ProcessGroup& group = (rank_ + step) % 2 == 0 ? group_ : other;
      works.push_back(group.all_reduce(tensors.back(), setting.op, {.async = true}));
    }
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    finish(works[i], "all_reduce in two groups at once", setting);
    expect(tensors[i], reduced(setting.dtype, setting.op, size_, setting.count),
           "all_reduce in two groups at once", setting);
  }
}

void RankCases::threads_with_groups_of_their_own() {
  std::vector<int> all(index(size_));
  std::iota(all.begin(), all.end(), 0);
  const ProcessGroup groups[] = {group_.split({all}, "a"), group_.split({all}, "b")};
  std::vector<std::thread> threads;
  for (const ProcessGroup& group : groups)
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < 20; ++i) {
          reduce_in(group, 1 + 400 * (i % 7));
          group.barrier();
        }
      } catch (const base::Error& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void RankCases::is_refused(const Setting& setting, OpKind kind) {
  const LocalTensor tensor = blank(setting, setting.count);
  try {
    if (kind == OpKind::all_reduce) group_.all_reduce(tensor, setting.op);
    if (kind == OpKind::reduce) group_.reduce(tensor, 0, setting.op);
    if (kind == OpKind::reduce_scatter)
      group_.reduce_scatter(tensor, std::vector<LocalTensor>(index(size_), tensor), setting.op);
  } catch (const base::Error& error) {
    // A peer's refusal may come first.
    if (error.code() == base::ErrorCode::kUnavailable ||
        error.code() == base::ErrorCode::kPeerFailed)
      return;
    throw;
  }
  report(collectives::op_kind_name(kind), setting, "is not refused");
}

}  // namespace dtrun::conformance
