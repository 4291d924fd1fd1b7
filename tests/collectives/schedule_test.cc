// Runs all ranks' schedules in one loop, without I/O: bytes are single numbers, combining is
// addition. Checks that every message has one sender and one receiver that agree on its size, that
// nothing is read before it is written, that nothing is written while it is sent, and that the
// results are right.
#include "schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "round_schedule.h"

namespace dtrun::collectives {
namespace {

using Memory = std::vector<std::vector<int>>;

struct Simulated {
  CollectiveShape shape;
  Memory inputs;
  Memory outputs;
  std::vector<int> scratch;
  Schedule schedule;
  std::size_t step = 0;
  bool sent = false;
  std::vector<std::vector<int>> in_flight;  ///< what the step's sends read
  std::set<int> heard;                      ///< ranks, from themselves or from others

  bool is_done() const { return step == schedule.steps.size(); }

  std::vector<int> read(const Slice& slice) { return {begin(slice), begin(slice) + length(slice)}; }
  void write(const Slice& slice, const std::vector<int>& values) {
    std::copy(values.begin(), values.end(), begin(slice));
  }
  static std::ptrdiff_t length(const Slice& slice) {
    return static_cast<std::ptrdiff_t>(slice.bytes);
  }
  std::vector<int>::iterator begin(const Slice& slice) {
    static std::vector<int> nothing;
    if (slice.bytes == 0) return nothing.begin();
    std::vector<int>& block = slice.region == Region::scratch ? scratch
                              : slice.region == Region::input
                                  ? inputs.at(static_cast<std::size_t>(slice.index))
                                  : outputs.at(static_cast<std::size_t>(slice.index));
    EXPECT_LE(slice.offset + slice.bytes, block.size());
    return block.begin() + static_cast<std::ptrdiff_t>(slice.offset);
  }
};

class Simulator {
 public:
  /// @param machines where not given, the way is the one that the algorithm chooses for ranks that
  /// have a machine each
  explicit Simulator(std::vector<Simulated> ranks, MachineLists machines = {},
                     Way way_by_machines = Way::machines, std::size_t transfer_bytes = 100)
      : ranks_(std::move(ranks)), machines_(std::move(machines)) {
    const bool chooses = machines_.empty();
    for (int rank = 0; chooses && rank < static_cast<int>(ranks_.size()); ++rank)
      machines_.push_back({rank});
    for (Simulated& rank : ranks_) {
      for (const std::vector<int>& input : rank.inputs)
        rank.shape.input_counts.push_back(static_cast<std::int64_t>(input.size()));
      for (const std::vector<int>& output : rank.outputs)
        rank.shape.output_counts.push_back(static_cast<std::int64_t>(output.size()));
      const std::int64_t count = rank.inputs.empty() ? 0 : rank.shape.input_counts.front();
      rank.shape.way =
          choose_algorithm({rank.shape.kind, static_cast<std::size_t>(count), count, 1,
                            GroupPlace{rank.shape.size, rank.shape.size, Sharing::not_all},
                            Crowding::alone})
              .way;
      rank.shape.machines = &machines_;
      if (!chooses) {
        rank.shape.way = way_by_machines;
        rank.shape.transfer_bytes = transfer_bytes;
      }
      rank.schedule = make_schedule(rank.shape);
      rank.scratch.assign(rank.schedule.scratch_bytes, -1000000);
    }
  }

  std::vector<Simulated> run() {
    move_all(-1);
    for (const Simulated& rank : ranks_) EXPECT_TRUE(rank.is_done());
    for (const auto& [edge, messages] : network_) EXPECT_TRUE(messages.empty());
    return std::move(ranks_);
  }
  /// That rank does nothing. @return how far the others come
  std::vector<Simulated> run_without(int absent) {
    move_all(absent);
    return std::move(ranks_);
  }

 private:
  struct Message {
    std::vector<int> values;
    std::set<int> heard;
  };

