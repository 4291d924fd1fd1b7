// Schedule: what one rank does in one collective, as data: steps of messages that travel at the
// same time, with local work beside and after them. Made without I/O, clock or threads from what
// all ranks know; the cpu backend's CollectiveOperation carries it out, and a test runs all ranks'
// schedules in one loop. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm.h"
#include "deliveries.h"
#include "dtrun/collectives/fingerprint.h"
#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

/// Which of an operation's memory blocks. inputs and outputs are the caller's lists; scratch is the
/// operation's own.
enum class Region : std::uint8_t { input, output, scratch };

/// Bytes of one block.
struct Slice {
  Region region = Region::input;
  int index = 0;  ///< in the caller's list; 0 where there is one buffer
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One message from or to a peer (group rank). One without bytes travels, too, unless empty parts
/// stay: its header carries the fingerprint. (By machines and in chunks there are none.)
struct Transfer {
  int peer = 0;
  Slice slice;
};

/// Local work after a step's messages. copy: the destination becomes sources[0]. combine: the
/// sources of all ranks become the result. combine_part: those of some ranks become a part.
/// combine_parts: parts become the result. Sources are combined in the order given; but for a part
/// the destination may be one of them.
struct LocalWork {
  enum class Kind : std::uint8_t { copy, combine, combine_part, combine_parts };
  Kind kind = Kind::copy;
  Slice destination;
  std::vector<Slice> sources;
};

/// Transfers of one peer stand side by side, and travel in that order.
struct Step {
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  std::vector<LocalWork> beside;  ///< needs none of the messages: done while they travel
  std::vector<LocalWork> local;
};

struct Schedule {
  std::vector<Step> steps;
  std::size_t scratch_bytes = 0;
  /// Messages carry on what came before: who is waited for may itself wait for another rank.
  bool relays = false;
};

/// A group's ranks by machine, in ascending order; machines in the order of their first rank.
using MachineLists = std::vector<std::vector<int>>;
/// @param machines a number for each rank, as Backend::machines()
MachineLists machine_lists(const std::vector<int>& machines);

/// Less does not fill the network; more makes the first step, which the network spends idle, long.
inline constexpr std::size_t kTransferBytes = 256 << 10;

/// What a schedule depends on.
struct CollectiveShape {
  OpKind kind = OpKind::none;
  Way way = Way::messages;                 ///< or rounds, chunks, machines
  const MachineLists* machines = nullptr;  ///< where the way is rounds or machines
  std::size_t part_bytes = 1;              ///< an element of a part: part_item_size()
  /// By machines or in chunks: what a rank has to send to another one in a step.
  std::size_t transfer_bytes = kTransferBytes;
  int rank = 0;
  int size = 1;
  int root = -1;
  EmptyParts empty_parts = EmptyParts::travel;
  std::size_t item_bytes = 1;
  /// Elements of the buffers, as Collective lists them.
  std::vector<std::int64_t> input_counts;
  std::vector<std::int64_t> output_counts;
};

Schedule make_schedule(const CollectiveShape& shape);

}  // namespace dtrun::collectives
