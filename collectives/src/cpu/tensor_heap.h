// TensorHeap: memory for one rank's tensors that the ranks of its machine read where it lies: a
// span of the commons, behind the ranks' heaps. A block is real memory from allocate() to the end
// of its tensor, so that a lack of memory is an Error and never a SIGBUS; blocks of
// kMostKeptBytes together stay for the next tensors, because the kernel clears new memory.
// Offsets in the span, not addresses, go between ranks. Tensors hold it, so it may outlive its
// World. In a forked child it gives and takes nothing: the memory is the parent's. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "commons.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/tensor/host_allocator.h"
#include "fork_mark.h"

namespace dtrun::collectives::cpu {

class TensorHeap : public tensors::HostAllocator, public std::enable_shared_from_this<TensorHeap> {
 public:
  static constexpr std::size_t kMostKeptBytes = std::size_t{256} << 20;

  /// @throws Error kSystem
  TensorHeap(const Commons& commons, int world_rank);
  /// Gives all its memory back, whoever else still has the commons.
  ~TensorHeap() override;
  /// @throws Error kSystem when the machine or the span has no more memory; kUsage in a child
  tensors::StoragePointer allocate(std::size_t bytes) override;
  /// Of memory that lies in it; nullopt: it does not.
  std::optional<Offset> offset_of(const void* data) const;
  /// Of this process, for tensors that are gone.
  std::size_t kept_bytes() const;

 private:
  /// What no tensor uses: memory, or a hole whose memory has been given back.
  struct Gap {
    std::size_t bytes;
    bool is_memory;
  };
  using Gaps = std::map<Offset, Gap>;

  Offset take(std::size_t bytes);
  Gaps::iterator best_gap(std::size_t bytes);
  /// Of neighbours, memory and holes, that are large enough together, or behind which the unused
  /// end of the span lies.
  Gaps::iterator first_of_run(std::size_t bytes);
  /// The holes from that gap on, and the unused end: all up to there, or nothing of it.
  /// @throws Error kSystem
  void make_memory(Gaps::iterator first, Offset end);
  void grow(std::size_t bytes);
  bool give_back(Offset offset, std::size_t bytes) const noexcept;
  void release(Offset offset, std::size_t bytes) noexcept;
  void add_gap(Offset offset, Gap gap);

  const base::UniqueFd file_;  ///< the commons, which may be closed before the last tensor goes
  const std::size_t begin_;    ///< in the commons
  const CommonsSpan memory_;
  const ForkMark fork_mark_;
  mutable std::mutex mutex_;
  Gaps gaps_;             ///< guarded by mutex_
  Offset used_ = 0;       ///< all that was ever given lies below; guarded by mutex_
  std::size_t kept_ = 0;  ///< bytes of gaps that are memory; guarded by mutex_
};

}  // namespace dtrun::collectives::cpu