  void move_all(int absent) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
        if (rank != absent) moved |= step(static_cast<std::size_t>(rank));
    }
  }
  bool step(std::size_t number) {
    Simulated& rank = ranks_[number];
    if (rank.is_done()) return false;
    const Step& now = rank.schedule.steps[rank.step];
    const int self = static_cast<int>(number);
    rank.heard.insert(self);
    if (!rank.sent)
      for (const Transfer& send : now.sends) {
        rank.in_flight.push_back(rank.read(send.slice));
        network_[{self, send.peer}].push_back({rank.in_flight.back(), rank.heard});
      }
    if (!rank.sent)
      for (const LocalWork& local : now.beside)
        rank.write(local.destination, rank.read(local.sources.front()));
    const bool sent_now = !rank.sent;
    rank.sent = true;
    std::map<int, std::size_t> awaited;
    for (const Transfer& receive : now.receives) ++awaited[receive.peer];
    for (const auto& [peer, messages] : awaited)
      if (network_[{peer, self}].size() < messages) return sent_now;
    for (const Transfer& receive : now.receives) {
      auto& messages = network_[{receive.peer, self}];
      EXPECT_EQ(messages.front().values.size(), receive.slice.bytes);
      rank.write(receive.slice, messages.front().values);
      rank.heard.merge(messages.front().heard);
      messages.pop_front();
    }
    for (std::size_t i = 0; i < now.sends.size(); ++i)
      EXPECT_EQ(rank.read(now.sends[i].slice), rank.in_flight[i]);
    rank.in_flight.clear();
    for (const LocalWork& local : now.local) {
      std::vector<int> result = rank.read(local.sources.front());
      for (std::size_t i = 1; i < local.sources.size(); ++i) {
        const std::vector<int> more = rank.read(local.sources[i]);
        for (std::size_t k = 0; k < result.size(); ++k) result[k] += more.at(k);
      }
      rank.write(local.destination, result);
    }
    rank.sent = false;
    ++rank.step;
    return true;
  }

  std::vector<Simulated> ranks_;
  MachineLists machines_;
  std::map<std::pair<int, int>, std::deque<Message>> network_;
};

/// Element i of what rank `from` has for rank `to`.
int value(int from, int to, std::size_t i) {
  return 1000 * from + 100 * to + static_cast<int>(i % 97);
}
std::vector<int> block(int from, int to, std::size_t count) {
  std::vector<int> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(from, to, i);
  return values;
}
std::vector<int> sum_over_ranks(int size, int to, std::size_t count) {
  std::vector<int> total(count, 0);
  for (int rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < count; ++i) total[i] += value(rank, to, i);
  return total;
}
/// Uneven, with empty ones.
std::size_t count_of(int rank) {
  return static_cast<std::size_t>((rank * 7) % 5);
}

std::vector<Simulated> ranks_of(int size, OpKind kind, int root) {
  std::vector<Simulated> ranks(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    CollectiveShape& shape = ranks[static_cast<std::size_t>(rank)].shape;
    shape.kind = kind;
    shape.rank = rank;
    shape.size = size;
    shape.root = root;
  }
  return ranks;
}

MachineLists each_alone(int ranks) {
  MachineLists lists;
  for (int rank = 0; rank < ranks; ++rank) lists.push_back({rank});
  return lists;
}

class ScheduleTest : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  int last() const { return size() - 1; }
};

TEST_P(ScheduleTest, BroadcastGivesEverybodyTheRootsElements) {
  std::vector<Simulated> ranks = ranks_of(size(), OpKind::broadcast, last());
  for (Simulated& rank : ranks) {
    (rank.shape.rank == last() ? rank.inputs : rank.outputs) = {block(rank.shape.rank, 0, 11)};
  }
  for (const Simulated& rank : Simulator(ranks).run()) {
    for (const std::vector<int>& output : rank.outputs) EXPECT_EQ(output, block(last(), 0, 11));
  }
}

