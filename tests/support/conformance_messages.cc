// The cases of messages between two ranks.
#include <gtest/gtest.h>

#include "support/conformance_rank.h"

namespace dtrun::conformance {

using collectives::P2POp;
using collectives::Work;

void RankCases::ring(const Setting& setting) {
  const auto& [dtype, op, count, layout, mode] = setting;
  const int right = (rank_ + 1) % size_;
  const int left = (rank_ + size_ - 1) % size_;
  const LocalTensor incoming = blank(setting, count);
  const Work receive = group_.irecv(incoming, left);
  group_.send(make(setting, values_of(dtype, op, rank_, count)), right);
  finish(receive, "recv", setting);
  if (receive.source_rank() != left) report("recv", setting, "does not know its source");
  expect(incoming, values_of(dtype, op, left, count), "recv", setting);
}

void RankCases::batch(const Setting& setting) {
  const auto& [dtype, op, count, layout, mode] = setting;
  std::vector<P2POp> operations;
  std::vector<LocalTensor> incoming;
  std::vector<int> sources;
  const std::uint32_t tag = subject_.tags ? 3 : 0;
  // Sends first on even ranks, receives first on the others: the order must not matter.
  for (const int turn : {0, 1})
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      if ((rank_ + turn) % 2 == 0) {
        operations.push_back({P2POp::Kind::send,
                              make(setting, values_of(dtype, op, rank_, count, peer)), peer, tag});
        continue;
      }
      incoming.push_back(blank(setting, count));
      sources.push_back(peer);
      operations.push_back({P2POp::Kind::receive, incoming.back(), peer, tag});
    }
  const std::vector<Work> works = group_.batch_isend_irecv(operations);
  if (works.size() != operations.size()) report("batch", setting, "has not one Work each");
  for (const Work& work : works) finish(work, "batch", setting);
  for (std::size_t i = 0; i < incoming.size(); ++i)
    expect(incoming[i], values_of(dtype, op, sources[i], count, rank_), "batch", setting);
}

void RankCases::tags(const Setting& setting) {
  const auto& [dtype, op, count, layout, mode] = setting;
  const int right = (rank_ + 1) % size_;
  const int left = (rank_ + size_ - 1) % size_;
  std::vector<Work> sends;
  for (const int tag : {1, 2})
    sends.push_back(group_.isend(make(setting, values_of(dtype, op, rank_, count, tag)), right,
                                 static_cast<std::uint32_t>(tag)));
  for (const int tag : {2, 1}) {
    const LocalTensor incoming = blank(setting, count);
    if (group_.recv(incoming, left, static_cast<std::uint32_t>(tag)) != left)
      report("recv by tag", setting, "came from another rank");
    expect(incoming, values_of(dtype, op, left, count, tag), "recv by tag", setting);
  }
  for (const Work& send : sends) finish(send, "isend", setting);
}

void RankCases::any_source(const Setting& setting) {
  const auto& [dtype, op, count, layout, mode] = setting;
  if (rank_ != 0) {
    group_.send(make(setting, values_of(dtype, op, rank_, count)), 0, 7);
  } else {
    std::vector<bool> heard(static_cast<std::size_t>(size_));
    for (int i = 1; i < size_; ++i) {
      const LocalTensor incoming = blank(setting, count);
      const int from = group_.recv(incoming, -1, 7);
      if (from < 1 || from >= size_ || heard[static_cast<std::size_t>(from)])
        return report("recv from any rank", setting, "came from rank " + std::to_string(from));
      heard[static_cast<std::size_t>(from)] = true;
      expect(incoming, values_of(dtype, op, from, count), "recv from any rank", setting);
    }
  }
  // The next case's messages must not be taken for these.
  group_.barrier();
}

}  // namespace dtrun::conformance
