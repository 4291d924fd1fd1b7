#include "bench/operation.h"

#include <algorithm>
#include <string>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "text/spelling.h"

namespace dtrun::bench {
namespace {

enum class Buffer { none, part, whole };

struct Row {
  Operation operation;
  std::string_view name;
  Buffer input, output;
  enum class Root { none, sends, receives } root;
};

// In the order of the enum: row_of() takes the number for the place.
constexpr Row kRows[] = {
    {Operation::all_reduce, "all_reduce", Buffer::part, Buffer::part, Row::Root::none},
    {Operation::reduce, "reduce", Buffer::part, Buffer::part, Row::Root::receives},
    {Operation::broadcast, "broadcast", Buffer::part, Buffer::part, Row::Root::sends},
    {Operation::all_gather, "all_gather", Buffer::part, Buffer::whole, Row::Root::none},
    {Operation::reduce_scatter, "reduce_scatter", Buffer::whole, Buffer::part, Row::Root::none},
    {Operation::all_to_all, "all_to_all", Buffer::whole, Buffer::whole, Row::Root::none},
    {Operation::gather, "gather", Buffer::part, Buffer::whole, Row::Root::receives},
    {Operation::scatter, "scatter", Buffer::whole, Buffer::part, Row::Root::sends},
    {Operation::barrier, "barrier", Buffer::none, Buffer::none, Row::Root::none},
    {Operation::send_recv, "send_recv", Buffer::part, Buffer::part, Row::Root::none},
};

const Row& row_of(Operation operation) {
  const Row& row = kRows[static_cast<std::size_t>(operation)];
  DT_CHECK(row.operation == operation);
  return row;
}

/// A buffer with a part for each rank.
bool has_parts(Operation operation) {
  const Row& row = row_of(operation);
  return row.input == Buffer::whole || row.output == Buffer::whole;
}

std::size_t elements(Buffer buffer, std::size_t count, int ranks) {
  if (buffer == Buffer::none) return 0;
  return buffer == Buffer::part ? count : count * static_cast<std::size_t>(ranks);
}

}  // namespace

const std::vector<Operation>& all_operations() {
  static const std::vector<Operation> kAll = [] {
    std::vector<Operation> all;
    for (const Row& row : kRows) all.push_back(row.operation);
    return all;
  }();
  return kAll;
}

std::string_view operation_name(Operation operation) {
  return row_of(operation).name;
}

Operation parse_operation(std::string_view name) {
  std::vector<std::string_view> names;
  std::string list;
  for (const Row& row : kRows) {
    if (row.name == name) return row.operation;
    names.push_back(row.name);
    list += (list.empty() ? "" : ", ") + std::string(row.name);
  }
  const std::string_view nearest = launcher::nearest_name(name, names);
  throw base::Error(
      base::ErrorCode::kUsage, "unknown operation '" + std::string(name) + "'", "",
      nearest.empty() ? "one of " + list : "did you mean " + std::string(nearest) + "?");
}

Call call_of_size(Call call, std::size_t bytes, int ranks) {
  const std::size_t divisor = has_parts(call.operation) ? static_cast<std::size_t>(ranks) : 1;
  call.count = std::max<std::size_t>(bytes / tensors::item_size(call.dtype) / divisor, 1);
  if (call.operation == Operation::barrier) call.count = 0;
  return call;
}

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter;
}

bool has_root(Operation operation) {
  return row_of(operation).root != Row::Root::none;
}

bool is_in_place(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::broadcast;
}

std::size_t input_count(const Call& call, int rank, int ranks) {
  const Row& row = row_of(call.operation);
  const bool gives = row.root != Row::Root::sends || rank == call.root;
  return gives || is_in_place(call.operation) ? elements(row.input, call.count, ranks) : 0;
}

std::size_t output_count(const Call& call, int rank, int ranks) {
  const Row& row = row_of(call.operation);
  const bool gets = row.root != Row::Root::receives || rank == call.root;
  return gets || is_in_place(call.operation) ? elements(row.output, call.count, ranks) : 0;
}

std::size_t size_in_bytes(const Call& call, int ranks) {
  const std::size_t parts = has_parts(call.operation) ? static_cast<std::size_t>(ranks) : 1;
  return call.count * parts * tensors::item_size(call.dtype);
}

// Those of nccl-tests: how many bytes the busiest rank sends, or gets, for each byte of the size.
double bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 2 * others;
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return others;
    case Operation::reduce:
    case Operation::broadcast:
    case Operation::send_recv:
      return ranks == 1 ? 0 : 1;
    case Operation::barrier:
      return 0;
  }
  return 0;
}

// docs/benchmarks.md derives these ("What the bound is").
double bytes_moved(const Call& call, int ranks) {
  if (ranks == 1) return 0;
  const double part = static_cast<double>(call.count * tensors::item_size(call.dtype));
  const double n = ranks;
  switch (call.operation) {
    case Operation::all_reduce:
      return part * (3 * n - 1) / 2;
    case Operation::reduce:
      return part * (n + 1) / 2;
    case Operation::reduce_scatter:
      return part * n * (n + 1) / 2;
    case Operation::broadcast:
      return part * (n - 1);
    case Operation::all_gather:
    case Operation::all_to_all:
      return part * n * n;
    case Operation::gather:
    case Operation::scatter:
    case Operation::send_recv:
      return part * n;
    case Operation::barrier:
      return 0;
  }
  return 0;
}

double bytes_of_busiest(const Call& call, int ranks) {
  const double all = bytes_moved(call, ranks);
  const double part = static_cast<double>(call.count * tensors::item_size(call.dtype));
  switch (call.operation) {
    case Operation::broadcast:
      return ranks == 1 ? 0 : part;  // of each but the root
    case Operation::gather:
      return all;
    case Operation::reduce:
      return ranks == 1 ? 0 : part / 2;  // the root writes the result
    default:
      return all / ranks;
  }
}

}  // namespace dtrun::bench