TEST_P(ScheduleTest, AllReduceSumsAtEverySize) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, kDefaultLimits.whole_reduce_bytes,
        kDefaultLimits.whole_reduce_bytes + 1, 2 * kDefaultLimits.whole_reduce_bytes + 13}) {
    std::vector<Simulated> ranks = ranks_of(size(), OpKind::all_reduce, -1);
    for (Simulated& rank : ranks) {
      rank.inputs = {block(rank.shape.rank, 0, count)};
      rank.outputs = {std::vector<int>(count)};
    }
    for (const Simulated& rank : Simulator(ranks).run()) {
      EXPECT_EQ(rank.inputs[0], block(rank.shape.rank, 0, count));
      EXPECT_EQ(rank.outputs[0], sum_over_ranks(size(), 0, count)) << count;
    }
  }
}

TEST_P(ScheduleTest, ReduceWritesAtTheRootAndNowhereElse) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{7}, kDefaultLimits.whole_reduce_bytes + 19}) {
    std::vector<Simulated> ranks = ranks_of(size(), OpKind::reduce, last());
    for (Simulated& rank : ranks) {
      rank.inputs = {block(rank.shape.rank, 0, count)};
      rank.outputs = {std::vector<int>(rank.shape.rank == last() ? count : 0)};
    }
    for (const Simulated& rank : Simulator(ranks).run()) {
      EXPECT_EQ(rank.inputs[0], block(rank.shape.rank, 0, count));
      if (rank.shape.rank == last()) {
        EXPECT_EQ(rank.outputs[0], sum_over_ranks(size(), 0, count));
      }
    }
  }
}

TEST_P(ScheduleTest, AllGatherAndGatherCollectUnevenPieces) {
  for (const OpKind kind : {OpKind::all_gather, OpKind::gather}) {
    const int root = kind == OpKind::gather ? last() : -1;
    std::vector<Simulated> ranks = ranks_of(size(), kind, root);
    for (Simulated& rank : ranks) {
      rank.inputs = {block(rank.shape.rank, 0, count_of(rank.shape.rank))};
      if (root < 0 || rank.shape.rank == root)
        for (int from = 0; from < size(); ++from) rank.outputs.emplace_back(count_of(from));
    }
    for (const Simulated& rank : Simulator(ranks).run())
      for (std::size_t from = 0; from < rank.outputs.size(); ++from)
        EXPECT_EQ(rank.outputs[from], block(static_cast<int>(from), 0, rank.outputs[from].size()));
  }
}

TEST_P(ScheduleTest, ScatterGivesEachRankItsPiece) {
  std::vector<Simulated> ranks = ranks_of(size(), OpKind::scatter, last());
  for (Simulated& rank : ranks) {
    rank.outputs = {std::vector<int>(count_of(rank.shape.rank))};
    if (rank.shape.rank == last())
      for (int to = 0; to < size(); ++to) rank.inputs.push_back(block(last(), to, count_of(to)));
  }
  for (const Simulated& rank : Simulator(ranks).run())
    EXPECT_EQ(rank.outputs[0], block(last(), rank.shape.rank, count_of(rank.shape.rank)));
}

TEST_P(ScheduleTest, ReduceScatterSumsUnevenPieces) {
  std::vector<Simulated> ranks = ranks_of(size(), OpKind::reduce_scatter, -1);
  for (Simulated& rank : ranks) {
    rank.outputs = {std::vector<int>(count_of(rank.shape.rank))};
    for (int to = 0; to < size(); ++to)
      rank.inputs.push_back(block(rank.shape.rank, to, count_of(to)));
  }
  for (const Simulated& rank : Simulator(ranks).run())
    EXPECT_EQ(rank.outputs[0], sum_over_ranks(size(), rank.shape.rank, count_of(rank.shape.rank)));
}

