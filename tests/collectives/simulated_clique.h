// A simulated communicator: its ranks' ends, and the operations that have reached their streams'
// heads. It moves real bytes once all ranks are at an operation. Guarded by the simulation's mutex.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nccl/nccl_api.h"

namespace dtrun::test::simulated {

using collectives::nccl::Communicator;
using collectives::nccl::DataType;
using collectives::nccl::Reduction;
using collectives::nccl::Source;

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter, send, receive };

struct Op {
  Kind kind;
  Source source;
  void* target;
  Reduction reduction;
  int peer;  ///< or root
  std::optional<double> factor = std::nullopt;
  bool done = false;

  std::size_t bytes() const;
};

/// What stands in a stream. Runs again and again until it says that it is done.
using Task = std::function<bool()>;

struct Stream {
  std::deque<Task> tasks;
};

struct Clique;

/// One rank's end of a communicator.
struct End {
  std::shared_ptr<Clique> clique;
  int world_rank = 0;
  int device = 0;
  int rank = 0;
  int busy = 0;
  std::chrono::steady_clock::time_point enqueued_at{};
  bool is_through = false;  ///< its own part of making it, which waits for the device's kernels
  bool is_made = false;
  bool is_aborted = false;
  bool finalizing = false;
  int kernels = 0;  ///< on a stream, and not done
  /// What NCCL is still putting on which stream.
  std::vector<std::pair<Stream*, Task>> enqueuing;
  // Of a split under way.
  bool splitting = false;
  Communicator* split_slot = nullptr;
  std::optional<int> split_color;
  int split_key = 0;
  std::map<Reduction, double> reductions;  ///< that were made, and not destroyed
};

struct Clique {
  int size = 0;
  std::vector<End*> ends;  ///< by rank; null: has not come
  /// Operations that have reached their stream's head, by rank, in order.
  std::vector<std::deque<Op*>> collectives;
  std::map<std::pair<int, int>, std::deque<Op*>> sends;
  std::map<std::pair<int, int>, std::deque<Op*>> receives;

  explicit Clique(int members)
      : size(members),
        ends(static_cast<std::size_t>(members)),
        collectives(static_cast<std::size_t>(members)) {}
};
/// The element that a reduction multiplies by.
double factor_of(const void* element, DataType type);
/// The operations come to their streams' heads.
void arrive(End& end, std::vector<Op>& ops);
/// What it has not done is never done: its peers hang.
void withdraw(const End& end);
void run_arrived(Clique& clique);

}  // namespace dtrun::test::simulated
