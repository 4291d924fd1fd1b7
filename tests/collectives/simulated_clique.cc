#include "collectives/simulated_clique.h"

#include <cstring>
#include <list>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::test::simulated {

using tensors::CombineOp;
using tensors::DType;
using tensors::LocalTensor;

namespace {

DType dtype_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return DType::f16;
    case DataType::bf16:
      return DType::bf16;
    case DataType::f32:
      return DType::f32;
    case DataType::f64:
      return DType::f64;
    case DataType::i32:
      return DType::i32;
    case DataType::i64:
      return DType::i64;
    case DataType::i8:
      return DType::i8;
    default:
      return DType::u8;
  }
}

CombineOp combine_of(Reduction op) {
  switch (op) {
    case Reduction::product:
      return CombineOp::product;
    case Reduction::max:
      return CombineOp::max;
    case Reduction::min:
      return CombineOp::min;
    default:
      return CombineOp::sum;
  }
}
LocalTensor tensor_of(const void* data, std::size_t count, DataType type) {
  const std::size_t bytes = count * tensors::item_size(dtype_of(type));
  return LocalTensor(tensors::Storage::wrap(const_cast<void*>(data), bytes, tensors::kCpu, [] {}),
                     dtype_of(type), {static_cast<std::int64_t>(count)}, {1});
}

void reduce_into(void* target, const std::vector<const void*>& inputs, std::size_t count,
                 const Op& op) {
  const DType dtype = dtype_of(op.source.type);
  const std::size_t bytes = count * tensors::item_size(dtype);
  std::vector<char> sum(bytes);
  if (count == 0) return;
  tensors::combine_all(combine_of(op.reduction), dtype, sum.data(), inputs.data(),
                       static_cast<int>(inputs.size()), static_cast<std::int64_t>(count));
  if (op.reduction == Reduction::average)
    tensors::divide(dtype, sum.data(), static_cast<std::int64_t>(count),
                    static_cast<std::int64_t>(inputs.size()));
  std::memcpy(target, sum.data(), bytes);
}

/// All ranks are at it: moves the bytes. False: they are not at the same, and hang, as NCCL would.
bool run_collective(const std::vector<Op*>& ops) {
  const Op& first = *ops.front();
  for (const Op* op : ops)
    if (op->kind != first.kind || op->source.count != first.source.count ||
        op->source.type != first.source.type || op->peer != first.peer)
      return false;
  std::vector<const void*> inputs;
  std::list<LocalTensor> products;
  for (const Op* op : ops) {
    const std::size_t parts = op->kind == Kind::reduce_scatter ? ops.size() : 1;
    const Source& from = op->source;
    if (op->factor)
      products.push_back(
          tensors::mul(tensor_of(from.data, from.count * parts, from.type), *op->factor));
    inputs.push_back(op->factor ? products.back().data() : from.data);
  }
  // Inputs may be outputs of the same call: results are put down once all are computed.
  std::vector<std::vector<char>> results(ops.size());
  const std::size_t part = first.bytes();
  for (std::size_t rank = 0; rank < ops.size(); ++rank) {
    std::vector<char>& result = results[rank];
    switch (first.kind) {
      case Kind::all_reduce:
        result.resize(part);
        reduce_into(result.data(), inputs, first.source.count, first);
        break;
      case Kind::reduce:
        if (static_cast<int>(rank) != first.peer) break;
        result.resize(part);
        reduce_into(result.data(), inputs, first.source.count, first);
        break;
      case Kind::broadcast: {
        const char* root = static_cast<const char*>(inputs[static_cast<std::size_t>(first.peer)]);
        result.assign(root, root + part);
        break;
      }
      case Kind::all_gather:
        for (const void* input : inputs)
          result.insert(result.end(), static_cast<const char*>(input),
                        static_cast<const char*>(input) + part);
        break;
      case Kind::reduce_scatter: {
        std::vector<const void*> parts;
        for (const void* input : inputs)
          parts.push_back(static_cast<const char*>(input) + rank * part);
        result.resize(part);
        reduce_into(result.data(), parts, first.source.count, first);
        break;
      }
      default:
        return false;
    }
  }
  for (std::size_t rank = 0; rank < ops.size(); ++rank) {
    if (!results[rank].empty())
      std::memcpy(ops[rank]->target, results[rank].data(), results[rank].size());
    ops[rank]->done = true;
  }
  return true;
}

void run_messages(Clique& clique) {
  for (auto& [pair, sends] : clique.sends) {
    std::deque<Op*>& receives = clique.receives[pair];
    while (!sends.empty() && !receives.empty()) {
      Op& send = *sends.front();
      Op& receive = *receives.front();
      if (send.bytes() != receive.bytes()) break;
      std::memcpy(receive.target, send.source.data, send.bytes());
      send.done = receive.done = true;
      sends.pop_front();
      receives.pop_front();
    }
  }
}

}  // namespace

std::size_t Op::bytes() const {
  return source.count * tensors::item_size(dtype_of(source.type));
}

double factor_of(const void* element, DataType type) {
  return tensor_of(element, 1, type).item();
}

void arrive(End& end, std::vector<Op>& ops) {
  Clique& clique = *end.clique;
  for (Op& op : ops) {
    if (op.kind == Kind::send)
      clique.sends[{end.rank, op.peer}].push_back(&op);
    else if (op.kind == Kind::receive)
      clique.receives[{op.peer, end.rank}].push_back(&op);
    else
      clique.collectives[static_cast<std::size_t>(end.rank)].push_back(&op);
  }
}

void withdraw(const End& end) {
  Clique& clique = *end.clique;
  clique.collectives[static_cast<std::size_t>(end.rank)].clear();
  for (auto& [pair, sends] : clique.sends)
    if (pair.first == end.rank) sends.clear();
  for (auto& [pair, receives] : clique.receives)
    if (pair.second == end.rank) receives.clear();
}

void run_arrived(Clique& clique) {
  run_messages(clique);
  for (;;) {
    std::vector<Op*> ops;
    for (std::deque<Op*>& queue : clique.collectives)
      if (!queue.empty()) ops.push_back(queue.front());
    if (ops.size() != clique.collectives.size() || !run_collective(ops)) return;
    for (std::deque<Op*>& queue : clique.collectives) queue.pop_front();
  }
}
}  // namespace dtrun::test::simulated