// Pieces are shorter than parts, which differ, and some of which are empty.
TEST_P(ScheduleTest, LongPartsOfAReduceScatterComeInPieces) {
  const auto count = [](int rank) { return 3000 * count_of(rank); };
  std::vector<Simulated> ranks = ranks_of(size(), OpKind::reduce_scatter, -1);
  for (Simulated& rank : ranks) {
    rank.outputs = {std::vector<int>(count(rank.shape.rank))};
    for (int to = 0; to < size(); ++to)
      rank.inputs.push_back(block(rank.shape.rank, to, count(to)));
  }
  const std::vector<Simulated> done = Simulator(ranks, each_alone(size()), Way::chunks, 4096).run();
  for (const Simulated& rank : done) {
    EXPECT_EQ(rank.outputs[0], sum_over_ranks(size(), rank.shape.rank, count(rank.shape.rank)));
    EXPECT_LE(rank.schedule.scratch_bytes, static_cast<std::size_t>(size() - 1) * 4096);
  }
}

TEST_P(ScheduleTest, AllToAllExchangesEveryPair) {
  std::vector<Simulated> ranks = ranks_of(size(), OpKind::all_to_all, -1);
  for (Simulated& rank : ranks)
    for (int peer = 0; peer < size(); ++peer) {
      rank.inputs.push_back(block(rank.shape.rank, peer, count_of(rank.shape.rank + 2 * peer)));
      rank.outputs.emplace_back(count_of(peer + 2 * rank.shape.rank));
    }
  for (const Simulated& rank : Simulator(ranks).run())
    for (int from = 0; from < size(); ++from)
      EXPECT_EQ(rank.outputs[static_cast<std::size_t>(from)],
                block(from, rank.shape.rank, count_of(from + 2 * rank.shape.rank)));
}

TEST_P(ScheduleTest, EmptyPartsOfAKnownPlanStay) {
  std::vector<Simulated> ranks = ranks_of(size(), OpKind::all_to_all, -1);
  const auto count = [](int from, int to) { return (from + to) % 3 == 1 ? count_of(from) : 0; };
  for (Simulated& rank : ranks) {
    rank.shape.empty_parts = EmptyParts::stay;
    for (int peer = 0; peer < size(); ++peer) {
      rank.inputs.push_back(block(rank.shape.rank, peer, count(rank.shape.rank, peer)));
      rank.outputs.emplace_back(count(peer, rank.shape.rank));
    }
  }
  for (const Simulated& rank : Simulator(ranks).run()) {
    std::size_t sent = 0;
    for (int peer = 0; peer < size(); ++peer) {
      sent += peer != rank.shape.rank && count(rank.shape.rank, peer) != 0 ? 1 : 0;
      EXPECT_EQ(rank.outputs[static_cast<std::size_t>(peer)],
                block(peer, rank.shape.rank, count(peer, rank.shape.rank)));
    }
    EXPECT_EQ(rank.schedule.steps[0].sends.size(), sent);
  }
}

TEST_P(ScheduleTest, InABarrierEveryRankHearsFromEveryOther) {
  const std::vector<Simulated> ranks = Simulator(ranks_of(size(), OpKind::barrier, -1)).run();
  for (const Simulated& rank : ranks)
    EXPECT_EQ(rank.heard.size(), static_cast<std::size_t>(size()));
}

INSTANTIATE_TEST_SUITE_P(Worlds, ScheduleTest, testing::Values(1, 2, 3, 4, 5, 8, 17));

// The ranks of some machines.
class OnMachinesTest : public testing::TestWithParam<MachineLists> {
 protected:
  const MachineLists& machines() const { return GetParam(); }
  int size() const {
    std::size_t ranks = 0;
    for (const std::vector<int>& members : machines()) ranks += members.size();
    return static_cast<int>(ranks);
  }
};

