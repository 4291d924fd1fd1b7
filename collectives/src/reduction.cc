#include "reduction.h"

#include <algorithm>

#include "combine_op.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::collectives {

void reduce_pieces(ReduceOp op, tensors::DType dtype, void* output, const void* const* pieces,
                   int n, std::int64_t count) {
  if (op == ReduceOp::avg) return tensors::average_all(dtype, output, pieces, n, count, n);
  tensors::combine_all(combine_op(op), dtype, output, pieces, n, count);
}

namespace {

using tensors::DType;

/// Halves are widened and narrowed in blocks that stay in a cache.
constexpr std::int64_t kBlock = 2048;

/// Calls visit(begin, length) for the blocks of so many elements.
template <typename Visit>
void for_each_block(std::int64_t count, Visit visit) {
  for (std::int64_t begin = 0; begin < count; begin += kBlock)
    visit(begin, std::min(kBlock, count - begin));
}

void halves_to_part(ReduceOp op, DType half, float* part, const void* const* pieces, int n,
                    std::int64_t count) {
  float block[kBlock];
  for_each_block(count, [&](std::int64_t begin, std::int64_t length) {
    const auto piece = [&](int i) { return static_cast<const std::uint16_t*>(pieces[i]) + begin; };
    tensors::widen(half, part + begin, piece(0), length);
    for (int i = 1; i < n; ++i) {
      tensors::widen(half, block, piece(i), length);
      tensors::combine(combine_op(op), DType::f32, part + begin, block, length);
    }
  });
}

void parts_to_halves(ReduceOp op, DType half, std::uint16_t* output, const void* const* parts,
                     int n, std::int64_t count, int ranks) {
  float block[kBlock];
  for_each_block(count, [&](std::int64_t begin, std::int64_t length) {
    const auto part = [&](int i) { return static_cast<const float*>(parts[i]) + begin; };
    std::copy_n(part(0), length, block);
    for (int i = 1; i < n; ++i)
      tensors::combine(combine_op(op), DType::f32, block, part(i), length);
    if (op == ReduceOp::avg) tensors::divide(DType::f32, block, length, ranks);
    tensors::narrow(half, output + begin, block, length);
  });
}

}  // namespace

std::size_t part_item_size(DType dtype) {
  return tensors::item_size(tensors::is_half(dtype) ? DType::f32 : dtype);
}

void reduce_to_part(ReduceOp op, DType dtype, void* part, const void* const* pieces, int n,
                    std::int64_t count) {
  if (tensors::is_half(dtype))
    return halves_to_part(op, dtype, static_cast<float*>(part), pieces, n, count);
  tensors::combine_all(combine_op(op), dtype, part, pieces, n, count);
}

void reduce_parts(ReduceOp op, DType dtype, void* output, const void* const* parts, int n,
                  std::int64_t count, int ranks) {
  if (tensors::is_half(dtype))
    return parts_to_halves(op, dtype, static_cast<std::uint16_t*>(output), parts, n, count, ranks);
  if (op == ReduceOp::avg) return tensors::average_all(dtype, output, parts, n, count, ranks);
  tensors::combine_all(combine_op(op), dtype, output, parts, n, count);
}

}  // namespace dtrun::collectives
