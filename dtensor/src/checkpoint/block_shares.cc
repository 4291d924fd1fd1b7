#include "checkpoint/block_shares.h"

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/block_walk.h"
#include "dtrun/dtensor/checkpoint/plan.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {
namespace {

/// Where a rank begins to need blocks (+1), or needs them no more.
using Changes = std::map<std::uint64_t, std::vector<std::pair<int, int>>>;

/// Adds the blocks of a chunk that have some of a box.
void add_blocks(int rank, ByteRuns runs, Changes& changes) {
  std::uint64_t from = 0, to = 0;
  const auto end = [&] {
    if (from == to) return;
    changes[from].emplace_back(rank, 1);
    changes[to].emplace_back(rank, -1);
  };
  while (const std::optional<ByteRun> run = runs.next()) {
    const std::uint64_t first = run->from / kBlockBytes;
    const std::uint64_t behind = blocks_of(run->from + run->bytes);
    if (first > to || from == to) {
      end();
      from = first;
    }
    to = behind;
    // Runs within the last block change nothing.
    runs = runs.within(to * kBlockBytes, ~std::uint64_t{0});
  }
  end();
}

/// Adds what a rank would read of each block of a chunk without checksums.
void add_extents(ByteRuns runs, std::vector<std::uint64_t>& read) {
  ExtentWalk extents(std::move(runs));
  while (const std::optional<ExtentWalk::Extent> extent = extents.next())
    read[extent->from / kBlockBytes] += extent->bytes;
}

class Sharing {
 public:
  explicit Sharing(std::size_t ranks) : read_(ranks) {}

  /// @param apart what the ranks would read of each block by themselves; empty: each of them all
  void add(std::size_t tensor, std::size_t chunk, std::uint64_t bytes, const Changes& changes,
           const std::vector<std::uint64_t>& apart) {
    const auto is_worth = [&](std::uint64_t block) {
      return apart.empty() || apart[block] > std::min(kBlockBytes, bytes - block * kBlockBytes);
    };
    std::map<int, int> needs;  // how many of a rank's wishes need the blocks
    for (auto change = changes.begin(); change != changes.end(); ++change) {
      for (const auto& [rank, more] : change->second) {
        if ((needs[rank] += more) == 0) needs.erase(rank);
      }
      if (needs.size() < 2) continue;
      SharedPart part{tensor, chunk, 0, 0, 0, {}};
      for (const auto& [rank, wishes] : needs) part.wanters.push_back(rank);
      const std::uint64_t behind = std::next(change)->first;
      for (std::uint64_t first = change->first; first < behind;) {
        std::uint64_t end = first;
        while (end < behind && is_worth(end)) ++end;
        if (end > first) divide(part, first, end, bytes);
        first = std::max(end, first + 1);
      }
    }
  }
  std::vector<SharedPart> parts() && { return std::move(parts_); }

 private:
  /// To those who have the least to read so far.
  void divide(SharedPart part, std::uint64_t first, std::uint64_t behind, std::uint64_t bytes) {
    const std::uint64_t share = (behind - first + part.wanters.size() - 1) / part.wanters.size();
    const std::uint64_t most = std::min(kMostPartBytes, most_round_bytes(read_.size()));
    const std::uint64_t blocks = std::clamp<std::uint64_t>(share, 1, most / kBlockBytes);
    for (std::uint64_t block = first; block < behind; block += blocks) {
      part.begin = block * kBlockBytes;
      part.end = std::min(std::min(block + blocks, behind) * kBlockBytes, bytes);
      part.reader = *std::ranges::min_element(
          part.wanters, {}, [&](int rank) { return read_[static_cast<std::size_t>(rank)]; });
      read_[static_cast<std::size_t>(part.reader)] += part.end - part.begin;
      parts_.push_back(part);
    }
  }

  std::vector<std::uint64_t> read_;  ///< by rank
  std::vector<SharedPart> parts_;
};

}  // namespace

std::uint64_t most_round_bytes(std::uint64_t ranks) {
  return std::max(kBlockBytes, kMostBytesOfAll / std::max<std::uint64_t>(1, ranks));
}

std::vector<SharedPart> shared_parts(const Manifest& manifest,
                                     const std::vector<std::vector<Wish>>& wishes) {
  std::map<std::size_t, std::vector<std::pair<int, const Box*>>> by_tensor;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    for (const Wish& wish : wishes[rank])
      by_tensor[wish.tensor].emplace_back(static_cast<int>(rank), &wish.box);
  }
  Sharing sharing(wishes.size());
  for (const auto& [number, boxes] : by_tensor) {
    const SavedTensor& tensor = manifest.tensors[number];
    // In the order of the ranks.
    if (boxes.front().first == boxes.back().first) continue;
    for (std::size_t i = 0; i < tensor.chunks.size(); ++i) {
      const SavedChunk& chunk = tensor.chunks[i];
      const std::uint64_t bytes = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
      Changes changes;
      std::vector<std::uint64_t> apart(chunk.checksums.empty() ? blocks_of(bytes) : 0);
      for (const auto& [rank, box] : boxes) {
        const ByteRuns runs(chunk.box, *box, tensors::item_size(tensor.dtype));
        add_blocks(rank, runs, changes);
        if (!apart.empty()) add_extents(runs, apart);
      }
      sharing.add(number, i, bytes, changes, apart);
    }
  }
  std::vector<SharedPart> parts = std::move(sharing).parts();
  std::ranges::sort(parts, {}, [&](const SharedPart& part) {
    const SavedChunk& chunk = manifest.tensors[part.tensor].chunks[part.chunk];
    return std::pair(chunk.file, chunk.begin + part.begin);
  });
  return parts;
}

}  // namespace dtrun::dtensor::dcp