// By machines: of equal and unequal size, of neighbouring ranks or not, each rank alone. A rank
// sends 100 bytes to another one in a step, so the buffers have several pieces.
class HierarchicalScheduleTest : public OnMachinesTest {
 protected:
  int machine_of(int rank) const {
    int machine = 0;
    for (const std::vector<int>& members : machines()) {
      if (std::ranges::find(members, rank) != members.end()) break;
      ++machine;
    }
    return machine;
  }
  std::vector<std::size_t> counts() const {
    const std::size_t piece = 100 * static_cast<std::size_t>(size());
    return {0, 1, 5, 83, piece, piece + 1, 7 * piece + 45};
  }
  /// Pieces, and the shares of ranks in them, have whole elements.
  std::size_t rounding() const { return 10 * static_cast<std::size_t>(size() * size()); }
  /// What all ranks of a machine send to the other machines; of the machine that sends the most.
  std::size_t most_between(const std::vector<Simulated>& ranks) const {
    std::map<int, std::size_t> bytes;
    for (const Simulated& rank : ranks)
      for (const Step& step : rank.schedule.steps)
        for (const Transfer& send : step.sends)
          if (machine_of(send.peer) != machine_of(rank.shape.rank))
            bytes[machine_of(rank.shape.rank)] += send.slice.bytes;
    std::size_t most = 0;
    for (const auto& [machine, sent] : bytes) most = std::max(most, sent);
    return most;
  }
};

TEST_P(HierarchicalScheduleTest, AllReduceSumsInPlaceAndNot) {
  for (const std::size_t count : counts()) {
    std::vector<Simulated> ranks = ranks_of(size(), OpKind::all_reduce, -1);
    for (Simulated& rank : ranks) {
      rank.inputs = {block(rank.shape.rank, 0, count)};
      rank.outputs = {std::vector<int>(count)};
    }
    const std::vector<int> sum = sum_over_ranks(size(), 0, count);
    const std::vector<Simulated> done = Simulator(ranks, machines()).run();
    for (const Simulated& rank : done) {
      EXPECT_EQ(rank.inputs[0], block(rank.shape.rank, 0, count));
      EXPECT_EQ(rank.outputs[0], sum) << count;
    }
    // Two thirds of the vector for three machines, and as much of the sum; rounding aside.
    const std::size_t m = machines().size();
    EXPECT_LE(most_between(done), 2 * count * (m - 1) / m + rounding());
  }
}

TEST_P(HierarchicalScheduleTest, ReduceWritesAtTheRootAndNowhereElse) {
  for (const int root : {0, size() - 1})
    for (const std::size_t count : counts()) {
      std::vector<Simulated> ranks = ranks_of(size(), OpKind::reduce, root);
      for (Simulated& rank : ranks) {
        rank.inputs = {block(rank.shape.rank, 0, count)};
        rank.outputs = {std::vector<int>(rank.shape.rank == root ? count : 0)};
      }
      for (const Simulated& rank : Simulator(ranks, machines()).run()) {
        EXPECT_EQ(rank.inputs[0], block(rank.shape.rank, 0, count));
        if (rank.shape.rank == root) {
          EXPECT_EQ(rank.outputs[0], sum_over_ranks(size(), 0, count));
        }
      }
    }
}

TEST_P(HierarchicalScheduleTest, AllGatherCollectsUnevenPartsAndSendsEachOncePerMachine) {
  for (const std::size_t unit : {std::size_t{1}, std::size_t{77}}) {
    std::vector<Simulated> ranks = ranks_of(size(), OpKind::all_gather, -1);
    std::size_t total = 0;
    for (Simulated& rank : ranks) {
      rank.inputs = {block(rank.shape.rank, 0, unit * count_of(rank.shape.rank))};
      total += rank.inputs[0].size();
      for (int from = 0; from < size(); ++from) rank.outputs.emplace_back(unit * count_of(from));
    }
    const std::vector<Simulated> done = Simulator(ranks, machines()).run();
    for (const Simulated& rank : done)
      for (std::size_t from = 0; from < rank.outputs.size(); ++from)
        EXPECT_EQ(rank.outputs[from], block(static_cast<int>(from), 0, rank.outputs[from].size()));
    EXPECT_LE(most_between(done), total * (machines().size() - 1));
  }
}

