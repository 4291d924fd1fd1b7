// Commons: the shared memory of one machine's ranks: one memfd, made by the rank that comes first
// and handed to the others over a socket. It begins with a cell for each rank of the world and the
// table of the world's group. Behind them lies every rank's heap; a peer maps a heap when it first
// needs it. Behind the heaps each rank has a span for tensors. A rank therefore starts with one
// connection and one mapping, however many ranks the machine has. A rank that shares memory with
// nobody has a commons of its own. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "doorbell.h"
#include "dtrun/base/shared_memory.h"
#include "group_table.h"
#include "rank_board.h"

namespace dtrun::collectives::cpu {

enum class CellState : std::uint32_t { empty, here, left };

/// What one rank shows to all. Only that rank writes it, except for the doorbell.
struct Cell {
  Doorbell doorbell;
  alignas(128) RankBoard board;
  std::atomic<CellState> state{CellState::empty};
  std::atomic<std::uint64_t> quota_cgroup{0};  ///< as CpuQuota::cgroup; 0: no quota
  std::atomic<double> quota_cpus{0};           ///< as CpuQuota::cpus
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::uint64_t> pid_namespace{0};  ///< where that is its number; 0: unknown
  std::atomic<std::uint64_t> word{0};           ///< of this process' memory: PeerMemory tries it
  std::atomic<std::uint64_t> word_address{0};
  std::atomic<std::int32_t> cpu{-1};    ///< where it ran when it yielded last; -1: not known
  std::atomic<std::int64_t> cpu_ns{0};  ///< when that was, by monotonic_ns()
  /// In a line of its own, at which waiting peers look: where it gives its core away just now, its
  /// CPU and 1; else 0. A hint: threads of one rank do not wait for each other to write it.
  alignas(128) std::atomic<std::uint32_t> yields_on{0};
};
static_assert(sizeof(Cell) == 512);

/// A part of the commons' file, mapped here.
class CommonsSpan {
 public:
  enum class Access { read, write };
  /// @throws Error kSystem
  CommonsSpan(int fd, std::size_t begin, std::size_t bytes, Access access = Access::write);
  ~CommonsSpan();
  CommonsSpan(const CommonsSpan&) = delete;
  CommonsSpan& operator=(const CommonsSpan&) = delete;

  std::byte* at(Offset offset) const { return data_ + offset; }

 private:
  std::byte* data_;
  const std::size_t bytes_;
};

class Commons {
 public:
  /// @param ranks of the world. @throws Error kSystem
  static Commons create(int ranks);
  /// Maps what another rank has made. @throws Error kSystem; kProtocol where another build made it
  static Commons open(base::UniqueFd fd, int ranks);

  int fd() const { return front_.fd(); }
  Cell& cell(int world_rank) const;
  /// Of the group of all the world's ranks. Memory for its posts is committed by commit_posts().
  GroupTable& root_table() const;
  /// That rank's own posts in it: a world over several machines has none. @throws Error kSystem
  void commit_posts(int world_rank) const;
  /// The CPUs on which any of the ranks may run, one bit each.
  static constexpr std::size_t kCpuWords = 16;
  std::atomic<std::uint64_t>* cpus() const;

  /// Address space of each heap. Only committed parts of it use memory.
  static constexpr std::size_t kHeapSpan = std::size_t{2} << 30;
  std::size_t heap_offset(int world_rank) const;
  /// Address space of each rank's tensors, behind all heaps.
  static constexpr std::size_t kTensorSpan = std::size_t{64} << 30;
  /// @throws Error kSystem where the process that made the commons may write no such large files
  std::size_t tensors_offset(int world_rank) const;
  /// Allocates memory for these bytes of the file. @throws Error kSystem
  void commit(std::size_t offset, std::size_t bytes) const { front_.commit(offset, bytes); }

 private:
  struct Header;
  explicit Commons(base::SharedMemory front) : front_(std::move(front)) {}
  Header& header() const;

  base::SharedMemory front_;  ///< all that lies before the heaps
};

}  // namespace dtrun::collectives::cpu
