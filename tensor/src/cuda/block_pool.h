// BlockPool: which parts of one device's memory are in use. Pure bookkeeping of addresses; no CUDA,
// no lock. The design is that of PyTorch's CUDACachingAllocator, in small: memory is taken from the
// driver in segments, segments are cut into blocks, a free block is kept for the stream that it was
// made for, small and large blocks lie in different segments, and free neighbours grow together.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {

/// Every size is a multiple of this.
inline constexpr std::size_t kBlockUnit = 512;

/// What is asked of the driver where no free block fits.
std::size_t segment_bytes(std::size_t bytes);

struct Segment {
  void* data;
  std::size_t bytes;
};

struct Block {
  enum class State { free, in_use, waiting };
  char* data;
  std::size_t bytes;
  StreamHandle stream;
  bool is_small;
  State state;
  Block* previous;  ///< its neighbours in the segment
  Block* next;
  std::vector<Stream> other_streams;  ///< that use it, too
  std::size_t pending_events;         ///< while waiting
};

class BlockPool {
 public:
  BlockPool() = default;
  ~BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// The smallest free block of the stream that fits, cut down to size; nullptr where there is
  /// none.
  Block* take(std::size_t bytes, StreamHandle stream);
  /// New memory from the driver, free. @param bytes what was asked for in take()
  void add_segment(Segment segment, std::size_t bytes, StreamHandle stream);
  /// The block with that address. @return nullptr where it is not ours
  Block* find(void* data) const;
  /// The block waits for events, and is not free before give_back().
  void set_waiting(Block* block);
  /// Makes a block free, and one with its free neighbours.
  void give_back(Block* block);
  /// Takes out the segments of which no part is in use. The caller returns them to the driver.
  std::vector<Segment> remove_free_segments();

  /// Bytes in use or waiting, taken from the driver, and the most that they ever were.
  const MemoryStats& stats() const { return stats_; }
  /// Every block in order of addresses, for tests.
  std::vector<const Block*> blocks() const;

 private:
  struct Fit {
    bool operator()(const Block* a, const Block* b) const;
  };
  void split(Block* block, std::size_t bytes);
  void absorb_next(Block* block);

  std::map<const char*, std::unique_ptr<Block>> blocks_;  ///< by address
  std::set<Block*, Fit> free_;
  MemoryStats stats_{};
};

}  // namespace dtrun::tensors::cuda