TEST_P(HierarchicalScheduleTest, ReduceScatterSumsUnevenParts) {
  for (const std::size_t unit : {std::size_t{1}, std::size_t{77}}) {
    const auto part = [&](int to) { return unit * count_of(to); };
    std::vector<Simulated> ranks = ranks_of(size(), OpKind::reduce_scatter, -1);
    std::size_t total = 0;
    for (int to = 0; to < size(); ++to) total += part(to);
    for (Simulated& rank : ranks) {
      rank.outputs = {std::vector<int>(part(rank.shape.rank))};
      for (int to = 0; to < size(); ++to)
        rank.inputs.push_back(block(rank.shape.rank, to, part(to)));
    }
    const std::vector<Simulated> done = Simulator(ranks, machines()).run();
    for (const Simulated& rank : done)
      EXPECT_EQ(rank.outputs[0], sum_over_ranks(size(), rank.shape.rank, part(rank.shape.rank)));
    EXPECT_LE(most_between(done), total);
  }
}

TEST_P(HierarchicalScheduleTest, BroadcastGivesEverybodyTheRootsElements) {
  for (const int root : {0, size() - 1})
    for (const std::size_t count : counts()) {
      std::vector<Simulated> ranks = ranks_of(size(), OpKind::broadcast, root);
      for (Simulated& rank : ranks)
        (rank.shape.rank == root ? rank.inputs : rank.outputs) = {block(rank.shape.rank, 0, count)};
      const std::vector<Simulated> done = Simulator(ranks, machines()).run();
      for (const Simulated& rank : done)
        for (const std::vector<int>& output : rank.outputs)
          EXPECT_EQ(output, block(root, 0, count)) << count;
      EXPECT_LE(most_between(done), count + rounding());
    }
}

TEST(HierarchicalScheduleMemoryTest, ScratchIsNoMoreThanAFewBuffers) {
  const std::int64_t count = 16 << 20;
  const auto scratch = [&](OpKind kind, int machines, int ranks_of_each, Way way) {
    MachineLists lists(static_cast<std::size_t>(machines));
    for (int rank = 0; rank < machines * ranks_of_each; ++rank)
      lists[static_cast<std::size_t>(rank / ranks_of_each)].push_back(rank);
    CollectiveShape shape;
    shape.kind = kind;
    shape.way = way;
    shape.machines = &lists;
    shape.size = machines * ranks_of_each;
    shape.root = 0;
    shape.rank = 1;
    shape.item_bytes = shape.part_bytes = 4;
    if (kind == OpKind::reduce_scatter) {
      shape.input_counts.assign(static_cast<std::size_t>(shape.size), count / shape.size);
      shape.output_counts = {count / shape.size};
    } else {
      shape.input_counts = shape.output_counts = {count};
    }
    return make_schedule(shape).scratch_bytes;
  };
  for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter})
    for (const auto& [machines, ranks] : {std::pair{256, 1}, {128, 2}, {32, 8}, {2, 64}})
      EXPECT_LE(scratch(kind, machines, ranks, Way::machines),
                3 * 4 * static_cast<std::size_t>(count))
          << op_kind_name(kind) << " on " << machines << " machines of " << ranks;
  // In chunks a piece of each other rank, however long the buffers are.
  for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter})
    for (const int ranks : {2, 12, 64})
      EXPECT_LE(scratch(kind, 1, ranks, Way::chunks),
                static_cast<std::size_t>(ranks) * kTransferBytes)
          << op_kind_name(kind) << " of " << ranks;
}

INSTANTIATE_TEST_SUITE_P(Machines, HierarchicalScheduleTest,
                         testing::Values(MachineLists{{0, 1}, {2, 3}}, MachineLists{{0, 1, 2}, {3}},
                                         MachineLists{{0}, {1, 2, 3}},
                                         MachineLists{{0, 2, 4}, {1, 3}},
                                         MachineLists{{0}, {1}, {2}},
                                         MachineLists{{0, 1}, {2, 3, 4}, {5}},
                                         MachineLists{{0, 1, 2, 3}, {4, 5, 6, 7}},
                                         MachineLists{{0, 3}, {1, 4}, {2, 5}, {6, 7, 8}}));

