// What dtrun-bench measures: the operations, what each rank holds of a call, and how a time becomes
// a bandwidth. Pure. The factors are those of nccl-tests (doc/PERFORMANCE.md there), and stand here
// only.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::bench {

enum class Operation {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  barrier,
  send_recv,  ///< each rank sends to the next and receives from the one before
};

/// In the order in which they are measured.
const std::vector<Operation>& all_operations();
std::string_view operation_name(Operation operation);
/// @throws base::Error kUsage with the nearest name
Operation parse_operation(std::string_view name);

/// One operation with its arguments. The count is nccl-tests': the elements of the buffer, or of
/// one rank's part of it where the buffer is cut into a part per rank.
struct Call {
  Operation operation = Operation::all_reduce;
  tensors::DType dtype = tensors::DType::f32;
  collectives::ReduceOp reduction = collectives::ReduceOp::sum;
  int root = 0;
  std::size_t count = 0;
};

/// The call whose buffer has that many bytes, rounded down to whole elements in equal parts, at
/// least one element each.
Call call_of_size(Call call, std::size_t bytes, int ranks);

bool reduces(Operation operation);
bool has_root(Operation operation);
/// What a rank's elements are multiplied by in a premul_sum: the ranks' factors differ, and are
/// powers of two, so that the products are exact.
constexpr double premul_factor(int rank) {
  return rank % 2 == 0 ? 2 : 0.5;
}
/// The result lies where the input was.
bool is_in_place(Operation operation);
std::size_t input_count(const Call& call, int rank, int ranks);
std::size_t output_count(const Call& call, int rank, int ranks);

/// nccl-tests' size: of the whole buffer.
std::size_t size_in_bytes(const Call& call, int ranks);
/// algbw times this is busbw, which does not depend on the number of ranks where each link is used
/// to its limit.
double bus_factor(Operation operation, int ranks);
/// What all ranks together must at least copy, if each reads once what it needs and writes once
/// what it keeps: a byte read and one written are one that is copied. 0 for one rank.
double bytes_moved(const Call& call, int ranks);
/// What the busiest rank must copy of them itself, as nobody writes another's memory.
double bytes_of_busiest(const Call& call, int ranks);

}  // namespace dtrun::bench