// By rounds: machines of one rank, of some, of unequal numbers, of ranks that are no neighbours.
class RoundScheduleTest : public OnMachinesTest {
 protected:
  std::vector<Simulated> run(const std::vector<Simulated>& ranks) const {
    return Simulator(ranks, machines(), Way::rounds).run();
  }
  /// With the buffers of such a collective.
  std::vector<Simulated> ranks_with_buffers(OpKind kind, int root) const {
    std::vector<Simulated> ranks = ranks_of(size(), kind, root);
    for (Simulated& rank : ranks) {
      if (kind == OpKind::barrier) continue;
      const bool gives = kind != OpKind::broadcast || rank.shape.rank == root;
      if (gives) rank.inputs = {block(rank.shape.rank, 0, 3)};
      if (kind == OpKind::all_gather)
        rank.outputs.assign(static_cast<std::size_t>(size()), std::vector<int>(3));
      else if (kind == OpKind::all_reduce || !gives || rank.shape.rank == root)
        rank.outputs = {std::vector<int>(3)};
    }
    return ranks;
  }
};

TEST_P(RoundScheduleTest, ReductionsSumInRankOrder) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}}) {
    for (const int root : {-1, 0, size() / 2, size() - 1}) {
      std::vector<Simulated> ranks =
          ranks_of(size(), root < 0 ? OpKind::all_reduce : OpKind::reduce, root);
      const auto gets = [root](const Simulated& rank) {
        return root < 0 || rank.shape.rank == root;
      };
      for (Simulated& rank : ranks) {
        rank.inputs = {block(rank.shape.rank, 0, count)};
        rank.outputs = {std::vector<int>(gets(rank) ? count : 0)};
      }
      for (const Simulated& rank : run(ranks)) {
        EXPECT_EQ(rank.inputs[0], block(rank.shape.rank, 0, count));
        if (!gets(rank)) continue;
        EXPECT_EQ(rank.outputs[0], sum_over_ranks(size(), 0, count));
        EXPECT_EQ(rank.heard.size(), static_cast<std::size_t>(size()));
        if (count == 0) continue;
        // Of the rank's own elements and the others', one source for each rank.
        const LocalWork& combine = rank.schedule.steps.back().local.back();
        ASSERT_EQ(combine.sources.size(), static_cast<std::size_t>(size()));
        for (int other = 0; other < size(); ++other) {
          const Slice& source = combine.sources[static_cast<std::size_t>(other)];
          const std::vector<int>& memory =
              source.region == Region::scratch ? rank.scratch : rank.inputs[0];
          EXPECT_EQ(memory.at(source.offset), value(other, 0, 0));
        }
      }
    }
  }
}

TEST_P(RoundScheduleTest, AllGatherCollectsUnevenPieces) {
  for (const OpKind kind : {OpKind::all_gather, OpKind::split}) {
    std::vector<Simulated> ranks = ranks_of(size(), kind, -1);
    for (Simulated& rank : ranks) {
      rank.inputs = {block(rank.shape.rank, 0, count_of(rank.shape.rank))};
      for (int from = 0; from < size(); ++from) rank.outputs.emplace_back(count_of(from));
    }
    for (const Simulated& rank : run(ranks))
      for (std::size_t from = 0; from < rank.outputs.size(); ++from)
        EXPECT_EQ(rank.outputs[from], block(static_cast<int>(from), 0, rank.outputs[from].size()));
  }
}

TEST_P(RoundScheduleTest, BroadcastGivesEverybodyTheRootsElements) {
  for (const int root : {0, size() / 2, size() - 1})
    for (const std::size_t count : {std::size_t{0}, std::size_t{11}}) {
      std::vector<Simulated> ranks = ranks_of(size(), OpKind::broadcast, root);
      for (Simulated& rank : ranks)
        (rank.shape.rank == root ? rank.inputs : rank.outputs) = {block(rank.shape.rank, 0, count)};
      for (const Simulated& rank : run(ranks)) {
        EXPECT_TRUE(rank.heard.contains(root));
        for (const std::vector<int>& output : rank.outputs)
          EXPECT_EQ(output, block(root, 0, count));
      }
    }
}

TEST_P(RoundScheduleTest, InABarrierEveryRankHearsFromEveryOther) {
  for (const Simulated& rank : run(ranks_of(size(), OpKind::barrier, -1)))
    EXPECT_EQ(rank.heard.size(), static_cast<std::size_t>(size()));
}

TEST_P(RoundScheduleTest, MachinesExchangeAFewMessagesInFewRounds) {
  std::size_t rounds = 0;
  for (std::size_t reached = 1; reached < machines().size(); reached *= 4) ++rounds;
  const auto is_neighbour = [&](int rank, int peer) {
    return std::ranges::any_of(machines(), [&](const std::vector<int>& members) {
      return std::ranges::find(members, rank) != members.end() &&
             std::ranges::find(members, peer) != members.end();
    });
  };
  for (const OpKind kind : {OpKind::barrier, OpKind::all_reduce, OpKind::all_gather, OpKind::reduce,
                            OpKind::broadcast}) {
    const bool to_all = kind != OpKind::reduce && kind != OpKind::broadcast;
    std::size_t between = 0;
    for (const Simulated& rank : run(ranks_with_buffers(kind, to_all ? -1 : size() - 1))) {
      std::size_t received = 0, steps = 0;
      for (const Step& step : rank.schedule.steps) {
        const auto is_remote = [&](const Transfer& transfer) {
          return !is_neighbour(rank.shape.rank, transfer.peer);
        };
        received += static_cast<std::size_t>(std::ranges::count_if(step.receives, is_remote));
        steps += std::ranges::any_of(step.receives, is_remote) ? 1 : 0;
      }
      EXPECT_LE(received, 3 * rounds) << op_kind_name(kind);
      EXPECT_LE(steps, rounds) << op_kind_name(kind);
      between += received;
    }
    // One message for each machine but the root's.
    if (!to_all) {
      EXPECT_EQ(between, machines().size() - 1) << op_kind_name(kind);
    }
  }
}

TEST_P(RoundScheduleTest, WhoeverMissesARankNeedsIt) {
  for (const OpKind kind : {OpKind::barrier, OpKind::all_reduce, OpKind::reduce, OpKind::broadcast})
    for (const int root : {0, size() / 2})
      for (int absent = 0; absent < size(); absent += 1 + size() / 5) {
        const auto ranks =
            Simulator(ranks_with_buffers(kind, root), machines(), Way::rounds).run_without(absent);
        for (const Simulated& rank : ranks) {
          if (rank.shape.rank == absent) continue;
          const std::vector<int> needed = ranks_needed(kind, machines(), rank.shape.rank, root);
          EXPECT_EQ(std::ranges::find(needed, absent) == needed.end(), rank.is_done())
              << op_kind_name(kind) << " to " << root << ": rank " << rank.shape.rank << " without "
              << absent;
        }
      }
}

MachineLists single(int ranks) {
  MachineLists lists;
  for (int rank = 0; rank < ranks; ++rank) lists.push_back({rank});
  return lists;
}

INSTANTIATE_TEST_SUITE_P(
    Machines, RoundScheduleTest,
    testing::Values(single(2), single(3), single(4), single(5), single(8), single(13), single(16),
                    single(17), single(40), single(70), MachineLists{{0, 1}, {2, 3}},
                    MachineLists{{0, 1, 2}, {3}}, MachineLists{{0}, {1, 2, 3}},
                    MachineLists{{0, 2, 4}, {1, 3}}, MachineLists{{0, 1}, {2, 3, 4}, {5}},
                    MachineLists{{0, 1, 2, 3}, {4, 5, 6, 7}},
                    MachineLists{{0, 3}, {1, 4}, {2, 5}, {6, 7, 8}},
                    MachineLists{{0, 1}, {2}, {3, 4, 5}, {6}, {7, 8}, {9, 10}, {11}}));

}  // namespace
}  // namespace dtrun::collectives
